"""Reads runs, their verdicts and their settings from MLflow."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipeline_lib.tracking.connection import connect
from pipeline_lib.tracking.store import tracking_uri

_WHOLE = "tags.`symposium.part` = '-'"
"""Runs of a whole experiment, without the stages below them."""

_JUDGED = f"{_WHOLE} AND tags.`symposium.lines` != ''"

_MOST = 50_000
"""The most runs that MLflow returns in one request."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as stored in MLflow."""

    run: str  #: name of the run
    experiment: str  #: name of the MLflow experiment, the kind of environment
    started: datetime  #: UTC
    status: str  #: MLflow's word for how it ended
    tags: Mapping[str, str]  #: its tags (``verdict``, ``symposium.lines``, ``git.commit``, ...)
    #: Its numbers (``test/base``, ``test/selected``, ``test/difference``, ...), without those of an earlier result that
    #: the newest one lacks.
    metrics: Mapping[str, float]
    settings: Mapping[str, str]  #: its flat settings, ``section.key`` and value

    @property
    def work_s(self) -> float:
        """Seconds of training and test behind its result."""
        return sum(v for name, v in self.metrics.items() if name.startswith("cost/") and name.endswith("/seconds"))


def tracked_verdicts(home: Path, experiment: str) -> list[TrackedRun]:
    """Return every run of an MLflow experiment that has a verdict, the newest first; ``home`` as for `tracking_uri`.

    Raises:
        LookupError: there is no such experiment; the message names those that exist.
    """
    return _runs(home, experiment, _JUDGED)


def tracked_runs(home: Path, experiment: str | None = None) -> list[TrackedRun]:
    """Return every run of an experiment, or of all, the newest first; arguments and errors as of `tracked_verdicts`."""
    return _runs(home, experiment, _WHOLE)


def _runs(home: Path, experiment: str | None, wanted: str) -> list[TrackedRun]:
    client = connect(tracking_uri(home), home)
    experiments = {other.experiment_id: other.name for other in client.search_experiments() if other.name != "Default"}
    if experiment is not None and experiment not in experiments.values():
        names = ", ".join(sorted(experiments.values())) or "none yet"
        raise LookupError(f"MLflow has no experiment {experiment!r}; it has: {names}")
    ids = [key for key, name in experiments.items() if experiment in (name, None)]
    runs = client.search_runs(ids, wanted, max_results=_MOST) if ids else []
    return [
        TrackedRun(
            run.info.run_name,
            experiments[run.info.experiment_id],
            datetime.fromtimestamp(run.info.start_time / 1000, UTC),
            run.info.status,
            run.data.tags,
            {name: value for name, value in run.data.metrics.items() if not math.isnan(value)},
            dict(run.data.params),
        )
        for run in runs
    ]
