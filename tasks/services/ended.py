"""How a child process has ended, in words: its status, or the signal that killed it, and the memory that it held."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from pipeline_lib.memory import all_memory

_NEAR = 0.8
"""Share of the memory from which on a process that was killed by SIGKILL was most probably killed for it."""
_GIB = 1 << 30


def ended(status: int, held: int = 0, starved: bool = False) -> str:
    """Return how a process has ended.

    Args:
        status: exit status; negative, or above 128 as shells report it, for a signal.
        held: the most memory that it held at once, bytes; 0 if that is not known.
        starved: whether the kernel has killed a process for want of memory meanwhile (`kernel_kills`).
    """
    number = -status if status < 0 else status - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"status {status}"
    text, all_of_it = f"killed by signal {number} ({name})", all_memory()
    if number == signal.SIGKILL and (starved or held >= _NEAR * all_of_it):
        text += f", most probably for memory: it held {held / _GIB:.1f} GiB of {all_of_it / _GIB:.1f}"
    return text


def kernel_kills() -> int:
    """Return how many processes the kernel has killed for want of memory since it started."""
    for file in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            rows = dict(line.split(maxsplit=1) for line in Path(file).read_text().splitlines())
            return int(rows["oom_kill"])
    return 0
