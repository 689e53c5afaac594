"""The backend on this machine: jobs go to the slots of the process that gives them.

Each slot has a thread that owns a judge, and gives it one job after the other.

Promises: every job leads to exactly one verdict; a job whose worker died is tried on a new one; a timeout is confirmed
by a second run before it is final.

No action of a program may look like a failure of the sandbox, nor the other way round.  No known action of a program
can kill its worker or the judge, so a job that loses one is tried again.  If it loses many, it has no verdict.  But
tests may send a signal whose number a program has returned, so the job is to blame for what happens to their process.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from pipeline_lib.sandbox import wire
from pipeline_lib.sandbox.backend import SandboxUnavailable
from pipeline_lib.sandbox.jobs import Limits, Status, Verdict
from pipeline_lib.sandbox.judges import Judges
from pipeline_lib.sandbox.tests_source import Planned
from pipeline_lib.sandbox.time_limits import runnable_s

_log = logging.getLogger(__name__)
_LOSSES = 20  # workers that a job may lose without any blame before it ends as an infra_error
_STARTS = 5  # of the first judge, if it is killed meanwhile
_BROKEN_S = 60.0  # seconds without any worker before all jobs end as infra_error
_LONGEST_PAUSE_S = 5.0  # between two attempts to start a judge
_START_S = 60.0  # a judge that takes longer to start its jail is stuck
_OVERTIME, _LEAST_S = 10.0, 30.0  # a judge may be stuck after this many wall limits of the job plus these seconds
_CHECK_S = 2.0  # it is stuck if it was runnable for less than half of this time
CLOSED = "the executor was closed"


class Lost(Exception):
    """A judge has ended, or had to be killed, before it has answered."""


@dataclass(eq=False, slots=True)
class Entry:
    """A job in the slots."""

    planned: Planned  #: the job
    body: bytes  #: the same, packed
    wall_s: float  #: seconds it may take
    done: SimpleQueue[Verdict]  #: receives the verdict
    attempts: int = 0  #: times it was given to a judge
    blame: int = 0  #: for processes of its tests that have ended; with `wire.CRASH` it is a crash
    losses: int = 0  #: workers and judges that it lost without blame
    late: bool = False  #: it has timed out once; the next timeout is final
    wanted: bool = True  #: somebody waits for the verdict


class Slots:
    """The slots, and the jobs that wait for one.

    Args:
        name: of the backend.
        config: ``slots``, their number, and the configuration of `judges.Judges`.

    Attributes:
        jail: kind of the jails.
        level: their isolation level.

    Raises:
        SandboxUnavailable: no judge can be started.
    """

    def __init__(self, name: str, config: dict[str, Any]) -> None:
        self.name = name
        self.jail = self.level = ""
        self._jails: list[str] = config["jails"]
        self._count: int = config["slots"]
        self._changed = threading.Condition()
        self._waiting: deque[Entry] = deque()
        self._closed = False
        self._done = self._restarts = 0
        self._progress = time.monotonic()  # time of the last verdict, or start of a judge, or first job
        self.judges = Judges(config)
        self._slots = [_Slot(self, 0)]
        try:
            self._start_first()
        except BaseException:
            self.judges.close()
            raise
        self._slots[0].start()

    def _start_first(self) -> None:
        for left in reversed(range(_STARTS)):
            try:
                self._slots[0].make_ready()
                return
            except Lost as error:
                if not left:
                    raise SandboxUnavailable(str(error)) from None

    @property
    def jails(self) -> Sequence[str]:
        """Return the kinds of jail that a judge tries: all of one executor are of the same kind."""
        return [self.jail] if self.jail else self._jails

    def put(self, entry: Entry) -> None:
        """Add a job; raises RuntimeError if the slots are closed."""
        with self._changed:
            if self._closed:
                raise RuntimeError("the executor is closed")
            busy = sum(slot.entry is not None for slot in self._slots)
            if not busy and not self._waiting:
                self._progress = time.monotonic()
            self._waiting.append(entry)
            if len(self._slots) < self._count and busy + len(self._waiting) > len(self._slots):
                self._slots.append(_Slot(self, len(self._slots)))
                self._slots[-1].start()
            self._changed.notify()

    def forget(self, entries: Sequence[Entry]) -> None:
        """Drop the jobs of these that have no verdict: nobody waits for them."""
        with self._changed:
            for entry in entries:
                entry.wanted = False
            self._waiting = deque(entry for entry in self._waiting if entry.wanted)

    def wait(self) -> bool:
        """Wait until there is a job; return False if the slots are closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting)
            return not self._closed

    def take(self) -> Entry | None:
        """Return the next job; None if another slot was faster."""
        with self._changed:
            return self._waiting.popleft() if self._waiting else None

    def started(self, jail: str, level: str) -> None:
        """Note that a judge is ready, and what jail it has."""
        self._progress = time.monotonic()
        if not self.jail:
            self.jail, self.level = jail, level
            _log.info("sandbox %s: jail %s, isolation level %s", self.name, jail, level)

    def cannot_start(self, reason: str, pause_s: float) -> None:
        """Wait before the next attempt to start a judge; end all jobs if none could be started for a minute."""
        with self._changed:
            broken = not any(slot.ready for slot in self._slots)
            if broken and time.monotonic() > self._progress + _BROKEN_S:
                self._fail_all(f"no worker could be started for {_BROKEN_S:g} s: {reason}")
            self._changed.wait_for(lambda: self._closed, pause_s)

    def again(self, entry: Entry) -> None:
        """Have a job judged once more, after all others that wait."""
        with self._changed:
            if self._closed:
                self.end(entry, blank_verdict(entry.planned, Status.INFRA_ERROR, CLOSED))
            elif entry.wanted:
                self._waiting.append(entry)
                self._changed.notify()

    def lost(self, entry: Entry, reason: str, blame: int = 0) -> None:
        """Retry or end a job that has lost a worker, for which it is to ``blame``, or not."""
        with self._changed:
            self._restarts += 1
        entry.blame += blame
        entry.losses += not blame
        if entry.blame >= wire.CRASH:
            self.end(entry, blank_verdict(entry.planned, Status.CRASH, reason))
        elif entry.losses >= _LOSSES:
            reason = f"{reason}: {entry.losses} times"
            self.end(entry, blank_verdict(entry.planned, Status.INFRA_ERROR, reason))
        else:
            self.again(entry)

    def end(self, entry: Entry, verdict: Verdict) -> None:
        """Give a job its verdict."""
        with self._changed:
            self._done += 1
            self._progress = time.monotonic()
        name, backend = entry.planned.job.id, f"{self.name}/{self.jail}"
        entry.done.put(replace(verdict, id=name, attempts=entry.attempts, backend=backend))

    def health(self) -> dict[str, Any]:
        """Return the facts of the slots: jobs, losses, jail, processes."""
        with self._changed:
            running = [slot for slot in self._slots if slot.ready]
            return {
                "jail": self.jail,
                "isolation": self.level,
                "slots": self._count,
                "running": len(running),
                "busy": sum(slot.entry is not None for slot in self._slots),
                "queued": len(self._waiting),
                "done": self._done,
                "restarts": self._restarts,
                "parent": self.judges.parent,
                "judges": [slot.pid for slot in running],
            }

    def close(self) -> None:
        """End all judges; jobs without a verdict end as infra_error."""
        with self._changed:
            self._closed = True
            self._fail_all(CLOSED)
        self.judges.close()
        with self._changed:
            self._changed.notify_all()
        for slot in self._slots:
            slot.join(timeout=10)

    def _fail_all(self, reason: str) -> None:
        if self._waiting:
            _log.error("sandbox %s: %d jobs end as infra_error: %s", self.name, len(self._waiting), reason)
        while self._waiting:
            entry = self._waiting.popleft()
            self.end(entry, blank_verdict(entry.planned, Status.INFRA_ERROR, reason))


