"""Addresses of the tracking store: an MLflow server, or a SQLite file of the project.  Does not import MLflow.

``MLFLOW_TRACKING_URI`` has precedence; otherwise it is ``mlflow.db`` in the given folder, as an absolute path (a
relative one would be another database in every working directory).
"""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

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
