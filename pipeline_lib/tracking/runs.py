"""Applies operations on runs to an MLflow server; all of them are idempotent.

Runs are found by tags before they are created, under a lock for all processes of the machine; a metric that already has
a value at a step keeps it.  So a resumed run may log its history again from the start.

Machines that share a server share no lock.  There, who has created a run waits until all who did so at the same moment
can see each other's.  The run that was opened stays, else the one with the lowest id, and those that nobody opened are
removed: also those of a request that MLflow sent again to a server that stood still.  Clocks may differ by a minute.

Methods raise MLflow's exceptions.  Importing this module imports MLflow, which takes a second.
"""

import json
import math
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException

from pipeline_lib.locks import locked
from pipeline_lib.tracking.connection import connect, experiment_id, local_artifacts
from pipeline_lib.tracking.operations import MetricValue, Operation, RunKey
from pipeline_lib.tracking.processes import is_alive, is_gone
from pipeline_lib.tracking.store import LOCK, artifact_link, traces_link

TAG_RUN, TAG_SETTINGS, TAG_PART = "symposium.run", "symposium.settings", "symposium.part"
TAG_PARENT = "mlflow.parentRunId"
TAG_CREATED = "symposium.created"
"""When a run, or a version that contends for champion, was created, in seconds since 1970."""
SETTLE_S = 1.5
"""How long a run takes at most from its creation until all see it."""
_YOUNG_S = 60.0
_NO_PART = "-"
_LONGEST_PARAM = 6000
_LONGEST_TAG = 5000


