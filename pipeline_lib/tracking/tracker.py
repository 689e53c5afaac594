"""The interface of tracking: a parent run, and a child run per stage and seed.

Promises: no call waits for a server or raises because of one, except `TrackedRun.ids` and `champion_decision`.  Values
that are not finite are counted and left out.  A run that is opened again (same name, settings, part and identity) is
joined, and no value is logged twice, so a resumed run may log its history again from the start.  Weights are refused: a
checkpoint is recorded by digest and address only.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import posixpath
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipeline_lib.storage import digest
from pipeline_lib.tracking.championship import Contender, registered_name
from pipeline_lib.tracking.journal import Journal, is_left, log
from pipeline_lib.tracking.operations import Operation, RunKey
from pipeline_lib.tracking.processes import own_process
from pipeline_lib.tracking.store import tracking_uri

if TYPE_CHECKING:
    from pipeline_lib.tracking.recorder import Recorder

Status = Literal["FINISHED", "FAILED", "KILLED"]

_NOT_IN_A_METRIC = re.compile(r"[^\w\-. /]")
_NOT_IN_A_MODEL = re.compile(r"[/:.%\"']")
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".npz"}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Pointers to a checkpoint."""

    name: str  #: name within the whole run, for example ``team-0-step-40``
    step: int  #: training step
    digest: str  #: content digest of the weights
    uri: str  #: their path within the project, or address

    def fields(self) -> dict[str, Any]:
        """Return the fields as JSON-like data, with a name that MLflow accepts for a logged model."""
        return {**dataclasses.asdict(self), "name": _NOT_IN_A_MODEL.sub("-", self.name)}


def open_recorder(uri: str, home: Path) -> Recorder:
    """Return a connection to the tracking store at ``uri``; ``home`` as for `Tracker`."""
    # It loads MLflow, which takes a second, and only those wait who read or send something.
    from pipeline_lib.tracking.recorder import Recorder

    return Recorder(uri, home)


def send_waiting(home: Path, longest_s: float, say: Callable[[], object]) -> bool:
    """Send what processes that have ended could not send; return whether all of it was sent.

    Args:
        home: as for `Tracker`.
        longest_s: seconds to wait for a server that does not answer.
        say: called once if there is something to send.
    """
    folder, end = _waiting(home), time.monotonic() + longest_s
    if not is_left(folder):
        return True
    say()
    while is_left(folder) and time.monotonic() < end:
        journal = Journal(lambda: open_recorder(tracking_uri(home), home), folder)
        while journal.recorder is None and time.monotonic() < end:
            time.sleep(0.2)
        journal.close(max(0.0, end - time.monotonic()))
    return time.monotonic() < end and not is_left(folder)


def _waiting(home: Path, uri: str | None = None) -> Path:
    """Return the folder of unsent data for a destination; it must not be sent to another."""
    address = uri or os.environ.get("MLFLOW_TRACKING_URI") or "project"
    return home.absolute() / "waiting" / digest(address)[:12]


class NoChampionError(ValueError):
    """There is no champion here; the message says why."""


def find_champion(kind: str, home: Path, teams: Mapping[Path, str]) -> tuple[Contender, Path]:
    """Return the champion of a kind of environment: its test, and the folder with its weights.

    Args:
        kind: of the environment.
        home: as for `Tracker`.
        teams: digests of weights by folder.

    Raises:
        NoChampionError: there is none yet, or its weights are in no folder.
    """
    name = registered_name(kind)
    found = open_recorder(tracking_uri(home), home).current_champion(name)
    if found is None:
        raise NoChampionError(f"{name} has no champion yet (the verdict of each run says why)")
    for folder, weights in teams.items():
        if weights == found.weights:
            return found, folder
    raise NoChampionError(
        f"the champion is {found}, whose weights are not here; `dvc exp apply {found.run}` brings them"
    )


