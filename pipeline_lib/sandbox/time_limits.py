"""Decide when a program has used too much time, or too much of another resource.

The limit is on CPU time; the wall clock only ends a program that waits without using CPU time.  The wall clock stops
while the program waits for a processor, and while the judge itself does not run because the machine is suspended or
overloaded.
"""

from __future__ import annotations

import time

from pipeline_lib.sandbox.inside import scratch
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.worker import ProgramWorker

_FIRST_CHECK_S = 0.05  # the CPU clock is not read for answers faster than this
_MAX_POLL_S = 0.25
_MIN_POLL_S = 0.002
_WALL_PER_CPU, _MIN_WALL_S = 3.0, 1.0  # wall-clock seconds per CPU second that an answer may take, and the minimum
_MAX_GRACE = 3.0  # by how many wall limits a busy machine may extend a job
_MIN_GRACE_S = 0.005


class Clocks:
    """The time that a program has used, over all its successive processes.

    Attributes:
        cpu_s: CPU seconds of the processes that have ended.
        wall_end: the deadline on the monotonic clock; extended by delays that the program did not cause.
    """

    def __init__(self, limits: Limits, worker: ProgramWorker) -> None:
        self.limits = limits
        self.worker = worker
        self.cpu_s = 0.0
        self._graced = 0.0
        self._waited = 0.0
        self._stopped = time.monotonic()
        self.wall_end = self._stopped + limits.wall_s

    def begin(self) -> None:
        """Reset the waiting time for a new process."""
        self._waited = 0.0

    def run(self) -> float:
        """Start the program's wall clock; return the current time."""
        now = time.monotonic()
        self.wall_end += now - self._stopped
        return now

    def stop(self, now: float) -> None:
        """Stop the program's wall clock: the tests are running."""
        self._stopped = now

    def grace(self) -> float:
        """Extend the deadline by the seconds in which the process waited for a processor; return these seconds."""
        waited = self.worker.waited()
        if waited is None:
            return 0.0
        grace = min(waited - self._waited, _MAX_GRACE * self.limits.wall_s - self._graced)
        self._waited = waited
        self._graced += grace
        self.wall_end += grace
        return grace

    def extend(self, seconds: float) -> None:
        """Extend the deadline by seconds in which the judge did not run; no program can cause them."""
        self.wall_end += seconds


class Watch:
    """The time limits of one exchange with a program, which may take ``cpu_s`` seconds of CPU time."""

    def __init__(self, clocks: Clocks, cpu_s: float) -> None:
        self.clocks = clocks
        self.cpu_s = cpu_s
        self.started = clocks.run()
        self.wall_end = min(self.started + max(_WALL_PER_CPU * cpu_s, _MIN_WALL_S), clocks.wall_end)
        first = min(_FIRST_CHECK_S, cpu_s / 2, max(self.wall_end - self.started, _MIN_POLL_S))
        self.next_check = self.started + first
        self.base: float | None = None

    def poll_timeout_ms(self) -> float:
        """Return how long to wait for an answer before the next check, in milliseconds."""
        return max(0.0, self.next_check - time.monotonic()) * 1000 + 0.5

    def check(self, answered: bool) -> tuple[str, str] | None:
        """Return the event if the program has exceeded a limit, else None.

        Args:
            answered: its answer has arrived, so it cannot exceed the wall-clock limit any more.
        """
        now = time.monotonic()
        if not self._overslept(now):
            return None
        limits = self.clocks.limits
        load = self.clocks.worker.load()
        if self.base is None:
            self.base = max(0.0, load.cpu_s - (now - self.started))
        used, total = load.cpu_s - self.base, self.clocks.cpu_s + load.cpu_s
        if used >= self.cpu_s:
            return "timeout", f"a call took more than {self.cpu_s:g} s of CPU time"
        if total >= limits.cpu_s:
            return "timeout", f"the program took more than {limits.cpu_s:g} s of CPU time"
        if load.entries > scratch.MOST_ENTRIES or load.scratch_mb > 1.5 * limits.file_mb:
            return "output_limit", "the program wrote more temporary files than it may"
        if now >= self.wall_end and not answered:
            grace = self.clocks.grace()
            if grace < _MIN_GRACE_S:
                return "timeout", f"no answer within {now - self.started:.1f} s"
            self.wall_end += grace
        rest = min(self.cpu_s - used, limits.cpu_s - total, self.wall_end - now)
        self.next_check = now + min(max(rest, _MIN_POLL_S), _MAX_POLL_S)
        return None

    def end(self) -> None:
        """Stop the clocks."""
        now = time.monotonic()
        self._overslept(now)
        self.clocks.stop(now)

    def _overslept(self, now: float) -> bool:
        """Return whether a check is due; extend the deadlines by the time since it became due."""
        overslept = now - self.next_check
        if overslept < 0:
            return False
        self.wall_end += overslept
        self.clocks.extend(overslept)
        return True
