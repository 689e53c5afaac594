"""A team of an experiment: untrained, or with the weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline_lib.assembly.players import opened
from pipeline_lib.protocols import make_protocol
from symposium.experiments import Experiment

if TYPE_CHECKING:
    from pipeline_lib.play import Player


@dataclass(frozen=True, slots=True)
class Team:
    """A team of an experiment.

    Attributes:
        experiment: its experiment.
        seed: seed of its training run; None for the untrained team.
        step: number of updates; 0 for the untrained team.
        checkpoint: folder of its weights, verified by digest; None for the untrained team.
    """

    experiment: Experiment
    seed: int | None = None
    step: int = 0
    checkpoint: Path | None = None

    @property
    def title(self) -> str:
        """The name of the team in sentences."""
        return "the untrained team" if self.seed is None else f"training seed {self.seed} after {self.step} updates"

    @contextmanager
    def open(self) -> Iterator[Player]:
        """Yield the team in its environment, with its weights in memory (`pipeline_lib.play.Player`)."""
        experiment, params = self.experiment, self.experiment.params
        protocol = make_protocol(params.rollouts.protocol)
        base, problems = experiment.base_folder(), experiment.problems("train")
        with opened(params, params.environment, protocol, base, problems, self.checkpoint) as player:
            yield player