class RunRecorder:
    """One connection to a tracking server.

    ``home`` is the folder of the lock and, without a server, of database and artifacts.
    """

    def __init__(self, uri: str, home: Path) -> None:
        self._uri, self._home = uri, home
        self._alone = partial(locked, home / LOCK)  # for code that searches for an object and creates a missing one
        self._client = connect(uri, home)
        self._experiments: dict[str, str] = {}
        self._runs: dict[RunKey, str] = {}
        self._known_steps: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))

    def apply(self, operation: Operation) -> None:
        """Apply one operation; raises AttributeError for an unknown kind."""
        getattr(self, operation.kind)(operation.key, **operation.fields)

    def ping(self) -> None:
        """Raise if the server does not answer."""
        self._client.search_experiments(max_results=1)

    def ids(self, key: RunKey, process: str = "", when: int | None = None) -> tuple[str, str]:
        """Return experiment id and run id; a missing experiment, parent or run is created.

        The created run is that of ``process``, and began at ``when`` (milliseconds since 1970; None: now).
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
            process: the process that works on it, which may differ from this one.  If it has ended, the operation is
                late and others may be working on the run: the state does not change.
            when: time in milliseconds since 1970.
            conducted: whether that process owns the run (see `states`); journals of earlier versions have this name.
            above: key of the run below which this one is shown, if that is not its parent.
        """
        _, run = self.ids(key, process, when)
        if above:
            tags = {**tags, TAG_PARENT: self.ids(RunKey(**above), process, when)[1]}
        running = is_running(process)
        if running:
            tags = {**tags, TAG_PROCESS: process, TAG_OWNED: str(conducted)}
        with self._alone():  # MLflow rejects a parameter that another process has set in the meantime
            present = self._client.get_run(run).data.params
            self._client.log_batch(
                run,
                params=[Param(name, value[:_LONGEST_PARAM]) for name, value in params.items() if name not in present],
                tags=_tags(tags),
            )
            for opened in {run, self.ids(key.parent)[1]} if running else ():
                self._client.update_run(opened, status="RUNNING")
        if running:  # otherwise its final state follows in a later operation
            self._update_states(key)

    def close(self, key: RunKey, status: str, process: str, when: int) -> None:
        """Set the final state of a run (FINISHED, FAILED, KILLED) at ``when`` (milliseconds), and derive its parent's.

        A report of ``process`` is ignored if another process is now working on the run.
        """
        _, run = self.ids(key, process)
        present = self._client.get_run(run).data.tags.get(TAG_PROCESS, "")
        if present == process or not is_running(present):
            self._client.set_terminated(run, status=status, end_time=when)
            if status == "FINISHED" and not key.part:
                self._end_lost(key)
        self._update_states(key, ended=process)

    def _end_lost(self, key: RunKey) -> None:
        """Mark attempts at a part as KILLED that run on no machine that is known, and that another one has finished."""
        experiment, whole = self.ids(key)
        below = f"tags.`{TAG_PARENT}` = '{whole}' AND attributes.status = "
        with self._alone():
            for lost in self._client.search_runs([experiment], f"{below}'RUNNING'"):
                same = f"{below}'FINISHED' AND attributes.run_name = '{lost.info.run_name}'"
                if not is_alive(lost.data.tags.get(TAG_PROCESS, "")) and self._client.search_runs([experiment], same):
                    self._client.set_terminated(lost.info.run_id, status="KILLED")

    def tags(self, key: RunKey, tags: dict[str, str]) -> None:
        """Set tags."""
        self._client.log_batch(self.ids(key)[1], tags=_tags(tags))

    def description(self, key: RunKey, text: str, artifact: str) -> None:
        """Set the text at the top of the run's page: Markdown, and links to one of its artifacts and to its traces."""
        ids = self.ids(key)
        links = f"[{artifact}]({artifact_link(*ids, artifact)}), [episodes as traces]({traces_link(*ids)})"
        self.tags(key, {"mlflow.note.content": f"{text}\n\n{links}"})

    def metrics(self, key: RunKey, values: list[MetricValue]) -> None:
        """Log metrics; a metric that already has a value at a step keeps it."""
        _, run = self.ids(key)
        logged_steps = self._steps(run)
        fresh: dict[tuple[str, int], Metric] = {}
        for name, number, when, step in values:
            if step not in logged_steps[name]:
                fresh.setdefault((name, step), Metric(name, number, when, step))
        self._client.log_batch(run, metrics=list(fresh.values()))
        for name, step in fresh:  # after the request, because a failed one is repeated
            logged_steps[name].add(step)

    def summary(self, key: RunKey, values: dict[str, float], when: int, gone: Sequence[str] = ()) -> None:
        """Log single numbers; MLflow shows the newest value, and NaN where an earlier one is ``gone``."""
        _, run = self.ids(key)
        present = self._client.get_run(run).data.metrics
        fresh = [Metric(name, value, when, 0) for name, value in values.items() if present.get(name) != value]
        stale = [name for name in gone if not math.isnan(present.get(name, math.nan))]
        self._client.log_batch(run, metrics=[*fresh, *(Metric(name, math.nan, when, 0) for name in stale)])

    def dataset(self, key: RunKey, name: str, digest: str, source: dict[str, Any], context: str) -> None:
        """Log a data set as input of a run; its digest is cut to MLflow's 36 characters."""
        entity = Dataset(name=name, digest=digest[:36], source_type="dvc", source=json.dumps(source))
        inputs = [DatasetInput(dataset=entity, tags=[InputTag("mlflow.data.context", context)])]
        self._client.log_inputs(self.ids(key)[1], datasets=inputs)

    def artifact(self, key: RunKey, path: str) -> None:
        """Copy a file, or all files of a folder, to the run's artifacts; raises OSError if it no longer exists."""
        run, source = self.ids(key)[1], Path(path)
        target = local_artifacts(self._home, self._client.get_run(run).info.artifact_uri)
        if target is None or self._uri.startswith("http"):
            (self._client.log_artifacts if source.is_dir() else self._client.log_artifact)(run, path)
        elif source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)

    def update_all_states(self) -> None:
        """Update the states of all runs that are RUNNING, from the processes that still run."""
        experiments = {str(found.experiment_id): found.name for found in self._client.search_experiments()}
        running = self._client.search_runs(list(experiments), filter_string="attributes.status = 'RUNNING'")
        wholes = {
            (experiments[found.info.experiment_id], tags[TAG_RUN], tags[TAG_SETTINGS])
            for found in running
            if TAG_SETTINGS in (tags := found.data.tags)  # other runs are not this project's
        }
        for experiment, run, settings in wholes:
            self._update_states(RunKey(experiment, run, settings, "", run))

    def _update_states(self, key: RunKey, ended: str = "") -> None:
        """Mark runs whose process has ended as KILLED, and end the parent if no process works on it any more.

        ``key`` is any run of the whole; ``ended`` a process that has just reported its end.  All parts are read only
        when the whole has ended: there may be hundreds.
        """
        experiment, parent = self.ids(key.parent)
        below = f"tags.`{TAG_PARENT}` = '{parent}'"
        with self._alone():
            whole = self._client.get_run(parent)
            tags = dict(whole.data.tags)
            if ended == tags.get(TAG_PROCESS) and not is_owned(tags):  # a single stage that has finished but still runs
                tags[TAG_PROCESS] = ""
                self._client.set_tag(parent, TAG_PROCESS, "")
            works = is_running(tags.get(TAG_PROCESS, ""))
            for part in self._client.search_runs([experiment], f"{below} AND attributes.status = 'RUNNING'"):
                if is_running(part.data.tags.get(TAG_PROCESS, "")):
                    works = True
                else:
                    self._client.set_terminated(part.info.run_id, status="KILLED")
            if works or whole.info.status != "RUNNING":
                return
            parts: dict[str, str] = {}
            ends: list[int] = []
            for part in self._client.search_runs([experiment], below, order_by=["attributes.start_time ASC"]):
                parts[part.info.run_name] = part.info.status  # a part that was run again counts by its last attempt
                ends.append(part.info.end_time or 0)
            state = state_of_whole(is_owned(tags), set(parts.values()))
            self._client.set_terminated(parent, status=state, end_time=max(ends, default=0) or None)

    def _find_or_create(self, key: RunKey, experiment: str, parent: str, process: str, when: int | None) -> str:
        identity = {TAG_RUN: key.run, TAG_SETTINGS: key.settings, TAG_PART: key.part or _NO_PART}
        wanted = " AND ".join(f"tags.`{name}` = '{value}'" for name, value in identity.items())
        with self._alone():
            began = time.monotonic()
            found = list(self._client.search_runs([experiment], wanted, order_by=["attributes.start_time ASC"]))
            if not found:
                tags = {**identity, TAG_PROCESS: process, TAG_CREATED: f"{time.time():.1f}"}
                tags |= {TAG_PARENT: parent} if parent else {}
                found = [self._client.create_run(experiment, when, tags, key.name)]
        if is_shared(self._uri) and any(is_young(run.data.tags) for run in found):
            # Who asked before this one was made may still be making theirs, as slowly as this server is.
            time.sleep(max(SETTLE_S, 2 * (time.monotonic() - began)))
            found = sorted(
                self._client.search_runs([experiment], wanted),
                key=lambda run: (TAG_OWNED not in run.data.tags, str(run.info.run_id)),
            )
            for doubled in found[1:]:
                if TAG_OWNED not in doubled.data.tags:
                    with suppress(MlflowException):  # another machine was faster
                        self._client.delete_run(doubled.info.run_id)
        return str(found[0].info.run_id)

    def _steps(self, run: str) -> dict[str, set[int]]:
        """Return the steps that already have a value, by metric; one request per metric that another has logged."""
        logged_steps = self._known_steps[run]
        for newest in self._client.get_run(run).data.to_proto().metrics:
            if newest.step not in logged_steps[newest.key]:
                logged_steps[newest.key] = {each.step for each in self._client.get_metric_history(run, newest.key)}
        return logged_steps


