"""The tracking store: an MLflow server, or a SQLite database of the project, which is made whole or not at all.

``MLFLOW_TRACKING_URI`` has precedence; otherwise it is ``mlflow.db`` in the given folder, as an absolute path (a
relative one would be another database in every working directory).

MLflow makes its tables by dozens of migrations.  Killed in between, it leaves a part of them, with which no later
process can work.  So they are made in another file, which then gets the database's name.  A part of a database that
was left before is replaced: it holds no run.  Importing this module does not import MLflow.
"""

import json
import logging
import os
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

from pipeline_lib.storage import CorruptFileError

log = logging.getLogger("symposium.tracking")

DATABASE, ARTIFACTS = "mlflow.db", "artifacts"
SQLITE = "sqlite:///"
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


def traces_link(experiment: str, run: str) -> str:
    """Return the address of a run's traces, relative to the MLflow UI."""
    return f"#/experiments/{experiment}/runs/{run}/traces?{_TRAINING}"


def runs_link(experiment: str) -> str:
    """Return the address of the list of an experiment's runs in the view `VIEW`, relative to the MLflow UI."""
    return f"#/experiments/{experiment}/runs?{_TRAINING}&viewStateShareKey={VIEW}"


COLUMNS = (
    "tags.`verdict`",
    "metrics.`test/base`",
    "metrics.`test/selected`",
    "metrics.`test/difference`",
    "metrics.`test/p`",
    "tags.`changes`",
    "tags.`note`",
    "tags.`stage`",
    "tags.`seed`",
)
"""Columns of the list of runs besides name, time and duration, by their names in the MLflow UI."""


def page_tags(experiment: str) -> dict[str, str]:
    """Return the tags that set the UI's mode for model training, the columns and the note of an experiment."""
    view = {"selectedColumns": COLUMNS, "columnOrder": COLUMNS}
    return {
        "mlflow.experimentKind": "custom_model_development",
        f"mlflow.sharedViewState.{VIEW}": json.dumps(view),
        "mlflow.note.content": f"[Runs with their verdicts]({runs_link(experiment)})",
    }


def start_link(base: str, name: str) -> str:
    """Return the list of an experiment's runs in the MLflow UI at ``base``; the experiment is made if need be.

    Raises:
        OSError: the server does not answer as expected.
    """
    asked = urllib.parse.urlencode({"experiment_name": name})
    try:
        identity = _ask(f"{base}/api/2.0/mlflow/experiments/get-by-name?{asked}")["experiment"]["experiment_id"]
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        identity = _ask(f"{base}/api/2.0/mlflow/experiments/create", name=name)["experiment_id"]
        for key, value in page_tags(identity).items():
            _ask(f"{base}/api/2.0/mlflow/experiments/set-experiment-tag", experiment_id=identity, key=key, value=value)
    return f"{base}/{runs_link(identity)}"


def _ask(url: str, **content: str) -> Any:
    """Return the server's answer; a request with content is one that changes something."""
    data = json.dumps(content).encode() if content else None
    with urllib.request.urlopen(
        urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=30.0
    ) as reply:
        return json.load(reply)


def make_database(uri: str, home: Path) -> None:
    """Make the tables of a SQLite database that has none, or only a part of them; the caller holds the `LOCK`.

    Any other tracking store is left alone.  The tables are made in a file of the folder ``home``.

    Raises:
        CorruptFileError: the file is no database any more.
    """
    if not uri.startswith(SQLITE):
        return
    path, new = Path(uri.removeprefix(SQLITE)), home / "mlflow.new"
    if has_run(path):
        return
    import mlflow.store.db.utils  # takes seconds, and who only asks `has_run` does not need it

    if _revision(path) == mlflow.store.db.utils._get_latest_schema_revision():
        return
    for left in (new, new.with_name(f"{new.name}-journal"), path.with_name(f"{path.name}-journal")):
        left.unlink(missing_ok=True)
    if path.exists():
        log.warning("%s had a part of its tables only, left by an interrupt, and no run; it was made anew", path)
    mlflow.MlflowClient(tracking_uri=f"{SQLITE}{new}", registry_uri=f"{SQLITE}{new}").search_experiments(max_results=1)
    new.replace(path)


def has_run(path: Path) -> bool:
    """Return whether a database has a run, and therefore all its tables; raises as `make_database`."""
    return bool(_first(path, "select 1 from runs"))


def _revision(path: Path) -> str:
    """Return the last migration that a database has seen, empty if there is none."""
    return str(_first(path, "select version_num from alembic_version") or "")


def _first(path: Path, query: str) -> object:
    if not path.exists():
        return None
    with closing(sqlite3.connect(path)) as database:
        try:
            return (database.execute(query).fetchone() or [None])[0]
        except sqlite3.OperationalError:  # there is no such table
            return None
        except sqlite3.DatabaseError as error:
            raise CorruptFileError(
                f"{path} is damaged ({error}): move it away; a new one is made, and what waits is sent to it"
            ) from error
