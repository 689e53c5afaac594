"""Gates: decisions about groups and levels, without state and without random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline_lib.training.advantages import is_flat

#: Normal quantile of a two-sided 95 % interval; each limit is exceeded by chance in 2.5 %.
Z = 1.96


def has_signal(returns: Sequence[float | None]) -> bool:
    """Return whether a group has a gradient: at least two returns are known, and they differ.

    If all returns are equal, all advantages are 0.
    """
    known = np.array([value for value in returns if value is not None], dtype=np.float64)
    return known.size > 1 and not is_flat(known)


def wilson(mean: float, count: int, z: float = Z) -> tuple[float, float]:
    """Return Wilson's interval of a share (1927).

    Args:
        mean: mean of a quantity in [0, 1]; if it takes other values than 0 and 1 the interval is conservative, because
            a Bernoulli variable has the largest variance for its mean.
        count: independent observations; 0 gives (0, 1).
        z: width in standard errors.
    """
    if count == 0:
        return 0.0, 1.0
    centre = (mean + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(mean * (1 - mean) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True, slots=True)
class Mastery:
    """A level is mastered if the unfavourable limit of a metric's interval reaches a bound.

    Attributes:
        metric: a metric of the environment within [0, 1], for example ``deadlock`` or ``all_passed``.
        bound: value that the unfavourable limit must reach.
        smaller: smaller values are better (``deadlock``), else larger ones (``all_passed``).
    """

    metric: str
    bound: float
    smaller: bool

    def unfavourable_limit(self, values: Sequence[float]) -> float:
        """Return the unfavourable limit of the interval of the metric's mean."""
        mean = float(np.mean(values)) if len(values) else 0.5
        low, high = wilson(mean, len(values))
        return high if self.smaller else low

    def mastered(self, values: Sequence[float]) -> bool:
        """Return whether these independent episodes show that the level is mastered."""
        limit = self.unfavourable_limit(values)
        return limit <= self.bound if self.smaller else limit >= self.bound


@dataclass(frozen=True, slots=True)
class Plateau:
    """A reward has stopped rising if one window of updates is hardly better than the window before.

    It needs no level that a team must reach: a team at the ceiling has a plateau, and so has one that a single turn
    cannot teach more.

    Attributes:
        window: updates per window.
        rise: least difference between two windows that counts as rising.
    """

    window: int
    rise: float

    def reached(self, values: Sequence[float]) -> bool:
        """Return whether the last two windows of these values show a plateau; False if there are fewer values."""
        if len(values) < 2 * self.window:
            return False
        before, now = values[-2 * self.window : -self.window], values[-self.window :]
        return float(np.mean(now)) - float(np.mean(before)) < self.rise
