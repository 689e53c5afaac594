"""Links from the Prefect UI to the MLflow UI, where one is up."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pipeline_lib.tracking.addresses import artifact_link, run_link
from tasks.services.process_environment import server_url

if TYPE_CHECKING:
    from pipeline_lib.tracking import TrackedRun

_WAIT_S = 60.0


def run_in_mlflow(tracked: TrackedRun, name: str, artifact: str = "") -> str:
    """Return Markdown that names a run in MLflow, as a link where an MLflow UI is up; empty without a run.

    Args:
        tracked: the run.
        name: name of the whole run.
        artifact: file of the run that is linked too, if there is a UI.
    """
    ids = tracked.ids(_WAIT_S)
    if ids is None:
        return ""
    text, base = f"MLflow run `{ids[1]}` of `{name}`", _ui()
    if not base:
        return text
    also = f", [its {artifact}]({base}/{artifact_link(*ids, artifact)})" if artifact else ""
    return f"[{text}]({base}/{run_link(*ids)}){also}"


def _ui() -> str:
    """Return the address of the MLflow UI that is up; empty without one."""
    given = os.environ.get("MLFLOW_TRACKING_URI", "")
    return (given if given.startswith("http") else server_url("mlflow") or "").rstrip("/")
