"""Limits on the cost of the tests of one job in the judge, which trusts the tests but not the program's values.

A value that is small to send can be large to use: tests may count up to it, or multiply with it.
"""

from __future__ import annotations

import _signal  # what `signal` looks for names of numbers in, at every call
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType

from pipeline_lib.sandbox.jobs import Limits

# By so much the kernel's end comes after the polite one, which has to wait for what the interpreter does in one piece.
_KERNEL_LATER_S = 3.0
_NUMPY_MB = 256  # address space that numpy takes when it is loaded
_PAGE = os.sysconf("SC_PAGESIZE")
# This process's CPU time as RLIMIT_CPU counts it: in ticks, which over hours gets seconds away from what
# `time.process_time` measures.
_KERNELS_COUNT = -8  # MAKE_PROCESS_CPUCLOCK(0, CPUCLOCK_PROF)


@contextmanager
def bounded(limits: Limits, late: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Bound CPU time and memory of this process for the tests of one job.

    Beyond ``limits.memory_mb`` more of address space than it has now there is a MemoryError.  After half a second more
    than ``limits.cpu_s`` of CPU time ``late`` is called, as a signal handler; where nothing of Python runs that could
    call it, the kernel ends the process with SIGXCPU three to four seconds later.
    """
    global _late
    cpu_s = 0.5 + limits.cpu_s
    if _signal.getsignal(signal.SIGPROF) is not _alarm:  # once is enough, as long as no tests set another
        signal.signal(signal.SIGPROF, _alarm)
    _late = late
    time_limit, space_limit = _usual_limits()
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    last_s = math.ceil(time.clock_gettime(_KERNELS_COUNT) + cpu_s + _KERNEL_LATER_S)
    resource.setrlimit(resource.RLIMIT_CPU, (last_s, time_limit[1]))
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + (_room_mb(limits) << 20), space_limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, space_limit)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _late = None
        resource.setrlimit(resource.RLIMIT_CPU, time_limit)  # this process goes on to other jobs


@lru_cache(maxsize=1)
def _usual_limits() -> tuple[tuple[int, int], tuple[int, int]]:
    """Return this process's limits of CPU time and address space, which nobody else changes."""
    return resource.getrlimit(resource.RLIMIT_CPU), resource.getrlimit(resource.RLIMIT_AS)


def _room_mb(limits: Limits) -> int:
    return math.ceil(limits.memory_mb) + (0 if "numpy" in sys.modules else _NUMPY_MB)


_late: Callable[[int, FrameType | None], None] | None = None


def _alarm(number: int, frame: FrameType | None) -> None:
    if _late is not None:
        _late(number, frame)


_facts: tuple[int, int] = (0, -1)  # a process, and its descriptor of the file in which the kernel says what it has


def _address_space() -> int:
    """Return the bytes of address space that this process has."""
    global _facts
    if _facts[0] != os.getpid():
        _facts = (os.getpid(), os.open("/proc/self/statm", os.O_RDONLY))
    try:
        return int(os.pread(_facts[1], 64, 0).split()[0]) * _PAGE
    except (OSError, ValueError, IndexError):  # tests have closed it
        _facts = (0, -1)
        return _address_space()
