"""What the rest of the project calls to record what happens: a parent run, and a child run per stage and seed.

Promises: no call here waits for a server or raises because of one, except `TrackedRun.ids` and `champion_decided`.
Values that are not finite are counted and left out.  The same run opened again (same run name, part and identity) is
joined, and what was already logged is not logged twice, so a resumed run hands over its history from the start.
Weights are refused: a checkpoint is known by digest and address only.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pipeline_lib.storage import digest
from pipeline_lib.tracking.addresses import tracking_uri
from pipeline_lib.tracking.championship import Contender
from pipeline_lib.tracking.operations import Operation, RunKey
from pipeline_lib.tracking.processes import own_process
from pipeline_lib.tracking.writer import Writer, log

Status = Literal["FINISHED", "FAILED", "KILLED"]

_NOT_IN_A_METRIC = re.compile(r"[^\w\-. /]")
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".npz"}


class Tracker:
    """The parent run of everything that one run of the project does, in any process.

    Args:
        home: folder of the project's tracking database, artifacts, and of what waits for a server.
        experiment: name of the MLflow experiment.
        run: name of the run; processes that give the same name contribute to the same parent.
        tags: identity of the run in other tools (git commit, DVC experiment, Prefect flow run, ...).
        params: settings, nested; they become flat parameters (``train.learning_rate``).
        uri: where to track; default: ``MLFLOW_TRACKING_URI``, else a SQLite file in ``home``.
        interval_s: seconds between two sendings of what was logged.
        conductor: the process that says how the whole run ended (`end`); until then it is RUNNING, and KILLED if that
            process is gone.  Without one the state follows from the parts.
        starter: the process that starts the parts one after the other, if it is known; while it is there the whole is
            RUNNING.
    """

    def __init__(
        self,
        home: Path,
        experiment: str,
        run: str,
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        uri: str | None = None,
        interval_s: float = 5.0,
        conductor: str = "",
        starter: str = "",
    ) -> None:
        if "'" in run + experiment:
            raise ValueError(f"run {run!r}, experiment {experiment!r}: a name must not contain an apostrophe")
        self.key = RunKey(experiment, run, "", run)
        self._uri = uri
        self._home = home.absolute()
        self._conductor = conductor
        self._writer = Writer(self._connect, self._waiting(), interval_s=interval_s)
        fields = {"tags": _texts(tags or {}), "params": flat(params or {})}
        self._put(self.key, "open", **fields, process=own_process(), conductor=conductor, starter=starter)

    def start_run(
        self, stage: str, seed: int | None = None, identity: str = "", tags: Mapping[str, str] | None = None
    ) -> TrackedRun:
        """Open the child run of a stage and seed, or join it again.

        Args:
            stage: name of the stage.
            seed: training seed, if the stage has one.
            identity: digest of what makes this run what it is; another identity is another child run.
            tags: further tags.
        """
        name = stage if seed is None else f"{stage} seed {seed}"
        part = "/".join([stage, "" if seed is None else f"seed={seed}", identity[:16]])
        key = RunKey(self.key.experiment, self.key.run, part, name)
        labels = {
            "symposium.stage": stage,
            **({} if seed is None else {"symposium.seed": str(seed)}),
            **_texts(tags or {}),
        }
        self._put(key, "open", tags=labels, params={}, process=own_process())
        return TrackedRun(self, key)

    def end(self, status: Status) -> None:
        """Say how the whole run ended; the conductor does that."""
        self._put(self.key, "close", status=status, conductor=self._conductor)

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until everything is sent or safe in the waiting file; return whether it was all sent."""
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float = 10.0) -> bool:
        """Send what is left and stop; what cannot be sent in time waits for the next run. Returns: all was sent."""
        return self._writer.close(timeout_s)

    def _put(self, key: RunKey, kind: str, **fields: Any) -> None:
        self._writer.put(Operation(kind, key, fields))

    def _address(self) -> str:
        return self._uri or tracking_uri(self._home)

    def _waiting(self) -> Path:
        """Return the folder of what waits for this very destination: it must not be sent to another."""
        address = self._uri or os.environ.get("MLFLOW_TRACKING_URI") or "project"
        return self._home / "waiting" / digest(address)[:12]

    def _connect(self) -> Any:
        from pipeline_lib.tracking.ledger import Ledger

        return Ledger(self._address(), self._home)


