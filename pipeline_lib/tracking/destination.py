"""Connections to where tracking goes.  Requests give up after seconds, not minutes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from pipeline_lib.locks import locked
from pipeline_lib.tracking.addresses import LOCK

ARTIFACTS = "artifacts"


def connect(uri: str, home: Path) -> MlflowClient:
    """Return a client for ``uri``; a SQLite database is made first if need be.

    Making it takes some seconds and must not be done by two processes at once, so it happens under the lock that all
    processes of the project share.
    """
    # MLflow's own patience is minutes per request.  Ours is short: what cannot be sent now is kept and sent later.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with locked(home / LOCK):
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        client.search_experiments(max_results=1)
    return client


def experiment_id(client: MlflowClient, uri: str, home: Path, name: str) -> str:
    """Return the id of the experiment ``name``, which is made or restored if need be."""
    with locked(home / LOCK):
        found = client.get_experiment_by_name(name)
        if found is None:
            # A server decides by itself where artifacts lie; without one they lie beside the database.
            location = None if uri.startswith("http") else (home.absolute() / ARTIFACTS).as_uri()
            return str(client.create_experiment(name, artifact_location=location))
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)


@contextmanager
def as_default(uri: str, home: Path) -> Iterator[None]:
    """Hold the lock, with ``uri`` as MLflow's default: what makes models and versions knows no other way.

    MLflow also writes the default into ``os.environ``, from where other trackers and children would take it.
    """
    before = os.environ.get("MLFLOW_TRACKING_URI", "")
    with locked(home / LOCK):
        mlflow.set_tracking_uri(uri)
        try:
            yield
        finally:
            mlflow.set_tracking_uri(before)
            if not before:
                os.environ.pop("MLFLOW_TRACKING_URI", None)


def is_temporary(error: Exception) -> bool:
    """Return whether an error may pass by itself: the server is away, slow or overloaded, a database is busy."""
    if isinstance(error, MlflowException):
        lasting = {
            "INVALID_PARAMETER_VALUE",
            "RESOURCE_DOES_NOT_EXIST",
            "RESOURCE_ALREADY_EXISTS",
            "PERMISSION_DENIED",
            "BAD_REQUEST",
            "FEATURE_DISABLED",
        }
        return error.error_code not in lasting
    return not isinstance(error, FileNotFoundError | LookupError | TypeError | ValueError | AttributeError)