class _Slot(threading.Thread):
    """A slot: its thread, its judge and its job.

    Attributes:
        pid: of the judge.
        ready: the judge waits for a job, or has one.
        entry: its job.
    """

    def __init__(self, slots: Slots, index: int) -> None:
        super().__init__(name=f"sandbox-{index}", daemon=True)
        self.pid = 0
        self.ready = False
        self.entry: Entry | None = None
        self._slots, self._index = slots, index
        self._link: wire.Link | None = None
        self._failures = 0  # of starts in a row

    def run(self) -> None:
        """Judge jobs until the slots are closed."""
        while self._slots.wait():
            if self._is_ready() and (entry := self._slots.take()):
                self.entry = entry
                self._judge(entry)
                self.entry = None
        self._drop()

    def _is_ready(self) -> bool:
        try:
            self.make_ready()
            self._failures = 0
        except (SandboxUnavailable, Lost, OSError) as error:
            self._failures += 1
            self._slots.cannot_start(str(error), min(0.05 * 2**self._failures, _LONGEST_PAUSE_S))
        return self.ready

    def make_ready(self) -> None:
        """Start a judge if there is none, and wait until it has a jail.

        Raises:
            SandboxUnavailable: it cannot have one; the message says why.
            Lost: it has ended.
        """
        if self._link is None:
            self._link = wire.Link(self._slots.judges.fork(self._index, self._slots.jails), _CHECK_S)
            _, self.pid = self._answer(_START_S)
        if not self.ready:
            kind, *facts = self._answer(_START_S)
            if kind == "broken":
                self._drop()
                raise SandboxUnavailable(facts[0])
            self.ready = True
            self._slots.started(*facts)

    def _judge(self, entry: Entry) -> None:
        assert self._link is not None
        entry.attempts += 1
        seconds, verdict = _OVERTIME * entry.wall_s + _LEAST_S, None
        try:
            self._link.send(entry.body)
            kind, *rest = self._answer(seconds)
            while kind == "ready":  # a fork server had ended while the slot had no job
                kind, *rest = self._answer(seconds)
            if kind == "verdict":
                verdict = wire.unpack_verdict(rest[0], entry.planned)
        except Exception as error:  # whatever it is, somebody waits
            self._drop()
            self._slots.lost(entry, f"the judge died while it judged this job: {error}")
            return
        if verdict is None:  # "died", and the jail is made anew; or "broken", and it cannot be
            self.ready = False
            if kind == "broken":
                self._drop()
            self._slots.lost(entry, *rest)
        elif verdict.status is Status.TIMEOUT and not (entry.late or rest[1]):
            entry.late = True
            self._slots.again(entry)
        else:
            self._slots.end(entry, verdict)

    def _answer(self, seconds: float) -> Sequence[Any]:
        """Return what the judge says next; raises `Lost` if it has ended, or takes longer and does nothing."""
        assert self._link is not None
        patience = Patience(self.pid, seconds)
        while True:
            try:
                found = self._link.receive()
            except TimeoutError:
                if not patience.is_over():
                    continue
                self._slots.judges.kill(self.pid)
                reason = "it did not finish in time"
            except (ValueError, EOFError, TypeError) as error:
                reason = f"it said what nobody understands: {error}"
            else:
                if found is not None:
                    return found
                reason = "it has ended"
            self._drop()
            raise Lost(reason)

    def _drop(self) -> None:
        """Let go of the judge, which ends without a connection."""
        self.ready = False
        if self._link is not None:
            with suppress(OSError):
                self._link.connection.close()
        self._link, self.pid = None, 0


