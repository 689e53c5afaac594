"""Checkpoints in MLflow: one logged model each; champions of an environment are versions of a registered model.

A checkpoint is identified by its weights: the same name with other weights is another model.  A model contains
pointers, not the weights.  Importing this module imports MLflow, which takes a second.

Episodes are traces: a root span per episode, below it a span per action; verdict and reward as feedback.  All actions
of a round are sampled in one batch, so an action has no duration of its own: a trace begins and ends when it is
recorded.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
from mlflow import MlflowClient
from mlflow.entities import AssessmentSource, LoggedModelOutput, Metric, SpanType
from mlflow.exceptions import MlflowException

from pipeline_lib.tracking.championship import Contender, decide
from pipeline_lib.tracking.connection import as_default
from pipeline_lib.tracking.operations import RunKey
from pipeline_lib.tracking.runs import SETTLE_S, TAG_CREATED, TAG_RUN, RunRecorder, is_shared, is_young

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
        episodes: as `pipeline_lib.report.viewer.traced` returns them.
    """
    # In the background MLflow would send spans after the default store has changed again.
    os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"
    began, present = time.monotonic(), _traces(client, experiment, run)
    with as_default(uri):
        tags = {TAG_RUN: name, TAG_RUN_ID: run}
        made = [_record(experiment, tags, episode) for episode in episodes if episode["id"] not in present]
    if made:
        client.link_traces_to_run(made, run)
        if is_shared(uri):
            # Another machine that has recorded the same episodes may still be making its traces.
            time.sleep(max(SETTLE_S, 2 * (time.monotonic() - began)))
            present = _traces(client, experiment, run)
    wanted = {episode["id"] for episode in episodes}
    old = [
        trace
        for identity, traces in present.items()
        for trace in (traces[1:] if identity in wanted else traces)  # all machines keep the same one
    ]
    if old:
        client.delete_traces(experiment, trace_ids=old)


