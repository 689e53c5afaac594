"""Reads the verdicts of runs, with their settings, from MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline_lib.tracking.addresses import tracking_uri
from pipeline_lib.tracking.connection import connect

_FILTER = "tags.`symposium.part` = '-' AND tags.`symposium.lines` != ''"

_MOST = 50_000
"""The most runs that MLflow returns in one request."""


@dataclass(frozen=True, slots=True)
class TrackedVerdict:
    """A run's verdict as stored in MLflow.

    Attributes:
        run: name of the run.
        tags: its tags (``verdict``, ``symposium.lines``, ``git.commit``, ...).
        metrics: its numbers (``test/base``, ``test/selected``, ``test/difference``, ...).
        settings: its flat settings, ``section.key`` and value.
    """

    run: str
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    settings: Mapping[str, str]


def tracked_verdicts(home: Path, experiment: str) -> list[TrackedVerdict]:
    """Return every run of an MLflow experiment that has a verdict, the newest run first.

    Args:
        home: folder of the project's tracking database; the variable ``MLFLOW_TRACKING_URI`` has precedence.
        experiment: name of the MLflow experiment, the kind of environment.

    Raises:
        LookupError: there is no such experiment; the message names those that exist.
    """
    client = connect(tracking_uri(home), home)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        known = sorted(other.name for other in client.search_experiments() if other.name != "Default")
        raise LookupError(f"MLflow has no experiment {experiment!r}; it has: {', '.join(known) or 'none yet'}")
    runs = client.search_runs([found.experiment_id], _FILTER, max_results=_MOST)
    return [
        TrackedVerdict(run.info.run_name, run.data.tags, dict(run.data.metrics), dict(run.data.params)) for run in runs
    ]