class Tracker:
    """The parent run of one run of the project, in any process.

    Args:
        home: folder of the project's tracking database, artifacts, and unsent data.
        experiment: name of the MLflow experiment.
        run: name of the run; processes with the same name and settings contribute to the same parent.
        tags: identity of the run in other tools (git commit, DVC experiment, Prefect flow run, ...).
        params: settings, nested; they become flat parameters (``train.learning_rate``).
        uri: tracking store; default: ``MLFLOW_TRACKING_URI``, else a SQLite file in ``home``.
        interval_s: seconds between two rounds of sending.
        process: the process that works on the whole run; while it runs, the run is RUNNING; default: this process.
        owned: whether that process will report how the run ended (`TrackedRun.finish`); if it ends without a report,
            the run is KILLED.  Without an owner, the state follows from the parts.
        study: name of the study that the run is a cell of; it is shown below the study's run.

    Attributes:
        whole: the parent run itself.
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
        process: str = "",
        owned: bool = False,
        study: str = "",
    ) -> None:
        if "'" in run + experiment:
            raise ValueError(f"run {run!r}, experiment {experiment!r}: a name must not contain an apostrophe")
        self._uri = uri
        self._home = home.absolute()
        self._process = process or own_process()
        self._journal = Journal(self._connect, _waiting(home, uri), interval_s=interval_s)
        settings = flat(params or {})
        self.whole = TrackedRun(self._journal, RunKey(experiment, run, digest(settings)[:16], "", run), self._process)
        above = RunKey(experiment, study, digest({})[:16], "", study) if study else None
        self.whole._put(
            "open",
            tags=_texts(tags or {}),
            params=settings,
            process=self._process,
            when=_now_ms(),
            conducted=owned,
            above=dataclasses.asdict(above) if above else None,
        )

    def start_run(
        self,
        stage: str,
        seed: int | None = None,
        identity: str = "",
        tags: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> TrackedRun:
        """Open the child run of a stage and seed, or join it again.

        Args:
            stage, seed: name of the stage, and training seed if it has one.
            identity: digest of the run's inputs; another identity is another child run.
            tags, params: further tags, and settings of the stage, nested.
        """
        whole = self.whole.key
        name = f"{whole.name} {stage}" if seed is None else f"{whole.name} {stage} seed {seed}"
        part = "/".join([stage, "" if seed is None else f"seed={seed}", identity[:16]])
        run = TrackedRun(self._journal, dataclasses.replace(whole, part=part, name=name), own_process())
        labels = {"stage": stage, **({} if seed is None else {"seed": str(seed)})}
        run._put(
            "open",
            tags={**labels, **_texts(tags or {})},
            params=flat(params or {}),
            process=own_process(),
            when=_now_ms(),
        )
        return run

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Try to send everything now; return whether it was all sent."""
        return self._journal.flush(timeout_s)

    def close(self, timeout_s: float = 10.0) -> bool:
        """Send the rest and stop; return whether all was sent.  Unsent data waits for the next run."""
        return self._journal.close(timeout_s)

    def rejected(self) -> list[str]:
        """Return the operations that the server has rejected, and why; complete after `close` has returned."""
        return list(self._journal.rejected)

    def _connect(self) -> Any:
        return open_recorder(self._uri or tracking_uri(self._home), self._home)


