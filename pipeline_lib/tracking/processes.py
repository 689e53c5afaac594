"""Names for processes, by which another process can tell whether one is still there."""

from __future__ import annotations

import os
import socket

import psutil


def own_process() -> str:
    """Return a name of this process that no later process on this machine can have."""
    return f"{socket.gethostname()}:{os.getpid()}:{psutil.Process().create_time():.2f}"


def is_gone(process: str) -> bool:
    """Return whether a process named by `own_process` is known to be gone; False if it runs on another machine."""
    try:
        host, pid, created = process.rsplit(":", 2)
        if host != socket.gethostname():
            return False
        return abs(psutil.Process(int(pid)).create_time() - float(created)) > 1.0
    except ValueError:
        return False
    except psutil.NoSuchProcess:
        return True
