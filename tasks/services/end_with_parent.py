"""End a process when its parent ends.

The program ``python end_with_parent.py <parent's pid> <signal> <command> [argument ...]`` runs a command that must not
outlive its parent: the kernel sends it the signal when the parent has ended for any reason (on Linux only).  It is run
by path and without site packages, so that it takes only some milliseconds.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
LOOK_S = 0.5
STOP_S = 8.0
"""Seconds between SIGTERM and SIGKILL; no parent is left that could wait longer."""


def end_with(parent: int, by: int = signal.SIGTERM) -> None:
    """Ask the kernel for a signal when the parent with this process id ends; at once if it has already ended."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        os.kill(os.getpid(), by)


def end_with_dvc() -> None:
    """End this process (SIGTERM, some seconds later SIGKILL) when the DVC process that started this stage has ended.

    DVC leaves its stages running when it is killed.  There may be a shell between DVC and the stage, so `end_with` is
    not enough: some shells become the command they are given (bash), others wait for it (dash).  Therefore a thread
    checks every half second.  Does nothing outside a stage of DVC, or without ``/proc``.
    """
    if "DVC_STAGE" not in os.environ or not Path("/proc/self/stat").exists():
        return
    dvc = above_the_stage()

    def watch() -> None:
        with contextlib.suppress(OSError):
            # The new parent is another process, or, if DVC ended before the first check, belongs to another session.
            while above_the_stage() == dvc and os.getsid(dvc) == os.getsid(0):
                time.sleep(LOOK_S)
        end_within(STOP_S)

    threading.Thread(target=watch, name="end-with-dvc", daemon=True).start()


def end_within(seconds: float) -> None:
    """Send this process SIGTERM, and SIGKILL if it still runs after some seconds; to be called in a thread of its own.

    Without SIGKILL, a process whose Prefect server has also ended would try to reach it for a minute.
    """
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def above_the_stage() -> int:
    """Return the nearest ancestor without DVC's variable for stages: DVC, or the new parent of the stage."""
    process = os.getppid()
    with contextlib.suppress(OSError):  # it ended during this check; the caller notices the different process id
        while b"DVC_STAGE=" in Path(f"/proc/{process}/environ").read_bytes():
            process = int(Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return process


if __name__ == "__main__":
    end_with(int(sys.argv[1]), int(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])
