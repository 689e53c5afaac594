"""Gates: yes-or-no decisions about groups and levels.

They have no state and use no random numbers, so the same evidence always gets the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline_lib.training.advantages import is_flat

#: Two-sided 95 %: the bound is wrong in one of forty levels by chance.
Z = 1.96


def teaches(returns: Sequence[float | None]) -> bool:
    """Return whether a group is worth learning from: at least two returns are known, and they differ.

    A group without differences has no gradient (all of its advantages are 0), whatever its level.
    """
    known = np.array([value for value in returns if value is not None], dtype=np.float64)
    return known.size > 1 and not is_flat(known)


def wilson(mean: float, count: int, z: float = Z) -> tuple[float, float]:
    """Return Wilson's interval of a share.

    Args:
        mean: share in [0, 1]; for a quantity between 0 and 1 that is not 0 or 1 the interval is too wide, never too
            narrow, because no such quantity varies more than a coin of the same mean.
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
    """A level is mastered when the unfavourable end of the interval of a metric is good enough.

    Attributes:
        metric: a metric of the environment within [0, 1], for example ``deadlock`` or ``all_passed``.
        bound: what the end of the interval has to reach.
        smaller: small values are good (``deadlock``), else large ones are (``all_passed``).
    """

    metric: str
    bound: float
    smaller: bool

    def end(self, values: Sequence[float]) -> float:
        """Return the unfavourable end of the interval of the metric's mean."""
        mean = float(np.mean(values)) if len(values) else 0.5
        low, high = wilson(mean, len(values))
        return high if self.smaller else low

    def mastered(self, values: Sequence[float]) -> bool:
        """Return whether these independent episodes show that the level is mastered."""
        end = self.end(values)
        return end <= self.bound if self.smaller else end >= self.bound
