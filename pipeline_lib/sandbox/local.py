"""The client of a broker: starts it, sends it jobs, and restarts it if it dies."""

from __future__ import annotations

import itertools
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.backend import SandboxUnavailable
from pipeline_lib.sandbox.jobs import Limits, Status, Verdict
from pipeline_lib.sandbox.tests_source import Planned

_ROOT = str(Path(__file__).parents[2])
_START = f"import sys; sys.path.insert(0, {_ROOT!r}); from pipeline_lib.sandbox.broker import main; main()"
_log = logging.getLogger(__name__)
_START_S = 60.0
_HEALTH_S = 10.0
_END_S = 20.0
_FIRST, _AT_ONCE = 4, 64  # jobs packed and sent together: few at first, so that the sandbox need not wait
_DEATHS, _PATIENCE_S = 5, 60.0  # brokers in a row, and seconds, without a verdict before jobs end as infra_error
_LONGEST_PAUSE_S = 2.0  # between two attempts to start a broker


@dataclass(frozen=True, slots=True)
class _Waiting:
    planned: Planned
    done: queue.SimpleQueue[Verdict]


class LocalBackend:
    """Runs jobs through a broker process on this machine."""

    def __init__(self, name: str, config: dict[str, Any], limits: Limits) -> None:
        self.name = name
        self.jail = self.level = ""
        self._config = config | {"limits": asdict(limits), "path": _search_path()}
        self._limits = limits
        self._slots: int = config["slots"]
        self._closed = False
        self._owner = 0
        self._opening: dict[int, threading.Lock] = {}  # by process: a forked one may get its parent's locked
        self._open()

    def _open(self) -> None:
        """Start a broker for this process, and the thread that reads its answers, unless it has them."""
        with self._opening.setdefault(os.getpid(), threading.Lock()):
            if self._owner != os.getpid() and not self._closed:
                self._open_here()
                self._owner = os.getpid()

    def _open_here(self) -> None:
        self._lock = threading.Lock()
        self._sending = threading.Lock()  # frames of two threads must not mix
        self._numbers = itertools.count()
        self._waiting: dict[int, _Waiting] = {}
        self._healths: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._deaths = 0  # of brokers since the last verdict
        self._progress = time.monotonic()  # time of the last verdict, or of the last moment without jobs
        self._wanted = threading.Event()  # a new broker must start without a pause
        for left in reversed(range(_DEATHS)):
            try:
                self._start()
                break
            except SandboxUnavailable:
                if self._process.returncode != -signal.SIGKILL or not left:
                    raise  # only a broker that somebody killed says nothing about the machine
        self._reader = threading.Thread(target=self._read, name="sandbox-reader", daemon=True)
        self._reader.start()

    def execute(self, jobs: Sequence[Planned]) -> Iterator[Verdict]:
        """Yield the verdicts of ``jobs`` as they come."""
        self._open()  # this process may have been forked: broker, locks and thread would be its parent's
        done: queue.SimpleQueue[Verdict] = queue.SimpleQueue()
        with self._lock:
            if self._closed:
                raise RuntimeError("the executor is closed")
            numbers = [next(self._numbers) for _ in jobs]
            mine = {number: _Waiting(planned, done) for number, planned in zip(numbers, jobs, strict=True)}
            if not self._waiting:
                self._progress = time.monotonic()
            self._waiting |= mine
            link = self._link
            self._wanted.set()
        try:
            start, size = 0, _FIRST
            while start < len(numbers):  # the first jobs run while the next ones are packed
                self._send(link, self._pack({number: mine[number] for number in numbers[start : start + size]}))
                start, size = start + size, min(2 * size, _AT_ONCE)
            for _ in jobs:
                yield done.get()
        finally:
            self._forget(numbers)

    def health(self) -> dict[str, Any]:
        """Return the broker's facts: slots, queue, restarts, processes."""
        self._open()
        facts = {"jail": self.jail, "isolation": self.level}
        deadline = time.monotonic() + _HEALTH_S
        asked: wire.Link | None = None
        while time.monotonic() < deadline and not self._closed:
            with self._lock:  # held while a new broker starts, which could not answer yet
                link = self._link
            if link is not asked:  # a new broker has not received the request
                asked = link
                self._send(link, wire.pack({"health": True}))
            with suppress(queue.Empty):
                return facts | self._healths.get(timeout=0.05)
        return facts | {"error": "the broker does not answer"}

    def close(self) -> None:
        """End the broker and all it has started, unless another process has started it."""
        if self._owner != os.getpid():
            self._closed = True
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._wanted.set()
        with suppress(OSError):
            self._link.connection.shutdown(socket.SHUT_RDWR)
        self._reader.join(timeout=10)
        self._end_process()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-s", "-P", "-B", "-c", _START.replace("main()", f"main({theirs.fileno()})")],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,
            )
        self._link = wire.Link(ours)
        frame, reason = None, "the broker ended while starting"
        with suppress(ConnectionError):  # the broker has ended
            try:
                self._link.send(self._config)
                ours.settimeout(_START_S)
                frame = self._link.receive()
                ours.settimeout(None)
            except TimeoutError:
                reason = f"the broker is not ready after {_START_S:g} s"
        if frame is None or "ready" not in frame[0]:
            reason = frame[0]["broken"] if frame else reason
            ours.close()
            self._end_process()
            raise SandboxUnavailable(f"the sandbox backend {self.name!r} cannot start: {reason}")
        self.jail, self.level = frame[0]["ready"], frame[0]["isolation"]
        _log.info("sandbox %s: jail %s, isolation level %s", self.name, self.jail, self.level)

    def _end_process(self) -> None:
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _pack(self, jobs: dict[int, _Waiting]) -> bytes:
        frames = []
        for number, waiting in jobs.items():
            wall_s = (waiting.planned.job.limits or self._limits).wall_s
            frames.append(wire.pack({"n": number, "wall_s": wall_s}, wire.pack_job(waiting.planned)))
        return b"".join(frames)

    def _forget(self, numbers: Sequence[int]) -> None:
        with self._lock:
            left = [number for number in numbers if self._waiting.pop(number, None) is not None]
        if left and not self._closed:
            self._send(self._link, wire.pack({"forget": left}))

    def _send(self, link: wire.Link, data: bytes) -> None:
        try:
            with self._sending:
                link.connection.sendall(data)
        except OSError:
            return  # the reader notices, and sends the waiting jobs again

    def _read(self) -> None:
        while True:
            try:
                frame = self._link.receive()
                if frame is not None:
                    self._receive(*frame)
                    continue
            except (ValueError, LookupError, TypeError, EOFError) as error:
                _log.exception("sandbox %s: the broker sent what is no verdict: %s", self.name, error)
                self._process.kill()
            if not self._restart():
                return

    def _receive(self, head: wire.Head, body: bytes) -> None:
        if "health" in head:
            self._healths.put(head["health"])
            return
        number = head["n"]
        waiting = self._waiting.get(number)
        if waiting is None:
            return
        if body:
            verdict = wire.unpack_verdict(body, waiting.planned)
        else:
            verdict = blank_verdict(waiting.planned, Status(head["status"]), head["error"])
        own = {"id": waiting.planned.job.id, "attempts": head["attempts"], "backend": f"{self.name}/{self.jail}"}
        verdict = replace(verdict, **own)
        with self._lock:
            found = self._waiting.pop(number, None)
        self._deaths, self._progress = 0, time.monotonic()
        if found is not None:
            found.done.put(verdict)

    def _restart(self) -> bool:
        """Start a new broker after the old one died; return False if the executor was closed."""
        with self._lock:
            self._deaths += 1
            self._waiting = {number: self._waiting[number] for number in resent(list(self._waiting), self._slots)}
        reason = f"the broker ended with status {self._process.wait()}"
        if not self._closed:
            _log.warning("sandbox %s: %s; %d jobs are sent again", self.name, reason, len(self._waiting))
        while True:
            with self._lock:
                if self._closed:
                    self._fail_all("the executor was closed")
                    return False
                if self._deaths >= _DEATHS and time.monotonic() > self._progress + _PATIENCE_S and self._waiting:
                    self._fail_all(f"{self._deaths} brokers gave no verdict for {_PATIENCE_S:g} s: {reason}")
                try:
                    self._start()
                    pending = self._pack(self._waiting)
                    break
                except (SandboxUnavailable, OSError) as error:
                    self._deaths += 1
                    reason = str(error)
                self._wanted.clear()
            self._wanted.wait(min(0.05 * self._deaths, _LONGEST_PAUSE_S))
        threading.Thread(target=self._send, args=(self._link, pending), daemon=True).start()
        return True

    def _fail_all(self, reason: str) -> None:
        if self._waiting:
            _log.error("sandbox %s: %d jobs end as infra_error: %s", self.name, len(self._waiting), reason)
        for waiting in self._waiting.values():
            waiting.done.put(blank_verdict(waiting.planned, Status.INFRA_ERROR, reason))
        self._waiting.clear()


def resent(numbers: list[int], slots: int) -> list[int]:
    """Return the order in which to send jobs to a new broker: those in the old one's slots come last.

    If they were first, slow jobs could hold every slot until the next broker dies, and no other would be judged.
    """
    return numbers[slots:] + numbers[:slots]


def _search_path() -> list[str]:
    """Return this process's `sys.path`, absolute; without a working folder its relative entries name nothing."""
    places = []
    for place in filter(None, sys.path):
        with suppress(FileNotFoundError):
            places.append(str(Path(place).absolute()))
    return places


def _environment() -> dict[str, str]:
    """Return the broker's environment: this process's (for DOCKER_HOST and the like) without Python's settings."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    # Each thread takes address space, which is limited in judges.
    few = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return ours | few | {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def blank_verdict(planned: Planned, status: Status, error: str) -> Verdict:
    """Return the verdict of a job of which no case has run."""
    return Verdict(id=planned.job.id, status=status, passed=0, total=planned.total, error=error)
