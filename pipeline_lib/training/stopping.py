"""Stop on request: SIGTERM, or a request of the caller, ends training between two units of work.

Ctrl-C does not need this: KeyboardInterrupt ends training at once.  In both cases the newest point to continue from
stays complete, and the same command goes on from it.
"""

from __future__ import annotations

import contextlib
import fcntl
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from pipeline_lib.training.optimiser import TrainingError


class TrainingStopped(RuntimeError):
    """Training was stopped on request before its last step; the same command continues it."""


@contextlib.contextmanager
def stop_requests(should_stop: Callable[[], bool]) -> Iterator[Callable[[], None]]:
    """Yield a function that raises `TrainingStopped` after a request to stop.

    SIGTERM is handled during the block if this is the main thread and there is no other handler.
    """
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    def check() -> None:
        if received:
            raise TrainingStopped("stopped by SIGTERM; the same command continues from its last minute")
        if should_stop():
            raise TrainingStopped("stopped on request; the same command continues from its last minute")

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield check
        return
    signal.signal(signal.SIGTERM, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def exclusive_lock(scratch: Path) -> Iterator[None]:
    """Lock the run's folder against a second process; the operating system frees the lock when the process ends.

    Raises:
        TrainingError: another process trains there.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    with (scratch / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(
                f"{scratch}: another process is training this very run; wait for it, or stop it"
            ) from None
        yield