class TrackedRun:
    """A parent run (`Tracker.whole`), or a child run (`Tracker.start_run`)."""

    def __init__(self, journal: Journal, key: RunKey, process: str) -> None:
        self.key = key
        self._journal = journal
        self._process = process
        self._not_finite: dict[str, int] = {}

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record metrics at a step; the first value of a metric at a step stays. Not finite: counted, left out."""
        when = _now_ms()
        values = [(name, value, when, step) for name, value in self._finite(metrics).items()]
        if values:
            self._put("metrics", values=values)

    def summary(self, metrics: Mapping[str, float | None]) -> None:
        """Record the results of the run; the newest value of a metric is shown.  None: there is no such result."""
        known = {name: value for name, value in metrics.items() if value is not None}
        gone = [_metric_name(name) for name, value in metrics.items() if value is None]
        self._put("summary", values=self._finite(known), gone=gone, when=_now_ms())

    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags."""
        self._put("tags", tags=_texts(tags))

    def describe(self, text: str, artifact: str) -> None:
        """Set the text at the top of the run's page (Markdown), with a link to one of the run's artifacts."""
        self._put("description", text=text, artifact=artifact)

    def traces(self, episodes: Sequence[Mapping[str, Any]]) -> None:
        """Record episodes as traces, in place of those that the run had (`pipeline_lib.report.viewer.traced`)."""
        self._put("traces", episodes=[dict(episode) for episode in episodes])

    def dataset(self, name: str, digest: str, source: Mapping[str, Any], context: str) -> None:
        """Record a data set that the run reads.

        Args:
            name, context: for example ``validation``; its use: ``training``, ``validation``, ``test``.
            digest: content digest, as in DVC; the first 36 characters are kept.
            source: its location (path, revision, address), JSON-like.
        """
        self._put("dataset", name=name, digest=digest, source=dict(source), context=context)

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Record a checkpoint as a logged model; pointers only."""
        self._put("checkpoint", checkpoint=checkpoint.fields())

    def checkpoint_metrics(
        self, checkpoint: Checkpoint, metrics: Mapping[str, float], dataset: tuple[str, str]
    ) -> None:
        """Attach metrics measured on a data set (name, digest) to a checkpoint."""
        fields = {"values": self._finite(metrics), "dataset": list(dataset), "when": _now_ms()}
        self._put("checkpoint_metrics", checkpoint=checkpoint.fields(), **fields)

    def selected(self, checkpoint: Checkpoint) -> None:
        """Tag a checkpoint as the selected one of the run."""
        self._put("selected", checkpoint=checkpoint.fields())

    def champion(self, checkpoint: Checkpoint, registered: str, tested: Contender) -> None:
        """Make a tested team champion of the registered model ``registered``, if the rule in `championship` allows."""
        test = dataclasses.asdict(tested)
        self._put("champion", checkpoint=checkpoint.fields(), registered=registered, tested=test)

    def champion_decision(self, timeout_s: float = 60.0) -> str:
        """Return the decision about the champion and its reason; empty while the server is unavailable."""
        recorder = self._journal.recorder if self._journal.flush(timeout_s) else None
        return recorder.champions.get(self.key, "") if recorder else ""

    def artifact(self, path: Path) -> None:
        """Copy a file, or the content of a folder, to the run's artifacts.

        Raises:
            FileNotFoundError: there is no such file or folder.
            ValueError: it contains weights, which are not copied, see `checkpoint`.
        """
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such artifact")
        files = path.rglob("*") if path.is_dir() else [path]
        if weights := next((file for file in files if file.suffix in _WEIGHTS), None):
            raise ValueError(f"{weights}: weights are not copied to the tracking server; use checkpoint()")
        self._put("artifact", path=str(path.absolute()))

    def finish(self, status: Status = "FINISHED") -> None:
        """Set the run's final state; that of a child's parent follows from its parts, unless it has an owner."""
        if self._not_finite:
            self.tag({f"symposium.not_finite.{name}": str(count) for name, count in self._not_finite.items()})
        self._put("close", status=status, process=self._process, when=_now_ms())

    def ids(self, timeout_s: float = 10.0) -> tuple[str, str] | None:
        """Return (experiment id, run id) after sending everything so far; None if the server is unavailable."""
        recorder = self._journal.recorder if self._journal.flush(timeout_s) else None
        return recorder.ids(self.key) if recorder else None

    def _put(self, kind: str, **fields: Any) -> None:
        self._journal.put(Operation(kind, self.key, fields))

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
    name = _NOT_IN_A_METRIC.sub("_", name)[:249]
    resolved = posixpath.normpath(f"x/{name}") == f"x/{name}"  # MLflow refuses /models/one and ../one
    return name if resolved else "_" + name.replace("/", "_")


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in values.items()}


def _now_ms() -> int:
    return int(time.time() * 1000)
