"""Writes operations on runs to an MLflow server, each so that doing it twice changes nothing.

Runs are found by tags before they are made, under a lock that all processes of the machine share; a metric that
already has a value at a step keeps it.  A resumed run may therefore log its history again from the start.  Two
machines that open the same run at the same moment are not kept apart.

Methods raise what MLflow raises.  Importing this module imports MLflow, which takes a second.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

from pipeline_lib.locks import locked
from pipeline_lib.tracking.addresses import LOCK, artifact_link
from pipeline_lib.tracking.connection import connect, experiment_id, local_artifacts
from pipeline_lib.tracking.operations import MetricValue, Operation, RunKey
from pipeline_lib.tracking.states import TAG_CONDUCTED, TAG_PROCESS, is_at_work, is_conducted, state_of_whole

TAG_RUN, TAG_SETTINGS, TAG_PART = "symposium.run", "symposium.settings", "symposium.part"
TAG_PARENT = "mlflow.parentRunId"
_NO_PART = "-"
_LONGEST_PARAM = 6000
_LONGEST_TAG = 5000


class RunRecorder:
    """One connection to a tracking server.

    Args:
        uri: address of the server or database.
        home: folder of the lock and, without a server, of database and artifacts.
    """

    def __init__(self, uri: str, home: Path) -> None:
        self._uri, self._home = uri, home
        self._alone = partial(locked, home / LOCK)  # what looks for something, and makes it if it is not there
        self._client = connect(uri, home)
        self._experiments: dict[str, str] = {}
        self._runs: dict[RunKey, str] = {}
        self._known_steps: dict[str, dict[str, set[int]]] = {}

    def apply(self, operation: Operation) -> None:
        """Carry out one operation; AttributeError for a kind that does not exist."""
        getattr(self, operation.kind)(operation.key, **operation.fields)

    def ping(self) -> None:
        """Raise if the server does not answer."""
        self._client.search_experiments(max_results=1)

    def ids(self, key: RunKey, process: str = "", when: int | None = None) -> tuple[str, str]:
        """Return experiment id and run id; experiment, parent and run are made if need be.

        Args:
            key: which run.
            process: who is at work on a run that is made.
            when: when that began, in milliseconds since 1970; None: now.
        """
        if key.experiment not in self._experiments:
            self._experiments[key.experiment] = experiment_id(self._client, self._uri, self._home, key.experiment)
        experiment = self._experiments[key.experiment]
        if key not in self._runs:
            parent = self.ids(key.parent, process, when)[1] if key.part else ""
            self._runs[key] = self._find_or_create(key, experiment, parent, process, when)
        return experiment, self._runs[key]

    def open(
        self,
        key: RunKey,
        tags: dict[str, str],
        params: dict[str, str],
        process: str,
        when: int,
        conducted: bool = False,
        above: dict[str, str] | None = None,
    ) -> None:
        """Open a run, or join it again: tags are replaced, parameters only added (MLflow keeps the first value).

        Args:
            key: which run.
            tags: its tags.
            params: its parameters.
            process: the process that is at work on it, which need not be the one that tells us.  When it is gone by
                now, we are told late, and others may be at work: the state stays as it is.
            when: time in milliseconds since 1970.
            conducted: whether that process will say how the run ended.
            above: key of the run below which this one is shown, where that is not its parent.
        """
        _, run = self.ids(key, process, when)
        if above:
            tags = {**tags, TAG_PARENT: self.ids(RunKey(**above), process, when)[1]}
        at_work = is_at_work(process)
        if at_work:
            tags = {**tags, TAG_PROCESS: process, TAG_CONDUCTED: str(conducted)}
        with self._alone():  # MLflow refuses a parameter that another process has named meanwhile
            present = self._client.get_run(run).data.params
            self._client.log_batch(
                run,
                params=[Param(name, value[:_LONGEST_PARAM]) for name, value in params.items() if name not in present],
                tags=_tags(tags),
            )
            for opened in {run, self.ids(key.parent)[1]} if at_work else ():
                self._client.update_run(opened, status="RUNNING")
        if at_work:  # else how it ended comes later
            self._settle(key)

    def close(self, key: RunKey, status: str, process: str, when: int) -> None:
        """Give a run its final state (FINISHED, FAILED, KILLED), and its parent the one that follows from all.

        Args:
            key: which run.
            status: its state.
            process: who says so; not heard when another process is at work on the run by now.
            when: time in milliseconds since 1970.
        """
        _, run = self.ids(key, process)
        present = self._client.get_run(run).data.tags.get(TAG_PROCESS, "")
        if present == process or not is_at_work(present):
            self._client.set_terminated(run, status=status, end_time=when)
        self._settle(key, ended=process)

    def tags(self, key: RunKey, tags: dict[str, str]) -> None:
        """Set tags."""
        self._client.log_batch(self.ids(key)[1], tags=_tags(tags))

    def description(self, key: RunKey, text: str, artifact: str) -> None:
        """Set what the run's page says at its top: Markdown, and a link to one of its artifacts."""
        link = f"[{artifact}]({artifact_link(*self.ids(key), artifact)})"
        self.tags(key, {"mlflow.note.content": f"{text}\n\n{link}"})

    def metrics(self, key: RunKey, values: list[MetricValue]) -> None:
        """Log metrics; a value for a metric and step that already has one is left out."""
        _, run = self.ids(key)
        known = self._steps(run)
        fresh: dict[tuple[str, int], Metric] = {}
        for name, number, when, step in values:
            if step not in known[name]:
                fresh.setdefault((name, step), Metric(name, number, when, step))
        self._client.log_batch(run, metrics=list(fresh.values()))
        for name, step in fresh:  # only now: a request that failed is sent again
            known[name].add(step)

    def summary(self, key: RunKey, values: dict[str, float], when: int) -> None:
        """Log single numbers; where there was another value, the newest is what MLflow shows."""
        _, run = self.ids(key)
        present = self._client.get_run(run).data.metrics
        fresh = [Metric(name, value, when, 0) for name, value in values.items() if present.get(name) != value]
        self._client.log_batch(run, metrics=fresh)

    def dataset(self, key: RunKey, name: str, digest: str, source: dict[str, Any], context: str) -> None:
        """Name a data set as input of a run; its digest is cut to the 36 characters that MLflow keeps."""
        entity = Dataset(name=name, digest=digest[:36], source_type="dvc", source=json.dumps(source))
        inputs = [DatasetInput(dataset=entity, tags=[InputTag("mlflow.data.context", context)])]
        self._client.log_inputs(self.ids(key)[1], datasets=inputs)

    def artifact(self, key: RunKey, path: str) -> None:
        """Copy a file, or all files of a folder, to the run's artifacts; what is gone meanwhile is an OSError."""
        run, source = self.ids(key)[1], Path(path)
        target = local_artifacts(self._home, self._client.get_run(run).info.artifact_uri)
        if target is None or self._uri.startswith("http"):
            (self._client.log_artifacts if source.is_dir() else self._client.log_artifact)(run, path)
        elif source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)

    def settle_all(self) -> None:
        """Bring the states of all runs that are shown as RUNNING up to date with the processes that are there."""
        experiments = {str(found.experiment_id): found.name for found in self._client.search_experiments()}
        running = self._client.search_runs(list(experiments), filter_string="attributes.status = 'RUNNING'")
        wholes = {
            (experiments[found.info.experiment_id], tags[TAG_RUN], tags[TAG_SETTINGS])
            for found in running
            if TAG_SETTINGS in (tags := found.data.tags)  # others are not ours
        }
        for experiment, run, settings in wholes:
            self._settle(RunKey(experiment, run, settings, "", run))

    def _settle(self, key: RunKey, ended: str = "") -> None:
        """Mark runs whose process is gone as KILLED, and end the parent if nobody is at work on it any more.

        Args:
            key: any run of the whole.
            ended: a process that has just said that it is done.
        """
        experiment, parent = self.ids(key.parent)
        with self._alone():
            below = f"tags.`{TAG_PARENT}` = '{parent}'"
            parts: dict[str, str] = {}
            ends: list[int] = []
            for part in self._client.search_runs([experiment], below, order_by=["attributes.start_time ASC"]):
                status = part.info.status
                if status == "RUNNING" and not is_at_work(part.data.tags.get(TAG_PROCESS, "")):
                    status = "KILLED"
                    self._client.set_terminated(part.info.run_id, status=status)
                parts[part.info.run_name] = status  # a part that was run again counts by its last attempt
                ends.append(part.info.end_time or 0)
            whole = self._client.get_run(parent)
            tags = dict(whole.data.tags)
            if ended == tags.get(TAG_PROCESS) and not is_conducted(tags):  # a stage by hand, done but still there
                tags[TAG_PROCESS] = ""
                self._client.set_tag(parent, TAG_PROCESS, "")
            state = state_of_whole(tags, set(parts.values()))
            if whole.info.status == "RUNNING" != state:
                self._client.set_terminated(parent, status=state, end_time=max(ends, default=0) or None)

    def _find_or_create(self, key: RunKey, experiment: str, parent: str, process: str, when: int | None) -> str:
        identity = {TAG_RUN: key.run, TAG_SETTINGS: key.settings, TAG_PART: key.part or _NO_PART}
        with self._alone():
            found = self._client.search_runs(
                [experiment],
                filter_string=" AND ".join(f"tags.`{name}` = '{value}'" for name, value in identity.items()),
                order_by=["attributes.start_time ASC"],
                max_results=1,
            )
            if found:
                return str(found[0].info.run_id)
            tags = {**identity, TAG_PROCESS: process, **({TAG_PARENT: parent} if parent else {})}
            run = str(self._client.create_run(experiment, when, tags, key.name).info.run_id)
            self._known_steps[run] = defaultdict(set)  # new: there is no history to look up
            return run

    def _steps(self, run: str) -> dict[str, set[int]]:
        """Return the steps that already have a value, by metric; asks the server once for each metric of a run."""
        if run not in self._known_steps:
            known: dict[str, set[int]] = defaultdict(set)
            for name in self._client.get_run(run).data.metrics:
                known[name] = {metric.step for metric in self._client.get_metric_history(run, name)}
            self._known_steps[run] = known
        return self._known_steps[run]


def _tags(tags: dict[str, str]) -> list[RunTag]:
    return [RunTag(name, value[:_LONGEST_TAG]) for name, value in tags.items()]
