"""Addresses of the tracking store: an MLflow server, or a SQLite file of the project.  Does not import MLflow.

``MLFLOW_TRACKING_URI`` has precedence; otherwise it is ``mlflow.db`` in the given folder, as an absolute path (a
relative one would be another database in every working directory).
"""

from __future__ import annotations

import os
from pathlib import Path

DATABASE, ARTIFACTS = "mlflow.db", "artifacts"
LOCK = "lock"
"""Lock file beside the database, for all processes of a machine."""
VIEW = "symposium"
"""Name of the shared view of an experiment's runs, with selected columns."""


def tracking_uri(home: Path) -> str:
    """Return ``MLFLOW_TRACKING_URI``, or the address of the SQLite file in ``home``."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home.absolute() / DATABASE}"


def run_link(base: str, experiment: str, run: str) -> str:
    """Return the address of a run in the MLflow UI at ``base``, in the UI's mode for model training."""
    return f"{base.rstrip('/')}/#/experiments/{experiment}/runs/{run}?workflowType=machine_learning"


def artifact_link(experiment: str, run: str, path: str) -> str:
    """Return the address of an artifact, relative to the MLflow UI."""
    return f"#/experiments/{experiment}/runs/{run}/artifacts/{path}?workflowType=machine_learning"


def runs_link(experiment: str) -> str:
    """Return the address of the list of an experiment's runs in the view `VIEW`, relative to the MLflow UI."""
    return f"#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey={VIEW}"
