"""Limits on the cost of the tests of one job in the judge, which trusts the tests but not the program's values.

A value that is small to send can be expensive to use: tests may count up to it, or multiply by it.
"""

from __future__ import annotations

import _signal  # `signal` would look up an enum member at every call
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

# RLIMIT_CPU ends the process this much later than the signal handler, which must wait until a C function returns.
_HARD_LIMIT_DELAY_S = 3.0
_NUMPY_MB = 256  # address space that numpy takes when it is loaded
_PAGE = os.sysconf("SC_PAGESIZE")
# This process's CPU time as RLIMIT_CPU counts it: in ticks, which over hours drift by seconds from
# `time.process_time`.
_RLIMIT_CPU_CLOCK = -8  # MAKE_PROCESS_CPUCLOCK(0, CPUCLOCK_PROF)


@contextmanager
def bounded(limits: Limits, on_timeout: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Bound CPU time and memory of this process for the tests of one job.

    If the address space grows by more than ``limits.memory_mb``, a MemoryError is raised.  After ``limits.cpu_s`` plus
    half a second of CPU time, ``on_timeout`` is called as a signal handler.  If the interpreter does not run the
    handler because a C function does not return, the kernel ends the process with SIGXCPU three to four seconds later.
    """
    global _on_timeout
    cpu_s = 0.5 + limits.cpu_s
    if _signal.getsignal(signal.SIGPROF) is not _alarm:  # tests may have set another handler
        signal.signal(signal.SIGPROF, _alarm)
    _on_timeout = on_timeout
    time_limit, space_limit = _usual_limits()
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    last_s = math.ceil(time.clock_gettime(_RLIMIT_CPU_CLOCK) + cpu_s + _HARD_LIMIT_DELAY_S)
    resource.setrlimit(resource.RLIMIT_CPU, (last_s, time_limit[1]))
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + (_room_mb(limits) << 20), space_limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, space_limit)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _on_timeout = None
        resource.setrlimit(resource.RLIMIT_CPU, time_limit)  # this process will judge other jobs


@lru_cache(maxsize=1)
def _usual_limits() -> tuple[tuple[int, int], tuple[int, int]]:
    """Return this process's limits of CPU time and address space, as (soft, hard) pairs."""
    return resource.getrlimit(resource.RLIMIT_CPU), resource.getrlimit(resource.RLIMIT_AS)


def _room_mb(limits: Limits) -> int:
    return math.ceil(limits.memory_mb) + (0 if "numpy" in sys.modules else _NUMPY_MB)


_on_timeout: Callable[[int, FrameType | None], None] | None = None


def _alarm(number: int, frame: FrameType | None) -> None:
    if _on_timeout is not None:
        _on_timeout(number, frame)


_statm: tuple[int, int] = (0, -1)  # process id, and its open descriptor of /proc/self/statm


def _address_space() -> int:
    """Return the bytes of address space that this process has."""
    global _statm
    if _statm[0] != os.getpid():
        _statm = (os.getpid(), os.open("/proc/self/statm", os.O_RDONLY))
    try:
        return int(os.pread(_statm[1], 64, 0).split()[0]) * _PAGE
    except (OSError, ValueError, IndexError):  # tests have closed the descriptor
        _statm = (0, -1)
        return _address_space()
