"""Reads back what runs came to: the verdict of each finished one, with its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline_lib.tracking.addresses import tracking_uri
from pipeline_lib.tracking.destination import connect

_FILTER = "tags.`symposium.stage` = 'verdict' AND attributes.status = 'FINISHED'"
_PARENT = "mlflow.parentRunId"


@dataclass(frozen=True, slots=True)
class TrackedVerdict:
    """What MLflow knows of a run's verdict.

    Attributes:
        run: name of the run.
        tags: tags of the run's verdict (``symposium.verdict``, ``symposium.sentence``, ``git.commit``, ...).
        metrics: its numbers (``test/base``, ``test/selected``, ``test/difference``, ...).
        settings: flat settings that the verdict was made with, ``section.key`` and value.
    """

    run: str
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    settings: Mapping[str, str]


def finished_verdicts(home: Path, experiment: str, uri: str | None = None) -> list[TrackedVerdict]:
    """Return the newest finished verdict of every run of an MLflow experiment, the newest run first.

    Args:
        home: folder of the project's tracking database.
        experiment: name of the MLflow experiment, the kind of environment.
        uri: where to look; default: ``MLFLOW_TRACKING_URI``, else the SQLite file in ``home``.

    Raises:
        LookupError: there is no such experiment; the message names those that exist.
    """
    client = connect(uri or tracking_uri(home), home)
    found = client.get_experiment_by_name(experiment)
    if found is None:
        known = sorted(other.name for other in client.search_experiments() if other.name != "Default")
        raise LookupError(f"MLflow has no experiment {experiment!r}; it has: {', '.join(known) or 'none yet'}")
    newest: dict[str, TrackedVerdict] = {}
    token: str | None = None
    while True:
        page = client.search_runs(
            [found.experiment_id], _FILTER, order_by=["attributes.start_time DESC"], page_token=token
        )
        for verdict in page:
            parent = client.get_run(verdict.data.tags[_PARENT])
            data = verdict.data
            newest.setdefault(
                parent.info.run_id,
                TrackedVerdict(parent.info.run_name, data.tags, dict(data.metrics), dict(data.params)),
            )
        token = page.token
        if not token:
            return list(newest.values())
