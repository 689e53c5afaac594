"""Connections to the tracking store, with timeouts of seconds instead of minutes."""

import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from pipeline_lib.locks import locked
from pipeline_lib.tracking.store import ARTIFACTS, LOCK, make_database, page_tags


def connect(uri: str, home: Path) -> MlflowClient:
    """Return a client for ``uri``; a SQLite database is created first if it does not exist.

    Creating it takes some seconds and must not be done by two processes at once, so it happens under the project's
    lock.
    """
    # MLflow's default timeout is minutes per request.  Here it is short, because unsent data is stored and sent later.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # the journal says once what it warns of
    with locked(home / LOCK):
        make_database(uri, home)
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        client.search_experiments(max_results=1)
    return client


def experiment_id(client: MlflowClient, uri: str, home: Path, name: str) -> str:
    """Return the id of the experiment ``name``; create or restore it if necessary, and set the options of its page.

    Without a server, the address of artifacts does not contain the folder, so the project can be moved: a server of
    the project serves them from ``home``.
    """
    with locked(home / LOCK):
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            location = None if uri.startswith("http") else f"mlflow-artifacts:/{re.sub(r'[^A-Za-z0-9_-]', '-', name)}"
            try:
                experiment = client.get_experiment(client.create_experiment(name, artifact_location=location))
            except MlflowException:  # another machine was faster
                experiment = client.get_experiment_by_name(name)
                if experiment is None:
                    raise
        elif experiment.lifecycle_stage == "deleted":
            client.restore_experiment(experiment.experiment_id)
        identity = str(experiment.experiment_id)
        for tag, value in page_tags(identity).items():
            if experiment.tags.get(tag) != value:
                try:
                    client.set_experiment_tag(identity, tag, value)
                except MlflowException:  # another machine sets it, too
                    if client.get_experiment(identity).tags.get(tag) != value:
                        raise
    return identity


#: Held while MLflow's default is another one: of two threads the later would put back what the earlier had set.
_DEFAULT = threading.RLock()


@contextmanager
def as_default(uri: str) -> Iterator[None]:
    """Set ``uri`` as MLflow's default, without which its SQLite registry finds no logged model; one thread at a time.

    MLflow also writes the default into ``os.environ``, where other trackers and child processes would read it.
    """
    with _DEFAULT:
        before = os.environ.get("MLFLOW_TRACKING_URI", "")
        mlflow.set_tracking_uri(uri)
        try:
            yield
        finally:
            mlflow.set_tracking_uri(before)
            if not before:
                os.environ.pop("MLFLOW_TRACKING_URI", None)


def local_artifacts(home: Path, uri: str) -> Path | None:
    """Return the artifact folder of a run that was created without a server; None for any other."""
    scheme, _, path = uri.partition(":/")
    return home / ARTIFACTS / path.lstrip("/") if scheme == "mlflow-artifacts" else None
