"""Tries forbidden operations from inside a confined child.

The isolation level is derived from these results, not from the settings.
"""

from __future__ import annotations

import _socket as socket
import os
from collections.abc import Callable


def probe(outside_pid: int) -> dict[str, bool]:
    """Return which operations a program cannot perform: processes, signals, network, files of the machine.

    Args:
        outside_pid: a process that a program must not be able to signal.
    """
    return {
        "no_processes": _refused(_fork),
        "no_signals": _refused(lambda: os.kill(outside_pid, 0)),
        "no_network": _refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()),
        "no_files": _refused(lambda: os.close(os.open("/etc/passwd", os.O_RDONLY))) and _refused(_list_proc),
    }


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _list_proc() -> None:
    os.close(os.open("/proc/self/environ", os.O_RDONLY))


def _refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False
