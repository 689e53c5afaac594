"""Decide when a program, or its tests, have used too much time.

The limit of a program is on CPU time; the wall clock only ends a program that waits without using CPU time.  The wall
clock stops while the program waits for a processor, and while the judge itself does not run because the machine is
suspended or overloaded.

Tests have limits, too: they are trusted, but not the program's values.  A value that is small to send can be expensive
to use: tests may count up to it, or multiply by it.
"""

from __future__ import annotations

import _signal
import math
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pipeline_lib.sandbox.inside import folders
from pipeline_lib.sandbox.jobs import Limits
from pipeline_lib.sandbox.worker import ProgramWorker


def waited_for_processor(jail: int) -> float | None:
    """Return the seconds that the program in a jail has been ready to run but did not.

    Args:
        jail: process id of the jail's outermost process; the program is the last of its descendants.

    Returns:
        The longest wait of any of the program's threads since it was forked.
    """
    try:
        program = leaf(jail)
        tasks = (Path("/proc") / str(program) / "task").iterdir()
        return max(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def runnable_s(pid: int) -> float | None:
    """Return the seconds that a single-threaded process has run or been ready to run since it was forked."""
    try:
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
        return (int(ran) + int(waited)) / 1e9
    except (OSError, ValueError):
        return None


def leaf(pid: int) -> int:
    """Return the youngest descendant of ``pid`` that has no children."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    while pid in children:
        pid = max(children[pid])
    return pid


# RLIMIT_CPU ends the process this much later than the signal handler, which must wait until a C function returns.
_HARD_LIMIT_DELAY_S = 3.0
_PAGE = os.sysconf("SC_PAGESIZE")
# This process's CPU time as RLIMIT_CPU counts it: in ticks, which over hours drift by seconds from
# `time.process_time`.
_RLIMIT_CPU_CLOCK = -8  # MAKE_PROCESS_CPUCLOCK(0, CPUCLOCK_PROF)


@contextmanager
def bounded(limits: Limits, on_timeout: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Bound the time of this process for the tests of one job.

    After ``limits.cpu_s`` plus half a second of CPU time, or when another process sends SIGPROF, ``on_timeout`` is
    called as a signal handler.  If the interpreter does not run the handler because a C function does not return, the
    kernel ends the process with SIGXCPU three to four seconds later.
    """
    global _on_timeout
    cpu_s = 0.5 + limits.cpu_s
    if _signal.getsignal(signal.SIGPROF) is not _alarm:
        signal.signal(signal.SIGPROF, _alarm)
    _on_timeout = on_timeout
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    last_s = math.ceil(time.clock_gettime(_RLIMIT_CPU_CLOCK) + cpu_s + _HARD_LIMIT_DELAY_S)
    _, most_s = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (last_s if most_s < 0 else min(last_s, most_s), most_s))
    try:
        yield
    finally:
        _on_timeout = None
        signal.setitimer(signal.ITIMER_PROF, 0)


_on_timeout: Callable[[int, FrameType | None], None] | None = None


def _alarm(number: int, frame: FrameType | None) -> None:
    if _on_timeout is not None:
        _on_timeout(number, frame)


def address_space() -> int:
    """Return the bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE


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
        if load.entries > folders.MOST_ENTRIES or load.scratch_mb > 1.5 * limits.file_mb:
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
