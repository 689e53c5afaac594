"""Names for processes, by which another process can check whether one is still running."""

import os
import socket

import psutil


def own_process(pid: int | None = None) -> str:
    """Return a unique name of this process, or of the one with this id: host, process id and start time."""
    return f"{socket.gethostname()}:{pid or os.getpid()}:{psutil.Process(pid).create_time():.2f}"


def is_gone(process: str) -> bool:
    """Return whether a process named by `own_process` is known to have ended; False if it is on another machine.

    A zombie has ended.
    """
    try:
        host, pid, created = process.rsplit(":", 2)
        if host != socket.gethostname():
            return False
        running = psutil.Process(int(pid))
        return abs(running.create_time() - float(created)) > 1.0 or running.status() == psutil.STATUS_ZOMBIE
    except ValueError:
        return False
    except psutil.NoSuchProcess:
        return True
