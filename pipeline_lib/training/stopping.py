"""What ends a run before its last step: a request (SIGTERM, or the caller), or a monitor; and the lock of its folder.

A request ends training between two units of work.  Ctrl-C does not need this: KeyboardInterrupt ends training at once.
In both cases the newest point to continue from stays complete, and the same command goes on from it.  Monitors get the
metrics of every update, and have no state besides these, so a run that continues reads what its log holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import FrameType

from pipeline_lib.monitors import ENDED, MONITORS, End, Row, judge
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


logger = logging.getLogger(__name__)


class Watch:
    """The monitors of a run.

    Args:
        end: the metric that the reward should stand for, or None without monitors.
        stop_when: names of the monitors that end the run.
        rows: metrics of the updates so far.
    """

    def __init__(self, end: End | None, stop_when: Collection[str], rows: Sequence[Row] = ()) -> None:
        self._end, self._stop_when = end, stop_when
        self._rows: list[Row] = list(rows)

    @property
    def ended(self) -> bool:
        """Return whether a monitor ended the run."""
        return bool(self._rows) and any(name.startswith(ENDED) for name in self._rows[-1])

    def add(self, step: int, metrics: dict[str, float], may_end: bool) -> dict[str, float]:
        """Return the metrics of an update with what the monitors say, and tell the log what is new.

        Args:
            step: number of the update.
            metrics: of the update.
            may_end: whether the run can end here, because a checkpoint follows.
        """
        before = {name for name, value in (self._rows[-1] if self._rows else {}).items() if value == 1.0}
        readings = judge([*self._rows, metrics], self._end)
        found = metrics | {reading.key: float(reading.fires) for reading in readings}
        for reading in readings:
            monitor = MONITORS[reading.monitor]
            if reading.fires and reading.key not in before:
                logger.warning(
                    "update %d: monitor %s: %s. %s %s",
                    *(step, reading.monitor, monitor.about, reading.sentence, monitor.advice),
                )
            if not reading.fires and reading.key in before:
                logger.info("update %d: monitor %s no longer fires. %s", step, reading.monitor, reading.sentence)
        firing = dict.fromkeys(reading.monitor for reading in readings if reading.fires)
        if may_end and (ending := [name for name in firing if name in self._stop_when]):
            found |= {f"{ENDED}{name}": 1.0 for name in ending}
            logger.warning(
                "update %d: %s ended the run (train.stop_when); its last checkpoint is usable, and a run with "
                "train.stop_when: [] would go on",
                *(step, " and ".join(ending)),
            )
        self._rows.append(found)
        return found
