"""Monitors beside a run: they get the metrics of every update, and may end the run.

They have no state besides the metrics themselves, so a run that continues reads what its log holds.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from pipeline_lib.monitors import ENDED, MONITORS, End, Row, judge

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
