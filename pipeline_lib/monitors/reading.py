"""What a monitor says after an update, and the arithmetic that monitors share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Row = Mapping[str, float]
"""The metrics of an update by name."""

#: A line in the metrics of the update after which a monitor ended the run; its name follows.
ENDED = "monitors/ended/"

#: Number of standard errors from an estimate to the ends of its 95 % interval.
Z = 1.96


@dataclass(frozen=True, slots=True)
class Reading:
    """What a monitor says after an update."""

    monitor: str  #: its name, one of `judge.MONITORS`
    subject: str  #: the agent or turn concerned; empty if there is only one
    fires: bool  #: whether something is wrong
    sentence: str  #: what was found, with numbers

    @property
    def key(self) -> str:
        """Return the name of its line in the metrics."""
        return f"monitors/{self.monitor}" + (f"/{self.subject}" if self.subject else "")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its standard error."""

    value: float
    error: float

    @property
    def low(self) -> float:
        """Return the lower end of the 95 % interval."""
        return self.value - Z * self.error

    @property
    def high(self) -> float:
        """Return the upper end of the 95 % interval."""
        return self.value + Z * self.error

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def pooled(rows: Sequence[Row], name: str, error: str) -> Estimate | None:
    """Return the mean over updates of an estimate, or None if no row has it; ``error`` is the name of its standard
    error.

    Errors of different updates are independent, given the weights.
    """
    found = [(row[name], row[error]) for row in rows if name in row and error in row]
    if not found:
        return None
    return Estimate(
        math.fsum(value for value, _ in found) / len(found), math.sqrt(math.fsum(e * e for _, e in found)) / len(found)
    )


def mean(rows: Sequence[Row], name: str) -> float | None:
    """Return the mean of a metric over the rows that have it, or None."""
    found = [row[name] for row in rows if name in row]
    return math.fsum(found) / len(found) if found else None


def subjects(rows: Sequence[Row], prefix: str) -> list[str]:
    """Return what stands behind ``prefix`` in the names of metrics, in order of first appearance."""
    return list(dict.fromkeys(name.removeprefix(prefix) for row in rows for name in row if name.startswith(prefix)))
