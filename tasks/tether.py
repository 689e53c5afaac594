"""Ties the life of a process to its parent's.

As a program, ``python tether.py <parent's pid> <command> [argument ...]``, it runs a command that must not outlive its
parent: the kernel ends it with SIGTERM when the parent is gone, however that ended (Linux; elsewhere it just runs).
By path and without site packages, so that it costs some milliseconds only.
"""

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Ask the kernel for SIGTERM when the parent, whose process id is given, is gone; at once if it is already."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
