"""Files with the episodes of the sweep and the test."""

from __future__ import annotations

from pathlib import Path

from pipeline_lib import storage
from pipeline_lib.evaluation.episodes import EpisodeRecord
from tasks.experiment.arms import RESULTS, sweep_folder

TESTED = RESULTS / "test"


def read_episodes(path: Path) -> list[EpisodeRecord]:
    """Read one team's episodes.

    Raises:
        FileNotFoundError: the stage that writes them has not run.
        CorruptFileError: the file is damaged.
    """
    return [EpisodeRecord.from_json(row) for row in storage.read_jsonl(path)]


def swept(arm: str, seed: int) -> dict[int, list[EpisodeRecord]]:
    """Return the validation episodes of a run by step; step 0 is the base."""
    files = sorted(sweep_folder(arm, seed).glob("step-*.jsonl"))
    return {int(path.stem.removeprefix("step-")): read_episodes(path) for path in files}


def tested_file(arm: str, which: str, seed: int | None = None) -> Path:
    """Return the file of a team's test episodes.

    ``which`` is ``base``, ``selected``, ``last``, ``subteams`` (of the selected team) or the name of a protocol.
    """
    return TESTED / (f"{arm}-{which}.jsonl" if seed is None else f"{arm}-{which}-{seed}.jsonl")
