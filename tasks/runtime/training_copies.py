"""Training that survives its machine: in a run with ``--share`` the store holds what a training needs to continue.

    <DVC's default remote>/training/<arm>-<digest>/
        step-00010/...  state-00010/...  metrics-00010-<digest>.jsonl  record-00010.json

The digest in the name contains everything that determines the checkpoints, so whoever finds such a copy may continue
from it, to the same bytes.  Copies are made beside the training.  A record names every file with its digest and is
written last: a copy without one does not count.  Metrics, records and trainer states of earlier steps are removed then,
and the whole copy when DVC has sent the results of the stage.

Two machines may be at the same training.  Their checkpoints and states are equal, but metrics contain seconds, hence
the digest in their names: each record names the metrics of its own machine.
"""

import logging
import os
import re
import shutil
import threading
import time
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from hashlib import md5
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from pipeline_lib.locks import locked
from pipeline_lib.storage import CorruptFileError, file_digest, file_digests, new_folder, read_json, write_json
from pipeline_lib.training.checkpoint_folders import numbered, read_record, state_folder, step_folder, steps_in
from pipeline_lib.training.metrics_log import NAME as METRICS
from tasks.services import clocks
from tasks.services.process_environment import places

_TRIED = 4 << 20
# What S3 refuses, and a store that only resembles it may take.
_TO_BE_REFUSED: dict[str, dict[str, str]] = {
    "a second file of the same name, on condition that there is none": {"IfNoneMatch": "*"},
    "a file with the checksum of another one": {"ContentMD5": b64encode(md5(b"another").digest()).decode()},
}


class StoreError(RuntimeError):
    """The store does not do what is asked of it; the message says which step failed."""


def default_remote(project: Path) -> tuple[Any, str]:
    """Return the file system of DVC's default remote, with the credentials that DVC has, and the folder in it.

    Raises:
        dvc.exceptions.DvcException: there is no default remote, or one of an unknown kind.
    """
    # DVC loads for a second, and only runs that share need it.
    from dvc.repo import Repo

    remote = Repo(str(project)).cloud.get_remote()
    return remote.fs, remote.path


def why(error: Exception) -> str:
    """Return why the store does not do something: if clocks differ it says so to nobody who only asks what it has."""
    return clocks.of_error(error, "the store") or str(error)


def wrong_clock(project: Path) -> str:
    """Return what is to be said if the store refuses everything because of this machine's clock; else empty."""
    try:
        files, folder = default_remote(project)
        files.ls(folder, detail=False)
    except Exception as error:  # each kind of store has its own
        return clocks.of_error(error, "the store")
    return ""


def try_store(project: Path) -> tuple[str, list[str]]:
    """Write a file to the store, list, read, compare and remove it; return how fast that was, and what it wrongly took.

    An S3 store is also given a conditional write and a wrong checksum, both of which it must refuse.

    Raises:
        StoreError: a step failed.
    """
    content, name, step = os.urandom(_TRIED), f"symposium-doctor-{uuid.uuid4().hex}", "opened"
    try:
        files, folder = default_remote(project)
        path, step, began = files.join(folder, name), "written", time.monotonic()
        files.makedirs(folder, exist_ok=True)
        with files.open(path, "wb") as file:
            file.write(content)
        written_s, step = time.monotonic() - began, "listed"
        is_listed = name in {files.name(found.rstrip("/")) for found in files.ls(folder, detail=False)}
        step, began = "read", time.monotonic()
        with files.open(path, "rb") as file:
            is_equal = file.read() == content
        read_s, step = time.monotonic() - began, "removed"
        taken = [what for what, condition in _TO_BE_REFUSED.items() if _takes(files, path, condition)]
        files.remove(path)
    except Exception as error:  # each kind of store has its own
        raise StoreError(f"a file could not be {step}: {why(error)}") from error
    if not (is_listed and is_equal):
        raise StoreError(f"a file that was written {'has another content' if is_listed else 'is not listed'}")
    speeds = f"written at {_TRIED / 1e6 / written_s:.0f} MB/s, read at {_TRIED / 1e6 / read_s:.0f} MB/s"
    if files.protocol == "s3" and not taken:
        speeds += ", wrong checksums and conditions that do not hold are refused"
    return f"{folder}: {speeds}", taken


def _takes(files: Any, path: str, condition: dict[str, str]) -> bool:
    """Say whether an S3 store writes over a file under a condition that does not hold."""
    if files.protocol != "s3":
        return False
    bucket, key, _ = files.fs.split_path(path)
    try:
        files.fs.call_s3("put_object", Bucket=bucket, Key=key, Body=b"second", **condition)
    except Exception:  # each store words it in its own way
        return False
    return True


