"""A slot of the broker: a judge process and its current job.

No action of a program may look like a failure of the sandbox.  If a worker is killed, the cause is unknown, so its job
is tried again.  If a job loses its worker again and again and no worker without a program is killed, it is the cause.
"""

from __future__ import annotations

import gc
import math
import os
import selectors
import signal
import socket
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from pipeline_lib.sandbox import judge, wire
from pipeline_lib.sandbox.time_limits import runnable_s

_DEATHS = 2  # workers a job may crash before its verdict is a crash
_KILLS = 6  # workers a job may lose by a kill before it is suspected, if idle ones live on
_LONGEST_WATCH_S = 60.0
SUSPECTED = "suspected"
_LOSSES = 100  # workers a job may lose while idle ones are killed, too, before it ends as an infra_error
_STARTS = 8  # failed starts of a worker that a job needs before it ends as an infra_error

START_S = 60.0  # a judge that takes longer to start its jail is stuck
_OVERTIME, _LEAST_S = 10.0, 30.0  # a judge may be stuck after this many wall limits of the job plus these seconds
_CHECK_S = 2.0  # it is stuck if it was runnable for less than half of this time
_END_S = 3.0  # a judge that takes longer to end is killed


@dataclass(slots=True)
class Entry:
    """A job in the broker.

    Attributes:
        number: the client's.
        body: the job, not decoded.
        wall_s: seconds it may take.
        attempts: times it was given to a judge.
        deaths: workers it crashed.
        losses: workers it lost to a SIGKILL, which no known action of a program can cause.
        kills: such losses while its program ran, since a worker without a program was last killed.
        lived_s: seconds that these workers lived with it.
        given: when it was last given to a judge, on the monotonic clock.
        last_lost: when it last lost a worker, on the monotonic clock.
        unstarted: failed starts of a worker for it.
        late: it has timed out once; the next timeout is final.
        avoid: the slot in which it last lost a worker.
    """

    number: int
    body: bytes
    wall_s: float
    attempts: int = 0
    deaths: int = 0
    losses: int = 0
    kills: int = 0
    lived_s: float = 0.0
    given: float = 0.0
    last_lost: float = 0.0
    unstarted: int = 0
    late: bool = False
    avoid: int = -1

    def lost(self, killed: bool, reason: str, killed_idle: float) -> tuple[str, str] | None:
        """Count a worker that died with the job's program; return status and error if the job must end.

        Instead of a status, `SUSPECTED` says that it is a crash if the slot lives on for `watch_s` without a program.

        Args:
            killed: no known action of a program can cause the death.
            reason: how it died.
            killed_idle: when a worker without a program was last killed, on the monotonic clock.
        """
        if not killed:
            self.deaths += 1
        else:
            self.losses += 1
            if killed_idle > self.last_lost:
                self.kills, self.lived_s = 0, 0.0
            self.last_lost = time.monotonic()
            self.kills += 1
            self.lived_s += self.last_lost - self.given
        if self.deaths >= _DEATHS:
            return "crash", reason
        if self.kills >= _KILLS:
            return SUSPECTED, f"{reason}: {self.kills} times, and nothing else of the sandbox was killed"
        if self.losses >= _LOSSES:
            return "infra_error", f"{reason}: {self.losses} times, as were workers without a program"
        return None

    @property
    def watch_s(self) -> float:
        """Return how long its slot must live without a program for the job to have caused the kills.

        Of kills that have nothing to do with it, at least two in three would fall into that time.
        """
        return min(2 * self.lived_s, _LONGEST_WATCH_S)

    def lost_untouched(self, started: bool, reason: str) -> tuple[str, str] | None:
        """Count a worker that died before it had the program, or, if not ``started``, could not be started."""
        self.losses += 1
        self.unstarted += not started
        if self.losses >= _LOSSES or self.unstarted >= _STARTS:
            return "infra_error", f"{reason}: {self.losses} times"
        return None


