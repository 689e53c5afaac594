"""Start child processes that are never left over: each leads a process group, and ends with this process."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import psutil

from pipeline_lib.memory import all_memory
from tasks.services.end_with_parent import STOP_S


def tied(command: Sequence[str], by: int = signal.SIGTERM) -> list[str]:
    """Return a command that ends, by a signal, when this process has ended for any reason (`end_with_parent`)."""
    wrapper = Path(__file__).with_name("end_with_parent.py")
    return [sys.executable, "-S", str(wrapper), str(os.getpid()), str(int(by)), *command]


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    output: IO[Any] | int,
    by: int = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own, tied to the life of this process (`tied`); with this output."""
    return subprocess.Popen(
        tied(command, by),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        cwd=cwd,
        start_new_session=True,  # Ctrl-C in the terminal reaches us alone, and we end it in order
    )


def stop(process: subprocess.Popen[bytes], timeout_s: float = STOP_S) -> None:
    """End a process that `start` started and everything below it: politely first, by force after ``timeout_s`` s."""
    members = family(process.pid)
    _signal(process.pid, members, signal.SIGTERM)
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and (process.poll() is None or _alive(members)):
        members |= family(process.pid)
        time.sleep(0.05)
    if process.poll() is None or _alive(members):
        _signal(process.pid, members, signal.SIGKILL)
    process.wait()


def family(pid: int) -> set[psutil.Process]:
    """Return a process and all below it, also those that have left its group."""
    with contextlib.suppress(psutil.NoSuchProcess):
        head = psutil.Process(pid)
        return {head, *head.children(recursive=True)}
    return set()


def _alive(family: set[psutil.Process]) -> bool:
    return any(_runs(member) for member in family)


def _runs(member: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return member.is_running() and member.status() != psutil.STATUS_ZOMBIE
    return False


def _signal(group: int, family: set[psutil.Process], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if os.getpgid(member.pid) != group:
                member.send_signal(number)


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