log = logging.getLogger("symposium.stage")

SHARED = "SYMPOSIUM_SHARED"
"""Environment variable: set for the stages of a run with ``--share``."""

# Files of a step, which are removed after a later one is sent.
_NUMBERED = re.compile(r"(metrics|record|state)-(\d+)(?:-[0-9a-f]+)?(?:\.jsonl?)?")
_ENDED = "ended.json"  # in the scratch folder of a training that has ended and has a copy: the stage's name


class Copies:
    """The copies of one training.

    Args:
        project: the folder with ``.dvc``, whose default remote is used.
        scratch: the training's folder.
    """

    def __init__(self, project: Path, scratch: Path) -> None:
        self._scratch = scratch
        self._fs, root = default_remote(project)
        self._folder = self._fs.join(root, "training", scratch.name)
        self._sent: dict[str, str] = {}  # files of checkpoints, with their digests

    def fetch(self) -> int:
        """Bring the newest copy that is complete, and newer than what is here; return its step, else 0.

        What is damaged or cannot be read is named in the log, and an earlier copy is taken, if there is one.
        """
        try:
            steps = sorted(self._steps(), reverse=True)
        except Exception as error:  # each kind of store has its own
            log.warning("the store does not say what it has of this training, which goes on without: %s", why(error))
            return 0
        for step in steps:
            try:
                files = self._record(step)
                self._sent = {name: digest for name, digest in files.items() if name.startswith("step-")}
                if step <= max(numbered(self._scratch, "state-"), default=0):
                    return 0
                self._take(step, files)
                return step
            except Exception as error:  # each kind of store has its own
                log.warning("step %d of this training cannot be had from the store: %s", step, error)
        return 0

    def send(self, step: int) -> None:
        """Send what is needed to continue from a step of which checkpoint and state are written.

        A training of more steps may be here, or have come from the store: of most of its steps there is no state.
        """
        if step < max(numbered(self._scratch, "state-"), default=0) and not state_folder(self._scratch, step).is_dir():
            return
        with _kept(state_folder(self._scratch, step)) as state:
            self._send(step, state)

    def _send(self, step: int, state: Path) -> None:
        known = {name.partition("/")[0] for name in self._sent}
        for done in steps_in(self._scratch):
            folder = step_folder(self._scratch, done)
            if done <= step and folder.name not in known:
                self._sent |= self._send_folder(folder)
        files = self._sent | self._send_folder(state, state_folder(self._scratch, step).name)
        metrics = self._scratch / f".{METRICS}.sent"  # of this moment, since the file grows
        metrics.write_bytes((self._scratch / METRICS).read_bytes())
        digest = file_digest(metrics)
        self._put(metrics, name := f"metrics-{step:05d}-{digest[:16]}.jsonl")
        record = self._scratch / ".record.sent"
        write_json(record, {"format": 1, "step": step, "files": files | {name: digest}})
        self._put(record, f"record-{step:05d}.json")
        for name in self._names():
            earlier = _NUMBERED.fullmatch(name)
            if earlier and int(earlier[2]) < step:
                with suppress(FileNotFoundError):  # another machine at the same training has removed it
                    self._fs.remove(self._fs.join(self._folder, name), recursive=True)

    def send_each(self, due: "SimpleQueue[int]", over: threading.Event) -> None:
        """Send the newest step in the queue, again and again, until ``over`` is set."""
        while not over.is_set():
            step = due.get()
            with suppress(Empty):
                while True:
                    step = due.get_nowait()
            if step == 0 or over.is_set():
                continue
            try:
                self.send(step)
            except Exception as error:  # each kind of store has its own
                log.warning("step %d was not sent to the store, the next one will be: %s", step, why(error))

    def remove(self) -> None:
        """Remove all copies of this training."""
        if self._fs.exists(self._folder):
            self._fs.remove(self._folder, recursive=True)

    def _steps(self) -> list[int]:
        found = [_NUMBERED.fullmatch(name) for name in self._names()]
        return [int(name[2]) for name in found if name and name[1] == "record"]

    def _names(self) -> list[str]:
        if not self._fs.exists(self._folder):
            return []
        return [self._fs.name(path.rstrip("/")) for path in self._fs.ls(self._folder, detail=False)]

    def _send_folder(self, folder: Path, called: str = "") -> dict[str, str]:
        digests = file_digests(folder)
        for name in digests:
            self._put(folder / name, f"{called or folder.name}/{name}")
        return {f"{called or folder.name}/{name}": digest for name, digest in digests.items()}

    def _put(self, file: Path, name: str) -> None:
        self._fs.put_file(str(file), self._fs.join(self._folder, *name.split("/")))

    def _get(self, name: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self._fs.get_file(self._fs.join(self._folder, *name.split("/")), str(target))

    def _record(self, step: int) -> dict[str, str]:
        self._scratch.mkdir(parents=True, exist_ok=True)
        self._get(f"record-{step:05d}.json", record := self._scratch / ".record.fetched")
        files: dict[str, str] = read_record(record)["files"]
        for name in files:
            if name.startswith("/") or ".." in name.split("/"):
                raise CorruptFileError(f"record-{step:05d}.json: a file outside of the training's folder, {name}")
        return files

    def _take(self, step: int, files: dict[str, str]) -> None:
        """Bring the files of a record; the trainer's state last, without which nothing continues from the step."""
        name = next(name for name in files if name.startswith("metrics-"))
        self._get(name, metrics := self._scratch / f".{METRICS}.fetched")
        _compare(metrics, files[name])
        metrics.replace(self._scratch / METRICS)
        state = state_folder(self._scratch, step).name
        folders = {name.partition("/")[0] for name in files if "/" in name}
        for folder in sorted(folders, key=lambda name: (name == state, name)):
            held = {name: digest for name, digest in files.items() if name.startswith(f"{folder}/")}
            target = self._scratch / folder
            if (
                target.is_dir()
                and {f"{folder}/{name}": digest for name, digest in file_digests(target).items()} == held
            ):
                continue
            with new_folder(target) as made:
                for name, digest in held.items():
                    self._get(name, part := made / name.partition("/")[2])
                    _compare(part, digest)


@contextmanager
def _kept(folder: Path) -> Iterator[Path]:
    """Yield a second name of a folder's files: the trainer keeps few states, and a slow store is still taking one."""
    second = folder.with_name(f".{folder.name}.sent.part")  # a name that the next training removes, if this is killed
    shutil.rmtree(second, ignore_errors=True)
    try:
        shutil.copytree(folder, second, copy_function=_link)
        yield second
    finally:
        shutil.rmtree(second, ignore_errors=True)


def _link(file: str, second: str) -> None:
    try:
        os.link(file, second)
    except OSError:  # a file system without hard links
        shutil.copyfile(file, second)


def _compare(file: Path, digest: str) -> None:
    if file_digest(file) != digest:
        raise CorruptFileError(f"{file.name}: damaged in the store, its digest is not the one recorded")


@contextmanager
def copied(scratch: Path, stage: str, say: Callable[[str], Any]) -> Iterator[Callable[[int], Any]]:
    """Take what another machine has done of a training; yield what is called with the step of every checkpoint.

    Without ``--share`` neither does anything.  With it, two runs on one machine that need the same training wait for
    each other, and the second one finds it made.

    Args:
        scratch: the training's folder.
        stage: its name in ``dvc.yaml``, with the seed.
        say: takes a message for the user.
    """
    if not os.environ.get(SHARED):
        yield lambda step: None
        return
    with _alone(scratch, say):
        if (copies := _opened(scratch)) is None:
            yield lambda step: None
            return
        due, over = SimpleQueue[int](), threading.Event()
        if step := copies.fetch():
            say(f"continued from step {step}, which another machine has sent")
        sender = threading.Thread(target=copies.send_each, args=(due, over), daemon=True)
        sender.start()
        try:
            yield due.put
        finally:
            over.set()
            due.put(0)
        sender.join()  # not after an error: then the process is to end
        write_json(scratch / _ENDED, {"stage": stage})


def _opened(scratch: Path) -> Copies | None:
    try:
        return Copies(Path.cwd(), scratch)
    except Exception as error:  # it stops no training; that results are not shared is an error at the end of the run
        log.warning("the store cannot be opened, no checkpoint of this training is sent there: %s", error)
        return None


@contextmanager
def _alone(scratch: Path, say: Callable[[str], Any]) -> Iterator[None]:
    """Wait until no other run of this machine is at this training; the lock goes with the process."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(scratch / ".shared.lock", wait=False))
        except BlockingIOError:
            say("another run on this machine is at the same training; waiting for it")
            held.enter_context(locked(scratch / ".shared.lock"))
        yield


def remove_copies(project: Path, stages: tuple[str, ...]) -> None:
    """Remove the copies of trainings that have ended, of these stages or (if there are none) of all."""
    for ended in (places().scratch / "train").glob(f"*/{_ENDED}"):
        if not stages or read_json(ended)["stage"] in stages:
            Copies(project, ended.parent).remove()
            ended.unlink()
