"""The metrics of a training run, one row per update."""

from __future__ import annotations

from pathlib import Path

from pipeline_lib import storage
from tasks.experiment.arms import RESULTS


def training_file(arm: str, seed: int) -> Path:
    """Return the file of a run's metrics by update, JSON lines."""
    return RESULTS / "train" / f"{arm}-{seed}.jsonl"


def training_rows(arm: str, seed: int, project: Path = Path()) -> list[dict[str, float]]:
    """Return the metrics of every update of a run of a project; none of a run that was left out."""
    return list(storage.read_jsonl(project / training_file(arm, seed)))