@dataclass(slots=True)
class Slot:
    """A judge process and what it is doing.

    Attributes:
        index: number of the slot.
        pid: of the judge, 0 while there is none.
        connection: to the judge.
        ready: its jail has started.
        entry: its current job.
        suspect: a job that waits until it is known whether this slot is killed without a program, too, and its error if
            not; until then the slot gets no job.
        watched_from: since when the slot is idle with a suspect, on the monotonic clock.
        deadline: when to check whether it is stuck, on the monotonic clock.
        start_at: when it may be started again, on the monotonic clock.
        broken: failed starts in a row.
    """

    index: int
    pid: int = 0
    connection: socket.socket | None = None
    frames: wire.Frames = field(default_factory=wire.Frames)
    ready: bool = False
    entry: Entry | None = None
    deadline: float = 0.0
    start_at: float = 0.0
    broken: int = 0
    suspect: tuple[Entry, str] | None = None
    watched_from: float = math.inf
    _worked: float | None = None

    def start(self, config: dict[str, Any], selector: selectors.BaseSelector) -> None:
        """Fork a judge and register its connection with the selector."""
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                gc.freeze()  # collecting the broker's sockets here would close descriptors that have been reused
                os.dup2(theirs.fileno(), 3)
                os.closerange(4, 4096)  # the selector's, the client's and the other slots' descriptors
                judge.serve(socket.socket(fileno=3), self.index, config)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        theirs.close()
        self.connection, self.ready, self.entry = ours, False, None
        self.frames = wire.Frames()
        self.set_deadline(START_S)
        selector.register(ours, selectors.EVENT_READ, self)

    def give(self, entry: Entry) -> bool:
        """Have the judge, which must be idle, judge a job; return False if it is gone."""
        assert self.connection is not None
        entry.attempts += 1
        entry.given = time.monotonic()
        self.entry = entry
        self.set_deadline(_OVERTIME * entry.wall_s + _LEAST_S)
        try:
            self.connection.sendall(wire.pack({"n": entry.number}, entry.body))
        except OSError:
            return False
        return True

    def set_deadline(self, seconds: float) -> None:
        """Allow the judge ``seconds`` for its current step."""
        self.deadline = time.monotonic() + seconds
        self._worked = None

    def is_stuck(self) -> bool:
        """Return whether the judge has taken longer than it may and does nothing.

        A judge that runs, or waits for a processor, ends by itself, or the kernel ends it for too much CPU time.
        """
        if time.monotonic() <= self.deadline:
            return False
        before, self._worked = self._worked, runnable_s(self.pid)
        if self._worked is None or (before is not None and self._worked - before < _CHECK_S / 2):
            return True
        self.deadline = time.monotonic() + _CHECK_S
        return False

    def receive(self) -> list[tuple[wire.Head, bytes]] | None:
        """Return the frames that have arrived from the judge, None once if it has ended."""
        if self.connection is None:
            return []
        try:
            data = self.connection.recv(wire.READ_BYTES)
        except OSError:
            data = b""
        try:
            return self.frames.feed(data) if data else None
        except ValueError:  # bytes that are no frame cost this judge only
            return None

    def stop(self, selector: selectors.BaseSelector) -> int:
        """End the judge and wait for it; return its wait status, 0 if it had to be killed here."""
        status = 0
        killed = False
        if self.connection is not None:
            selector.unregister(self.connection)
            self.connection.close()
            self.connection = None
        if self.pid:
            os.kill(self.pid, signal.SIGTERM)  # it has not been waited for, so the pid is still its own
            end = time.monotonic() + _END_S
            while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                if time.monotonic() > end:
                    killed = True
                    os.kill(self.pid, signal.SIGKILL)
                time.sleep(0.002)
            _, status = os.waitpid(self.pid, 0)
            if killed and status == signal.SIGKILL:
                status = 0
        self.pid, self.ready, self.entry = 0, False, None
        return status
