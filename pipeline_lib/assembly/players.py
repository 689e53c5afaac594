"""A team ready to play: untrained, or with the weights of a checkpoint."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from pipeline_lib.assembly.teams import Setup
from pipeline_lib.play import Player
from pipeline_lib.policies.computing import right_threads
from pipeline_lib.problems.splits import load_split
from pipeline_lib.training.checkpoints import load_checkpoint


@contextlib.contextmanager
def opened(setup: Setup, checkpoint: Path | None) -> Iterator[Player]:
    """Yield a team in its environment, ready to play, and close engine and sandbox afterwards.

    Args:
        setup: the team and its environment.
        checkpoint: folder of trained weights, verified by digest before they are used; None: the untrained team.

    Raises:
        PolicyError: the base was made from other settings, or the weights are of another team.
        CorruptFileError: a file of the checkpoint is missing or damaged.
        ProblemsError: no problems were prepared.
    """
    disable_progress_bar()  # of loading, which takes a moment
    with contextlib.closing(setup.environment()) as environment, contextlib.closing(setup.engine()) as engine:
        team = setup.team(environment, load_split(setup.problems, "train"))
        if checkpoint is not None:
            load_checkpoint(checkpoint, team)
        with right_threads(team):
            engine.load(team.sampled())
            yield setup.player(environment, team, engine)
