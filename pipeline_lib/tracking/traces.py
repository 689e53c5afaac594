"""Episodes as traces in MLflow: a root span per episode, below it a span per action; verdict and reward as feedback.

All actions of a round are sampled in one batch, so an action has no duration of its own: a trace begins and ends when
it is recorded.  Importing this module imports MLflow, which takes a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import mlflow
from mlflow import MlflowClient
from mlflow.entities import AssessmentSource, SpanType

from pipeline_lib.tracking.connection import as_default
from pipeline_lib.tracking.runs import TAG_RUN

TAG_EPISODE = "symposium.episode"
TAG_RUN_ID = "symposium.run_id"  # several runs with other settings may have one name

_SOURCE = AssessmentSource(source_type="CODE", source_id="symposium")


def record_traces(
    client: MlflowClient, uri: str, experiment: str, run: str, name: str, episodes: Sequence[Mapping[str, Any]]
) -> None:
    """Record episodes as traces of a run; those that are there stay, and other ones of the run are removed.

    Args:
        client, uri: the tracking store.
        experiment, run: ids in it.
        name: the run's name.
        episodes: as `pipeline_lib.report.traces.traced` returns them.
    """
    # In the background MLflow would send spans after the default store has changed again.
    os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"
    present = {
        trace.info.tags[TAG_EPISODE]: trace.info.trace_id
        for trace in client.search_traces(
            locations=[experiment], filter_string=f"tags.`{TAG_RUN_ID}` = '{run}'", max_results=500, include_spans=False
        )
        if TAG_EPISODE in trace.info.tags
    }
    with as_default(uri):
        tags = {TAG_RUN: name, TAG_RUN_ID: run}
        made = [_record(experiment, tags, episode) for episode in episodes if episode["id"] not in present]
    if made:
        client.link_traces_to_run(made, run)
    wanted = {episode["id"] for episode in episodes}
    if old := [trace for identity, trace in present.items() if identity not in wanted]:
        client.delete_traces(experiment, trace_ids=old)


def _record(experiment: str, tags: Mapping[str, str], episode: Mapping[str, Any]) -> str:
    """Record one episode, and return the id of its trace."""
    now = time.time_ns()
    root = mlflow.start_span_no_context(
        f"{episode['team']}: {episode['problem']}",
        span_type=SpanType.AGENT,
        inputs={"problem": episode["problem"], "sample": episode["sample"]},
        tags={TAG_EPISODE: episode["id"], **tags, **episode["tags"]},
        experiment_id=experiment,
        start_time_ns=now,
    )
    for action in episode["actions"]:
        span = mlflow.start_span_no_context(
            f"turn {action['turn'] + 1}: {action['agent']}",
            span_type=SpanType.LLM,
            parent_span=root,
            inputs=action["prompt"],
            attributes={"tokens": action["tokens"], "log_probability": action["log_probability"]},
            start_time_ns=now,
        )
        span.set_outputs(action["text"])
        span.end(end_time_ns=now)
    for name, value in episode["feedback"].items():
        mlflow.log_feedback(trace_id=root.trace_id, name=name, value=value, source=_SOURCE)
    root.set_outputs({"result": episode["result"], "checks": episode["checks"]})
    root.end(end_time_ns=now)
    return str(root.trace_id)
