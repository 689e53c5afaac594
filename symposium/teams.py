"""A team of an experiment: untrained, or with the weights of a checkpoint.

A project in which the chain has run (`symposium run`), for `load_team`: its teams, read where they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.assembly.players import opened
from pipeline_lib.assembly.teams import Setup
from pipeline_lib.project import BASE, PROBLEMS, TRAINED, selected_checkpoint
from pipeline_lib.protocols import make_protocol
from pipeline_lib.settings import load_params
from pipeline_lib.tracking.tracker import find_champion
from pipeline_lib.training.checkpoint_folders import RECORD, read_record, step_folder
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
        with opened(setup_of(self.experiment), self.checkpoint) as player:
            yield player


def setup_of(experiment: Experiment) -> Setup:
    """Return what an experiment's team is made from; makes problems and base policy if necessary."""
    params = experiment.params
    protocol = make_protocol(params.rollouts.protocol)
    return Setup(params, params.environment, protocol, experiment.problems_folder(), experiment.base_folder())


class Project(Experiment):
    """A folder with ``params.yaml``, as an experiment of which everything is there; nothing is made in it.

    Raises:
        SettingsError: there is no ``params.yaml``, or a setting is wrong.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.params = load_params(folder / "params.yaml", folder / "conf")

    def problems_folder(self) -> Path:
        """Return the folder of the problems that the chain has prepared."""
        return self.folder / PROBLEMS

    def base_folder(self) -> Path:
        """Return the folder of the base policy that the chain has made."""
        return self.folder / BASE

    def place(self, what: str, /, *more: Any, **sections: tuple[str, ...]) -> Path:
        """Refuse: only the chain writes into a project."""
        raise ValueError(f"{self.folder} is a project of the chain: use `symposium run` there to audit and to train")

    def checkpoint(self, team: str) -> Path | None:
        """Return the folder of the checkpoint that ``team`` names; see `load_team`.

        Raises:
            ValueError: there is none; the message says what to do.
        """
        if team == "base":
            return None
        if team == "selected":
            seed, step = selected_checkpoint(self.folder)
            return step_folder(self.folder / TRAINED / f"team-{seed}", step)
        if team == "champion":
            teams = {path.parent: str(read_record(path)["team"]) for path in self._records()}
            return find_champion(self.params.environment.kind, self.folder / ".symposium/mlflow", teams)[1]
        folder = self.folder / TRAINED / team
        if not team.startswith("team-") or not (folder / RECORD).is_file():
            there = sorted(path.parent.relative_to(self.folder / TRAINED) for path in self._records())
            known = f"{there[0]} to {there[-1]}" if there else "none yet"
            raise ValueError(f"{team!r}: no such team; accepted: selected, champion, base, or a checkpoint ({known})")
        return folder

    def _records(self) -> list[Path]:
        return sorted((self.folder / TRAINED).glob(f"team-*/step-*/{RECORD}"))