class TrackedRun:
    """A child run: made by `Tracker.start_run`."""

    def __init__(self, tracker: Tracker, key: RunKey) -> None:
        self._tracker = tracker
        self.key = key
        self._not_finite: dict[str, int] = {}

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics at a step; the first value of a metric at a step stays. Not finite: counted, left out."""
        when = int(time.time() * 1000)
        values = [(name, value, when, step) for name, value in self._finite(metrics).items()]
        if values:
            self._tracker._put(self.key, "metrics", values=values)

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags."""
        self._tracker._put(self.key, "tags", tags=_texts(tags))

    def params(self, params: Mapping[str, Any]) -> None:
        """Name the settings, nested, that this run was made with; a value that was named before stays."""
        self._tracker._put(self.key, "open", tags={}, params=flat(params), process=own_process())

    def dataset(self, name: str, digest: str, source: Mapping[str, Any], context: str) -> None:
        """Name a data set that the run reads.

        Args:
            name: for example ``validation``.
            digest: content digest as DVC has it; the first 36 characters are kept.
            source: where it is (path, revision, address), JSON-like.
            context: what it is used for: ``training``, ``validation``, ``test``.
        """
        self._tracker._put(self.key, "dataset", name=name, digest=digest, source=dict(source), context=context)

    def checkpoint(self, name: str, step: int, digest: str, uri: str, tags: Mapping[str, str] | None = None) -> None:
        """Make a checkpoint known as a logged model; pointers only.

        Args:
            name: name within the whole run, for example ``seed-0-step-40``.
            step: training step.
            digest: content digest of the weights.
            uri: path or address of the weights.
            tags: further tags.
        """
        pointers = {"digest": digest, "uri": uri, "step": str(step), **_texts(tags or {})}
        labels = {f"symposium.{key}": value for key, value in pointers.items()}
        self._tracker._put(self.key, "model", name=_model_name(name), step=step, tags=labels)

    def checkpoint_metrics(self, name: str, step: int, metrics: Mapping[str, float], dataset: tuple[str, str]) -> None:
        """Attach metrics measured on a data set (name, digest) to a checkpoint made known before, by any process."""
        self._tracker._put(
            self.key,
            "model_metrics",
            name=_model_name(name),
            step=step,
            values=self._finite(metrics),
            dataset=list(dataset),
            when=int(time.time() * 1000),
        )

    def selected(self, name: str) -> None:
        """Tag a checkpoint made known before as the one that the run has selected, and no other of the run."""
        self._tracker._put(self.key, "selected", name=_model_name(name))

    def champion(self, registered: str, tested: Contender) -> None:
        """Let a team that was tested become champion of ``registered``, if by `championship` it has won that."""
        fields = {"name": _model_name(tested.team), "registered": registered, "tested": dataclasses.asdict(tested)}
        self._tracker._put(self.key, "champion", **fields)

    def champion_decided(self, timeout_s: float = 60.0) -> str:
        """Return what was decided about the champion, and why; empty if the server is away and nothing is yet."""
        ledger = self._tracker._writer.ledger if self._tracker.flush(timeout_s) else None
        return ledger.champions.get(self.key, "") if ledger else ""

    def artifact(self, path: Path, folder: str = "") -> None:
        """Copy a file, or the files of a folder, to the run's artifacts.

        Raises:
            FileNotFoundError: there is no such file or folder.
            ValueError: it holds weights; those lie on disk once, see `checkpoint`.
        """
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such artifact")
        files = path.rglob("*") if path.is_dir() else [path]
        if weights := next((file for file in files if file.suffix in _WEIGHTS), None):
            raise ValueError(f"{weights}: weights are not copied to the tracking server; use checkpoint()")
        self._tracker._put(self.key, "artifact", path=str(path.absolute()), folder=folder)

    def finish(self, status: Status = "FINISHED") -> None:
        """Give the run its final status; the parent's follows."""
        if self._not_finite:
            self.tag({f"symposium.not_finite.{name}": str(count) for name, count in self._not_finite.items()})
        self._tracker._put(self.key, "close", status=status)

    def ids(self, timeout_s: float = 10.0) -> tuple[str, str] | None:
        """Return (experiment id, run id) once everything so far is sent; None if the server is away."""
        ledger = self._tracker._writer.ledger if self._tracker.flush(timeout_s) else None
        return ledger.ids(self.key) if ledger else None

    def not_recorded(self) -> list[str]:
        """Return what of this run the server refused for good, and why; complete once `Tracker.close` has returned."""
        return self._tracker._writer.not_recorded(self.key)

    def _finite(self, metrics: Mapping[str, float]) -> dict[str, float]:
        kept = {}
        for name, value in metrics.items():
            name, value = _metric_name(name), float(value)
            if math.isfinite(value):
                kept[name] = value
                continue
            if name not in self._not_finite:
                log.warning("tracking: %s: %s is %s; such values are counted and left out", self.key.name, name, value)
            self._not_finite[name] = self._not_finite.get(name, 0) + 1
        return kept


def flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Return nested settings as flat texts: ``{"a": {"b": 1}}`` becomes ``{"a.b": "1"}``."""
    if isinstance(value, Mapping) and value:
        return {
            k: v
            for key, item in value.items()
            for k, v in flat(item, f"{prefix}.{key}" if prefix else str(key)).items()
        }
    return {prefix: str(list(value) if isinstance(value, tuple) else value)} if prefix else {}


@functools.lru_cache(maxsize=4096)
def _metric_name(name: str) -> str:
    """Return a name that MLflow accepts for a metric."""
    return _NOT_IN_A_METRIC.sub("_", name)[:250]


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in values.items()}


def _model_name(name: str) -> str:
    """Return a name that MLflow accepts for a logged model (it refuses ``/ : . % " '``)."""
    return re.sub(r"[/:.%\"']", "-", name)
