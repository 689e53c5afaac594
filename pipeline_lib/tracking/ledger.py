"""Writes operations to an MLflow server, each so that doing it twice changes nothing.

Runs, logged models and registered versions are found by tags before they are made, under a lock that all processes of
the machine share; a metric that already has a value at a step keeps it.  A resumed run may therefore log its history
again from the start.  Two machines that open the same run at the same moment are not kept apart.

Methods raise what MLflow raises; `destination.is_temporary` tells whether trying again later can help.  Importing
this module imports MLflow, which takes a second.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, Metric, Param, RunTag

from pipeline_lib.locks import locked
from pipeline_lib.tracking.addresses import LOCK
from pipeline_lib.tracking.championship import Contender
from pipeline_lib.tracking.destination import as_default, connect, experiment_id
from pipeline_lib.tracking.operations import MetricValue, Operation, RunKey
from pipeline_lib.tracking.processes import is_gone
from pipeline_lib.tracking.registry import crown
from pipeline_lib.tracking.states import TAG_CONDUCTOR, TAG_ENDED, TAG_PROCESS, TAG_STARTER, state_of_whole

TAG_RUN, TAG_PART, TAG_MODEL = "symposium.run", "symposium.part", "symposium.model"
TAG_DIGEST, TAG_WEIGHTS = "symposium.digest", "symposium.model.weights"
TAG_NOT_RECORDED = "symposium.not_recorded"
TAG_SELECTED, TAG_CHAMPION = "symposium.selected", "symposium.champion"
_LONGEST_PARAM = 6000
_LONGEST_TAG = 5000


class Ledger:
    """One connection to a tracking server.

    Args:
        uri: address of the server or database.
        home: folder of the lock and, without a server, of database and artifacts.
    """

    def __init__(self, uri: str, home: Path) -> None:
        self.uri = uri
        self._home = home
        self._client = connect(uri, home)
        self._experiments: dict[str, str] = {}
        self._runs: dict[tuple[str, str, str], str] = {}
        self._known: dict[str, dict[str, set[int]]] = {}
        self.champions: dict[RunKey, str] = {}  # what was decided about the champion, by the run that asked

    def apply(self, operation: Operation) -> None:
        """Carry out one operation; AttributeError for a kind that does not exist."""
        getattr(self, operation.kind)(operation.key, **operation.fields)

    def ping(self) -> None:
        """Raise if the server does not answer."""
        self._client.search_experiments(max_results=1)

    def ids(self, key: RunKey, process: str = "") -> tuple[str, str]:
        """Return experiment id and run id; experiment, parent and run are made if need be, then with the process."""
        experiment = self._experiment(key)
        place = (key.experiment, key.run, key.part)
        if place not in self._runs:
            whole = RunKey(key.experiment, key.run, "", key.run)
            parent = self.ids(whole, process)[1] if key.part else ""
            self._runs[place] = self._find_or_create(key, experiment, parent, process)
        return experiment, self._runs[place]

    def open(
        self,
        key: RunKey,
        tags: dict[str, str],
        params: dict[str, str],
        process: str = "",
        conductor: str = "",
        starter: str = "",
    ) -> None:
        """Open a run, or join it again: tags are replaced, params only added (MLflow keeps the first value).

        Args:
            key: which run.
            tags: its tags.
            params: its parameters.
            process: the process that opened it and does its work, which need not be the one that tells us.
            conductor: for a parent, the process that will say how the whole ended; empty: there is none.
            starter: for a parent, a process that starts one part after the other and says nothing; empty: none known.
        """
        experiment, run = self.ids(key, process)
        with locked(self._home / LOCK):  # MLflow refuses a parameter that another process has named meanwhile
            before = self._client.get_run(run).data
            present, tags = before.params, {**tags, TAG_PROCESS: process}
            if key.part:
                self._client.update_run(run, status="RUNNING")
                if before.tags.get(TAG_NOT_RECORDED):  # all of it is told again
                    tags[TAG_NOT_RECORDED] = ""
            elif not (conductor and is_gone(conductor)):  # else it is told late, and others may be at work by now
                again = not conductor or before.tags.get(TAG_CONDUCTOR) != conductor
                tags = {**tags, TAG_CONDUCTOR: conductor, TAG_STARTER: starter, **({TAG_ENDED: ""} if again else {})}
            self._client.log_batch(
                run,
                params=[Param(name, value[:_LONGEST_PARAM]) for name, value in params.items() if name not in present],
                tags=[RunTag(name, value[:_LONGEST_TAG]) for name, value in tags.items()],
            )
        if key.part or conductor or starter:
            self._settle(experiment, key)

    def close(self, key: RunKey, status: str, conductor: str = "") -> None:
        """Give a run its final status (FINISHED, FAILED, KILLED), and its parent the one that follows from all.

        A parent's conductor, which says how the whole ended, is not heard when another one is at work by now.
        """
        experiment, run = self.ids(key)
        if key.part:
            self._client.set_terminated(run, status=status)
        elif self._client.get_run(run).data.tags.get(TAG_CONDUCTOR) == conductor:
            self._client.set_tag(run, TAG_ENDED, status)
        self._settle(experiment, key)

    def tags(self, key: RunKey, tags: dict[str, str]) -> None:
        """Set tags."""
        self._client.log_batch(self.ids(key)[1], tags=[RunTag(k, v[:_LONGEST_TAG]) for k, v in tags.items()])

    def not_recorded(self, key: RunKey, told: Sequence[str]) -> None:
        """Tag a run with what could not be recorded of it, and why."""
        self.tags(key, {TAG_NOT_RECORDED: "; ".join(told)})

    def metrics(self, key: RunKey, values: list[MetricValue]) -> None:
        """Log metrics; a value for a metric and step that already has one is left out."""
        _, run = self.ids(key)
        known = self._steps(run, {value[0] for value in values})
        fresh: dict[tuple[str, int], Metric] = {}
        for name, number, when, step in values:
            if step not in known[name]:
                fresh.setdefault((name, step), Metric(name, number, when, step))
        self._client.log_batch(run, metrics=list(fresh.values()))
        for name, step in fresh:  # only now: a request that failed is sent again
            known[name].add(step)

    def dataset(self, key: RunKey, name: str, digest: str, source: dict[str, Any], context: str) -> None:
        """Name a data set as input of a run; its digest is cut to the 36 characters that MLflow keeps."""
        entity = Dataset(name=name, digest=digest[:36], source_type="dvc", source=json.dumps(source))
        inputs = [DatasetInput(dataset=entity, tags=[InputTag("mlflow.data.context", context)])]
        self._client.log_inputs(self.ids(key)[1], datasets=inputs)

    def model(self, key: RunKey, name: str, step: int, tags: dict[str, str]) -> None:
        """Make a checkpoint known as a logged model of the run: pointers in tags, no bytes.

        A checkpoint of the same name with other weights is another model, and the one that is meant by the name from
        now on: its weights have taken the others' place, which have no name any more.
        """
        experiment, run = self.ids(key)
        mine = f"{key.run}/{name}"
        weights = f"{mine}/{tags.get(TAG_DIGEST, '')}"
        with as_default(self.uri, self._home):
            present = self._models(experiment, TAG_MODEL, mine)
            if len(present) == 1 and present[0].tags.get(TAG_WEIGHTS) == weights:
                return
            known = self._models(experiment, TAG_WEIGHTS, weights)
            tags = {**tags, TAG_RUN: key.run, TAG_MODEL: mine, TAG_WEIGHTS: weights}
            model = known[0].model_id if known else self._create_model(experiment, run, name, tags)
            if known:
                self._client.set_logged_model_tags(model, {TAG_MODEL: mine})
            for other in present:
                if other.model_id != model:
                    self._client.set_logged_model_tags(other.model_id, {TAG_MODEL: f"{mine}, before"})
                    if TAG_SELECTED in other.tags:
                        self._client.delete_logged_model_tag(other.model_id, TAG_SELECTED)
        if not known:
            self._client.log_outputs(run, [LoggedModelOutput(model_id=model, step=step)])

    def model_metrics(
        self, key: RunKey, name: str, step: int, values: dict[str, float], dataset: tuple[str, str], when: int
    ) -> None:
        """Attach metrics, measured by the run on a data set (name, digest), to a checkpoint made known before.

        What was measured before stays; where it was another value, the newest is what MLflow shows.
        """
        experiment, run = self.ids(key)
        model = self._known_model(experiment, key.run, name)
        data_name, data_digest = dataset[0], dataset[1][:36]
        measured = sorted(self._client.get_logged_model(model).metrics or [], key=lambda metric: metric.timestamp)
        present = {
            (metric.key, metric.step): metric.value
            for metric in measured
            if (metric.dataset_name, metric.dataset_digest) == (data_name, data_digest)
        }
        fresh = [
            Metric(k, v, when, step, model_id=model, dataset_name=data_name, dataset_digest=data_digest)
            for k, v in values.items()
            if present.get((k, step)) != v
        ]
        self._client.log_batch(run, metrics=fresh)

    def selected(self, key: RunKey, name: str) -> None:
        """Tag a checkpoint made known before as the one its run selected; no other of the run has the tag then."""
        experiment, _ = self.ids(key)
        model = self._known_model(experiment, key.run, name)
        chosen = f"tags.`{TAG_SELECTED}` = '{key.run}'"
        for other in self._client.search_logged_models([experiment], filter_string=chosen):
            if other.model_id != model:
                self._client.delete_logged_model_tag(other.model_id, TAG_SELECTED)
        self._client.set_logged_model_tags(model, {TAG_SELECTED: key.run})

    def champion(self, key: RunKey, name: str, registered: str, tested: dict[str, Any]) -> None:
        """Give a checkpoint made known before the alias ``champion``, if it has won it; tag the run with the reason."""
        experiment, run = self.ids(key)
        with as_default(self.uri, self._home):
            model = self._known_model(experiment, key.run, name)
            contender = Contender(**tested)
            present = self._client.get_logged_model(model).tags.get(TAG_DIGEST, "")
            if contender.weights not in ("", present):
                raise LookupError(f"{name} of run {key.run} has other weights by now than those that were tested")
            why = crown(self._client, model, run, registered, contender)
        self.tags(key, {TAG_CHAMPION: why})
        self.champions[key] = why

    def artifact(self, key: RunKey, path: str, folder: str) -> None:
        """Copy a file, or all files of a folder, to the run's artifacts; what is gone meanwhile is an OSError."""
        run = self.ids(key)[1]
        if Path(path).is_dir():
            self._client.log_artifacts(run, path, folder or None)
        else:
            self._client.log_artifact(run, path, folder or None)

    def _experiment(self, key: RunKey) -> str:
        if key.experiment not in self._experiments:
            self._experiments[key.experiment] = experiment_id(self._client, self.uri, self._home, key.experiment)
        return self._experiments[key.experiment]

    def _find_or_create(self, key: RunKey, experiment: str, parent: str, process: str) -> str:
        with locked(self._home / LOCK):
            found = self._client.search_runs(
                [experiment],
                filter_string=f"tags.`{TAG_RUN}` = '{key.run}' AND tags.`{TAG_PART}` = '{key.part or '-'}'",
                order_by=["attributes.start_time ASC"],
                max_results=1,
            )
            if found:
                return str(found[0].info.run_id)
            tags = {TAG_RUN: key.run, TAG_PART: key.part or "-", TAG_PROCESS: process}
            if parent:
                tags["mlflow.parentRunId"] = parent
            run = str(self._client.create_run(experiment, tags=tags, run_name=key.name).info.run_id)
            self._known[run] = defaultdict(set)  # new: there is no history to look up
            return run

    def settle_all(self) -> None:
        """Bring the states of all runs that are shown as RUNNING up to date with the processes that are there."""
        experiments = {str(found.experiment_id): found.name for found in self._client.search_experiments()}
        running = self._client.search_runs(list(experiments), filter_string="attributes.status = 'RUNNING'")
        for experiment, run in {(found.info.experiment_id, found.data.tags.get(TAG_RUN, "")) for found in running}:
            if run:
                self._settle(experiment, RunKey(experiments[experiment], run, "", run))

    def _settle(self, experiment: str, key: RunKey) -> None:
        """Mark runs whose process is gone as KILLED, and set the parent's status from what is known of the whole."""
        parent = self.ids(RunKey(key.experiment, key.run, "", key.run))[1]
        with locked(self._home / LOCK):
            children = self._client.search_runs(
                [experiment],
                filter_string=f"tags.`mlflow.parentRunId` = '{parent}'",
                order_by=["attributes.start_time ASC"],
            )
            latest: dict[str, str] = {}
            for child in children:
                status = child.info.status
                if status == "RUNNING" and is_gone(child.data.tags.get(TAG_PROCESS, "")):
                    status = "KILLED"
                    self._client.set_terminated(child.info.run_id, status=status)
                latest[child.info.run_name] = status  # a part that was run again counts by its last attempt
            present = self._client.get_run(parent)
            whole = state_of_whole(present.data.tags, set(latest.values()))
            if whole == "RUNNING":
                self._client.update_run(parent, status=whole)
            elif present.info.status != whole:
                self._client.set_terminated(parent, status=whole)

    def _steps(self, run: str, names: set[str]) -> dict[str, set[int]]:
        """Return the steps that already have a value, by metric; asks the server once for each metric of a run."""
        known = self._known.get(run)
        if known is None:
            logged = self._client.get_run(run)
            known = self._known[run] = defaultdict(set)
            for name in logged.data.metrics:
                known[name] = {metric.step for metric in self._client.get_metric_history(run, name)}
        return known

    def _models(self, experiment: str, tag: str, value: str) -> list[Any]:
        """Return the logged models with this value of a tag, the newest first."""
        found = self._client.search_logged_models([experiment], filter_string=f"tags.`{tag}` = '{value}'")
        return sorted(found, key=lambda model: int(model.creation_timestamp), reverse=True)

    def _known_model(self, experiment: str, run: str, name: str) -> str:
        found = self._models(experiment, TAG_MODEL, f"{run}/{name}")
        if not found:
            raise LookupError(f"no logged model {name} in run {run}")
        return str(found[0].model_id)

    def _create_model(self, experiment: str, run: str, name: str, tags: dict[str, str]) -> str:
        model = mlflow.create_external_model(
            name=name,
            source_run_id=run,
            experiment_id=experiment,
            model_type="checkpoint",
            tags=tags,
        )
        return str(model.model_id)
