"""A team ready to play: untrained, or with the weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.utils.logging import disable_progress_bar

from pipeline_lib.assembly.teams import base_team, sampling_of
from pipeline_lib.environments.make import make_environment
from pipeline_lib.play import Player
from pipeline_lib.policies.threads import right_threads
from pipeline_lib.rollouts import make_engine
from pipeline_lib.training.checkpoints import load_checkpoint

if TYPE_CHECKING:
    from pipeline_lib.protocols import Protocol
    from pipeline_lib.settings import Params


@contextmanager
def opened(
    params: Params, section: Any, protocol: Protocol, base: Path, problems: Sequence[Any], checkpoint: Path | None
) -> Iterator[Player]:
    """Yield a team in its environment, ready to play, and close engine and sandbox afterwards.

    Args:
        params: the settings.
        section: the environment it acts in.
        protocol: how it answers.
        base: folder of the base policy.
        problems: at least one, as for `base_team`.
        checkpoint: folder of trained weights, verified by digest before they are used; None: the untrained team.

    Raises:
        PolicyError: the base was made from other settings, or the weights are of another team.
        CorruptFileError: a file of the checkpoint is missing or damaged.
    """
    disable_progress_bar()  # of loading, which takes a moment
    environment = make_environment(section, params.sandbox)
    engine = make_engine(params.rollouts, params.policy)
    try:
        team = base_team(params, base, environment, problems)
        if checkpoint is not None:
            load_checkpoint(checkpoint, team)
        with right_threads(team):
            engine.load(team.sampled())
            yield Player(environment, team, engine, sampling_of(params), protocol)
    finally:
        engine.close()
        environment.close()
