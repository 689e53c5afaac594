"""Limits on the cost of tests in their own process: they are trusted, but not the program's values.

A value that is small to send can be expensive to use: tests may count up to it, or multiply by it.
"""

from __future__ import annotations

import _signal  # `signal` would look up an enum member at every call
import math
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pipeline_lib.sandbox.jobs import Limits

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