def _traces(client: MlflowClient, experiment: str, run: str) -> dict[str, list[str]]:
    """Return the ids of the traces of a run, by episode, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for trace in client.search_traces(
        locations=[experiment], filter_string=f"tags.`{TAG_RUN_ID}` = '{run}'", max_results=500, include_spans=False
    ):
        if TAG_EPISODE in trace.info.tags:
            found[trace.info.tags[TAG_EPISODE]].append(str(trace.info.trace_id))
    return {episode: sorted(traces) for episode, traces in found.items()}


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


CHAMPION = "champion"
TAG_MODEL, TAG_SELECTED, TAG_CHAMPION = "symposium.model", "symposium.selected", "symposium.champion"


class Recorder(RunRecorder):
    """One connection to a tracking server, for operations on runs and on checkpoints.

    A checkpoint is given as the fields of `tracker.Checkpoint`; the first operation that names it creates its model.

    Attributes:
        champions: decision about the champion, by the run that requested it.
    """

    def __init__(self, uri: str, home: Path) -> None:
        super().__init__(uri, home)
        self.champions: dict[RunKey, str] = {}

    def checkpoint(self, key: RunKey, checkpoint: dict[str, Any]) -> None:
        """Create a checkpoint's logged model, an output of the run."""
        with self._model(key, **checkpoint):
            pass

    def checkpoint_metrics(
        self, key: RunKey, checkpoint: dict[str, Any], values: dict[str, float], dataset: tuple[str, str], when: int
    ) -> None:
        """Attach metrics measured on a data set (name, digest); MLflow shows the newest value."""
        _, run = self.ids(key)
        with self._model(key, **checkpoint) as model:
            name, digest = dataset[0], dataset[1][:36]
            measured = sorted(self._client.get_logged_model(model).metrics or [], key=lambda metric: metric.timestamp)
            present = {m.key: m.value for m in measured if (m.dataset_name, m.dataset_digest) == (name, digest)}
            fresh = [
                Metric(metric, value, when, checkpoint["step"], model, name, digest)
                for metric, value in values.items()
                if present.get(metric) != value
            ]
            self._client.log_batch(run, metrics=fresh)

    def selected(self, key: RunKey, checkpoint: dict[str, Any]) -> None:
        """Tag a checkpoint as the selected one of the whole run, and remove the tag from others."""
        experiment, _ = self.ids(key)
        with self._model(key, **checkpoint) as model:
            chosen = f"tags.`{TAG_SELECTED}` = '{key.run}'"
            for other in self._client.search_logged_models([experiment], filter_string=chosen):
                self._client.delete_logged_model_tag(other.model_id, TAG_SELECTED)
            self._client.set_logged_model_tags(model, {TAG_SELECTED: key.run})

    def champion(self, key: RunKey, checkpoint: dict[str, Any], registered: str, tested: dict[str, Any]) -> None:
        """Give a checkpoint the alias ``champion`` if `championship.decide` allows it; tag the run with the reason."""
        contender = Contender(**tested)
        with self._model(key, **checkpoint) as model:
            began, present = time.monotonic(), _champion_version(self._client, registered)
            champion = Contender.from_tags(present.tags) if present else None
            won, why = decide(contender, champion)
            if champion and contender.tests_again(champion):
                self._tag_version(registered, present.version, {TAG_RUN: contender.run, **contender.tags()})
            elif won:
                version, is_new = self._version(registered, model, self.ids(key)[1], contender)
                if is_shared(self._uri):
                    # Who read the champion before this version was there may still be making theirs.
                    time.sleep(max(SETTLE_S, 2 * (time.monotonic() - began)))
                    won, why = self._wins(registered, version, contender)
                if won:
                    self._client.set_registered_model_alias(registered, CHAMPION, version)
                if won or not is_new:
                    self._client.delete_model_version_tag(registered, version, TAG_CREATED)
                else:
                    self._client.delete_model_version(registered, version)
        self.tags(key, {TAG_CHAMPION: why})
        self.champions[key] = why

    def _wins(self, registered: str, version: str, contender: Contender) -> tuple[bool, str]:
        """Return whether a new version wins against the champion and what other machines made meanwhile, and why.

        Machines that wait for each other see the same versions, and so agree.
        """
        versions = self._client.search_model_versions(f"name = '{registered}'")  # before: one that has won is not young
        present = _champion_version(self._client, registered)
        champion = best = Contender.from_tags(present.tags) if present else None
        winner = ""
        for young in sorted((each for each in versions if is_young(each.tags)), key=lambda each: int(each.version)):
            test = Contender.from_tags(young.tags)
            if test and not (best and test.tests_again(best)) and decide(test, best)[0]:
                winner, best = str(young.version), test
        return winner == version, decide(contender, champion if winner == version else best)[1]

    def current_champion(self, registered: str) -> Contender | None:
        """Return the test of the champion of a registered model, or None."""
        version = _champion_version(self._client, registered)
        return Contender.from_tags(version.tags) if version else None

    def traces(self, key: RunKey, episodes: list[dict[str, Any]]) -> None:
        """Record episodes as traces of the run, in place of those that it had."""
        experiment, run = self.ids(key)
        with self._alone():
            record_traces(self._client, self._uri, experiment, run, key.run, episodes)

    @contextmanager
    def _model(self, key: RunKey, name: str, step: int, digest: str, uri: str) -> Iterator[str]:
        """Yield the id of a checkpoint's model under the lock; create the model if it does not exist.

        If machines that share no lock have created several, all keep the one with the lowest id.
        """
        experiment, run = self.ids(key)
        identity = f"{key.run}/{name}/{digest}"
        with self._alone():
            models = self._client.search_logged_models([experiment], filter_string=f"tags.`{TAG_MODEL}` = '{identity}'")
            if models:
                kept, *doubled = sorted(str(model.model_id) for model in models)
                for model in doubled:
                    self._client.delete_logged_model(model)
                yield kept
                return
            pointers = {"symposium.digest": digest, "symposium.uri": uri, "symposium.step": str(step)}
            tags = {TAG_MODEL: identity, TAG_RUN: key.run, **pointers, "mlflow.model.isExternal": "true"}
            model = self._client.create_logged_model(experiment, name, run, tags, model_type="checkpoint").model_id
            self._client.finalize_logged_model(model, "READY")
            self._client.log_outputs(run, [LoggedModelOutput(model_id=model, step=step)])
            yield str(model)

    def _version(self, registered: str, model: str, run: str, contender: Contender) -> tuple[str, bool]:
        """Return the version of a logged model, with its test as tags, and whether it had to be made."""
        if not self._client.search_registered_models(f"name = '{registered}'"):
            try:
                self._client.create_registered_model(registered)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another machine was faster
                    raise
        source = f"models:/{model}"
        tags = {TAG_RUN: contender.run, **contender.tags(), TAG_CREATED: f"{time.time():.1f}"}
        versions = [v for v in self._client.search_model_versions(f"name = '{registered}'") if v.source == source]
        if versions:
            self._tag_version(registered, versions[0].version, tags)
            return str(versions[0].version), False
        with as_default(self._client.tracking_uri):
            made = self._client.create_model_version(registered, source, run, tags, model_id=model)
        return str(made.version), True

    def _tag_version(self, registered: str, version: str, tags: Mapping[str, str]) -> None:
        for name, value in tags.items():
            self._client.set_model_version_tag(registered, version, name, value)


def _champion_version(client: MlflowClient, registered: str) -> Any:
    try:
        return client.get_model_version_by_alias(registered, CHAMPION)
    except MlflowException as error:
        if error.error_code not in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:  # no model, no such alias
            raise
        return None