class Patience:
    """How long to wait for a judge: it is stuck if it has taken longer than it may and does nothing.

    A judge that runs, or waits for a processor, ends by itself, or the kernel ends it for too much CPU time.

    Args:
        pid: of the judge; 0 if it has not said that.
        seconds: that it may take.
    """

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self.deadline = time.monotonic() + seconds
        self._worked: float | None = None

    def is_over(self) -> bool:
        """Return whether it is stuck."""
        if time.monotonic() <= self.deadline:
            return False
        before, self._worked = self._worked, runnable_s(self._pid)
        if self._worked is None or (before is not None and self._worked - before < _CHECK_S / 2):
            return True
        self.deadline = time.monotonic() + _CHECK_S
        return False


def blank_verdict(planned: Planned, status: Status, error: str) -> Verdict:
    """Return the verdict of a job of which no case has run."""
    return Verdict(id=planned.job.id, status=status, passed=0, total=planned.total, error=error)


class LocalBackend:
    """Runs jobs in jails on this machine.

    A process that is forked after it was opened gets slots of its own with its first job.

    Args:
        name: of the backend.
        config: of `Slots`, without limits and path.
        limits: what a program may use.

    Raises:
        SandboxUnavailable: it cannot run here.
    """

    def __init__(self, name: str, config: dict[str, Any], limits: Limits) -> None:
        self.name = name
        self._config = config | {"limits": asdict(limits), "path": _search_path()}
        self._limits = limits
        self._closed = False
        self._slots: dict[int, Slots] = {}  # by process
        self._opening: dict[int, threading.Lock] = {}  # by process: a forked one may get its parent's locked
        try:
            self.level = self._here().level
        except SandboxUnavailable as error:
            raise SandboxUnavailable(f"the sandbox backend {name!r} cannot start: {error}") from None

    def _here(self) -> Slots:
        """Return the slots of this process."""
        with self._opening.setdefault(os.getpid(), threading.Lock()):
            if os.getpid() not in self._slots:
                if self._closed:
                    raise RuntimeError("the executor is closed")
                self._slots[os.getpid()] = Slots(self.name, self._config)
            return self._slots[os.getpid()]

    def execute(self, jobs: Sequence[Planned]) -> Iterator[Verdict]:
        """Yield the verdicts of ``jobs`` as they come."""
        slots, done, entries = self._here(), SimpleQueue[Verdict](), list[Entry]()
        try:
            for planned in jobs:  # the first ones run while the next are packed
                wall_s = (planned.job.limits or self._limits).wall_s
                entries.append(Entry(planned, wire.pack_job(planned), wall_s, done))
                slots.put(entries[-1])
            for _ in jobs:
                yield done.get()
        finally:
            slots.forget(entries)

    def health(self) -> dict[str, Any]:
        """Return the facts of the slots."""
        return self._here().health()

    def close(self) -> None:
        """End all that this process has started."""
        with self._opening.setdefault(os.getpid(), threading.Lock()):
            slots = None if self._closed else self._slots.get(os.getpid())
            self._closed = True
        if slots is not None:
            slots.close()


def _search_path() -> list[str]:
    """Return this process's `sys.path`, absolute; without a working folder its relative entries name nothing."""
    places = []
    for place in filter(None, sys.path):
        with suppress(FileNotFoundError):
            places.append(str(Path(place).absolute()))
    return places
