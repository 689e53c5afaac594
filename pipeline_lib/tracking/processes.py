"""Names for processes, by which another process can tell whether one is still there."""

from __future__ import annotations

import os
import socket

import psutil


def own_process(pid: int | None = None) -> str:
    """Return a name of this process, or the one with this number, that no later process on this machine can have."""
    return f"{socket.gethostname()}:{pid or os.getpid()}:{psutil.Process(pid).create_time():.2f}"


def is_gone(process: str) -> bool:
    """Return whether a process named by `own_process` is known to be gone; False if it runs on another machine.

    One that has ended is gone, also while its parent has not yet asked how.
    """
    try:
        host, pid, created = process.rsplit(":", 2)
        if host != socket.gethostname():
            return False
        found = psutil.Process(int(pid))
        return abs(found.create_time() - float(created)) > 1.0 or found.status() == psutil.STATUS_ZOMBIE
    except ValueError:
        return False
    except psutil.NoSuchProcess:
        return True
