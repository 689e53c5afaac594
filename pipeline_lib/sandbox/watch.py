"""Decide when a program has used too much time, or too much of another resource.

CPU time is the measure; the wall clock only ends a program that waits without using CPU time.  It stops while the
program waits for a processor, and while the judge itself does not run, because then the machine was suspended or
overloaded.
"""

from __future__ import annotations

import time

from pipeline_lib.sandbox.inside import scratch
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.starvation import waited_for_processor
from pipeline_lib.sandbox.worker import Worker

_FIRST_LOOK_S = 0.05  # answers quicker than this cost no look at the CPU clock
_LONGEST_NAP_S = 0.25
_SHORTEST_NAP_S = 0.002
_WALL_PER_CPU, _LEAST_WALL_S = 3.0, 1.0  # seconds of wall clock for each of CPU that an answer may take, and at least
_MOST_GRACE = 3.0  # wall limits by which a busy machine may put off the end of a job
_LEAST_GRACE_S = 0.005


class Clocks:
    """What a program has used of its time, with all the processes that it has one after the other.

    Attributes:
        cpu_s: of the processes that have ended.
        wall_end: when its time is over, on the monotonic clock; put off by what is not its doing.
    """

    def __init__(self, limits: Limits, worker: Worker) -> None:
        self.limits = limits
        self.worker = worker
        self.cpu_s = 0.0
        self._graced = 0.0
        self._waited = 0.0
        self._stopped = time.monotonic()
        self.wall_end = self._stopped + limits.wall_s

    def begin(self) -> None:
        """Take note of a new process."""
        self._waited = 0.0

    def run(self) -> float:
        """Let time run for the program; return when that is."""
        now = time.monotonic()
        self.wall_end += now - self._stopped
        return now

    def stop(self, now: float) -> None:
        """Let it stand: what comes is the tests' own time."""
        self._stopped = now

    def grace(self) -> float:
        """Return the seconds by which to put the end off: those in which the process was kept from running."""
        waited = waited_for_processor(self.worker.jail.host_pid)
        if waited is None:
            return 0.0
        grace = min(waited - self._waited, _MOST_GRACE * self.limits.wall_s - self._graced)
        self._waited = waited
        self._graced += grace
        self.wall_end += grace
        return grace

    def put_off(self, seconds: float) -> None:
        """Put the end off by seconds in which the judge did not run, however many: no program can cause them."""
        self.wall_end += seconds


class Watch:
    """Follows one exchange with a program, which may take ``cpu_s`` seconds of its CPU time."""

    def __init__(self, clocks: Clocks, cpu_s: float) -> None:
        self.clocks = clocks
        self.cpu_s = cpu_s
        self.started = clocks.run()
        self.wall_end = min(self.started + max(_WALL_PER_CPU * cpu_s, _LEAST_WALL_S), clocks.wall_end)
        first = min(_FIRST_LOOK_S, cpu_s / 2, max(self.wall_end - self.started, _SHORTEST_NAP_S))
        self.next_look = self.started + first
        self.base: float | None = None

    def nap_ms(self) -> float:
        """Return how long to wait for an answer before looking at the clocks, in milliseconds."""
        return max(0.0, self.next_look - time.monotonic()) * 1000 + 0.5

    def look(self, answered: bool) -> tuple[str, str] | None:
        """Return the event if the program has used up what it may use, else None.

        Args:
            answered: its answer is there, so that it is not late, whenever this process came to look.
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
            if grace < _LEAST_GRACE_S:
                return "timeout", f"no answer within {now - self.started:.1f} s"
            self.wall_end += grace
        rest = min(self.cpu_s - used, limits.cpu_s - total, self.wall_end - now)
        self.next_look = now + min(max(rest, _SHORTEST_NAP_S), _LONGEST_NAP_S)
        return None

    def end(self) -> None:
        """Stop the clocks."""
        now = time.monotonic()
        self._overslept(now)
        self.clocks.stop(now)

    def _overslept(self, now: float) -> bool:
        """Return whether it is time to look; leave out the time since it was."""
        overslept = now - self.next_look
        if overslept < 0:
            return False
        self.wall_end += overslept
        self.clocks.put_off(overslept)
        return True
