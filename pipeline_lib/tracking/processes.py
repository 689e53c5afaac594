"""Names for processes, by which another process can check whether one is still running.

Host names do not tell machines apart: containers and machines made from one image share them.  So a name has what the
system installed (machine id), the kernel's boot id, and the namespace in which the process id means something.
"""

import os
import socket
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil

from pipeline_lib.storage import pid_namespace


class _Place(NamedTuple):
    """Where process ids mean something; each part is empty where the system does not say."""

    host: str
    system: str
    boot: str
    namespace: str


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()[:12]
    except (OSError, UnicodeDecodeError):
        return ""


@cache
def _here() -> _Place:
    boot = _read("/proc/sys/kernel/random/boot_id")
    return _Place(socket.gethostname(), _read("/etc/machine-id"), boot, pid_namespace())


def own_process(pid: int | None = None) -> str:
    """Return a unique name of this process, or of the one with this id: its place, process id and start time."""
    return f"{'/'.join(_here())}:{pid or os.getpid()}:{psutil.Process(pid).create_time():.2f}"


def is_gone(process: str) -> bool:
    """Return whether a process named by `own_process` is known to have ended; False if it may be on another machine.

    A zombie has ended, and so has what ran on this machine before its last start.
    """
    return _runs(process) is False


def is_alive(process: str) -> bool:
    """Return whether a process named by `own_process` is known to run, on this machine."""
    return _runs(process) is True


def _runs(process: str) -> bool | None:
    try:
        place, pid, created = process.rsplit(":", 2)
        there, started = _Place(*place.split("/")), float(created)
        if there != _here():
            same = there.system != "" and there[:2] == _here()[:2] and there.boot != _here().boot
            return False if same and started < psutil.boot_time() else None
        running = psutil.Process(int(pid))
        return abs(running.create_time() - started) <= 1.0 and running.status() != psutil.STATUS_ZOMBIE
    except (TypeError, ValueError):
        return None
    except psutil.NoSuchProcess:
        return False