def is_shared(uri: str) -> bool:
    """Return whether others, with another lock, may write to the same place: every server, also one on this machine."""
    return uri.startswith("http")


def is_young(tags: Mapping[str, str]) -> bool:
    """Return whether what has these tags was created within the last minute, by clocks that differ little."""
    return abs(time.time() - float(tags.get(TAG_CREATED, 0.0))) < _YOUNG_S


def _tags(tags: dict[str, str]) -> list[RunTag]:
    return [RunTag(name, value[:_LONGEST_TAG]) for name, value in tags.items()]


TAG_PROCESS = "symposium.process"
"""Of every run: the process that works, or worked, on it."""
TAG_OWNED = "symposium.conducted"
"""Of a parent: whether that process is its owner; MLflow stores this name."""


def is_running(process: str) -> bool:
    """Return whether a process is named and not known to have ended."""
    return bool(process) and not is_gone(process)


def is_owned(tags: Mapping[str, str]) -> bool:
    """Return whether a parent has an owner, by its tags."""
    return tags.get(TAG_OWNED) == "True"


def state_of_whole(owned: bool, parts: Set[str]) -> str:
    """Return the state of a parent run on which nobody works, and without a reported end (FINISHED, FAILED or KILLED).

    It follows from whether it has an owner and from the states of its parts, the last attempt at each.
    """
    if owned or not parts:  # its process has ended without a report
        return "KILLED"
    return next((state for state in ("FAILED", "KILLED") if state in parts), "FINISHED")
