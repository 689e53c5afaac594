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
import threading
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
LOOK_S = 0.5
STOP_S = 8.0
"""What a process that is asked to end may take before it is killed: nobody is left to wait for it longer."""


def end_with(parent: int) -> None:
    """Ask the kernel for SIGTERM when the parent, whose process id is given, is gone; at once if it is already."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def end_with_dvc() -> None:
    """Ask for SIGTERM, and SIGKILL some seconds later, when the DVC process that started this stage is gone.

    DVC leaves its stages running when it is killed.  Between the two there may be a shell, which `end_with` cannot
    look through: some shells become the command they are given (bash), others wait for it (dash).  So a thread looks
    every half second.  Does nothing outside a stage of DVC, and where there is no ``/proc``.
    """
    if "DVC_STAGE" not in os.environ or not Path("/proc/self/stat").exists():
        return
    dvc = above_the_stage()

    def watch() -> None:
        with contextlib.suppress(OSError):
            # Who has adopted the stage is another process, or, if DVC was gone before we looked, of another session.
            while above_the_stage() == dvc and os.getsid(dvc) == os.getsid(0):
                time.sleep(LOOK_S)
        end_within(STOP_S)

    threading.Thread(target=watch, name="tether", daemon=True).start()


def end_within(seconds: float) -> None:
    """End this process: politely, and by force if it has not ended by then; to be called in a thread of its own.

    One whose Prefect server is gone as well would else try for a minute to tell it so.
    """
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


def above_the_stage() -> int:
    """Return the nearest ancestor without the variable that DVC gives to a stage: DVC, or who adopted the stage."""
    process = os.getppid()
    with contextlib.suppress(OSError):  # it ended while it was looked at: the caller sees that it is another one
        while b"DVC_STAGE=" in Path(f"/proc/{process}/environ").read_bytes():
            process = int(Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return process


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
