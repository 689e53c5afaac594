"""Addresses of the tracking store: an MLflow server, or a SQLite file of the project.  Does not import MLflow.

``MLFLOW_TRACKING_URI`` has precedence; otherwise it is ``mlflow.db`` in the given folder, as an absolute path (a
relative one would be another database in every working directory).
"""

from __future__ import annotations

import os
from pathlib import Path

DATABASE, ARTIFACTS = "mlflow.db", "artifacts"
LOCK = "lock"
"""Lock file next to the database, for all processes of a machine."""
VIEW = "symposium"
"""Name of the shared view of an experiment's runs, with selected columns."""


def tracking_uri(home: Path) -> str:
    """Return ``MLFLOW_TRACKING_URI``, or the address of the SQLite file in ``home``."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home.absolute() / DATABASE}"


_TRAINING = "workflowType=machine_learning"
"""Opens a page in the UI's mode for model training; without it, a new browser opens it in the mode for GenAI."""


def run_link(experiment: str, run: str) -> str:
    """Return the address of a run, relative to the MLflow UI."""
    return f"#/experiments/{experiment}/runs/{run}?{_TRAINING}"


def artifact_link(experiment: str, run: str, path: str) -> str:
    """Return the address of an artifact, relative to the MLflow UI."""
    return f"#/experiments/{experiment}/runs/{run}/artifacts/{path}?{_TRAINING}"


def runs_link(experiment: str) -> str:
    """Return the address of the list of an experiment's runs in the view `VIEW`, relative to the MLflow UI."""
    return f"#/experiments/{experiment}/runs?{_TRAINING}&viewStateShareKey={VIEW}"
