"""The page of an experiment's runs in the MLflow UI: how it looks, and the link by which it opens right.

MLflow 3.17 decides by the address, then by the browser's memory, whether a page is one of training or of GenAI, where
there are no runs; a browser that remembers nothing takes GenAI.  Does not import MLflow.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from pipeline_lib.tracking.addresses import VIEW, runs_link

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
