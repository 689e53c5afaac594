"""The name and format of a metric; each environment defines them for its own metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Literal

#: Values, ranges and margins up to this size can be computed with: the statistics use fourth powers.
GREATEST = 1e50


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity of an episode.

    Attributes:
        label: axis label and noun in sentences.
        about: what it measures in an episode: a clause without a capital and a full stop.
        share: the metric is a fraction in [0, 1] and is shown in per cent, differences in points.
        better: which direction is good; for a primary metric higher must be better.
        low: smallest possible value, or None if unknown; 0 for a share.
        high: greatest possible value, or None if unknown; 1 for a share.  Without both there is no verdict.
        behaviour: whether it describes how a team behaves, not how well it does.
        over_checkpoints: whether it stands beside the primary metric, and a share is plotted over the checkpoints.
        at_k: name of the expected best value among k episodes, for example ``accuracy`` for ``accuracy@k``.
        solves: whether a value of 1 or more is a success; pass@k and pass^k count these.

    Raises:
        ValueError: ``better`` is another word, an end is not finite, or ``low`` is not below ``high``.
    """

    label: str
    about: str = ""
    share: bool = False
    better: Literal["higher", "lower"] = "higher"
    low: float | None = None
    high: float | None = None
    behaviour: bool = False
    over_checkpoints: bool = False
    at_k: str = ""
    solves: bool = False

    def __post_init__(self) -> None:
        if self.better not in ("higher", "lower"):
            raise ValueError(f"better is {self.better!r}; it must be 'higher' or 'lower'")
        if self.share and self.low is None and self.high is None:
            object.__setattr__(self, "low", 0.0)
            object.__setattr__(self, "high", 1.0)
        if not all(end is None or math.isfinite(end) for end in (self.low, self.high)):
            raise ValueError(f"{self.label}: {self.low} to {self.high} is no range; leave out an end that there is not")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"{self.label}: low is {self.low:g}, which must be below high, {self.high:g}")

    @property
    def reach(self) -> float:
        """The greatest difference between two values; infinite without a declared range."""
        return math.inf if self.low is None or self.high is None else self.high - self.low

    def text(self, value: float) -> str:
        """Return a value with its unit, for example ``71.3 %``."""
        return f"{100 * value:.1f} %" if self.share else f"{value:.3g}"

    def difference(self, value: float) -> str:
        """Return a difference with sign and unit, for example ``+12.4 points``."""
        if self.share:
            return f"{round(100 * value, 1) + 0.0:+.1f} points"  # adding 0 turns -0.0 into +0.0
        return f"{round(value, 9) + 0.0:+.3g}"  # what a sum of decimal fractions leaves is no difference

    def judges_nothing(self, margin: float) -> str:
        """Return why no difference of this metric can exceed ``margin`` (in its unit); an empty text if one can."""
        if margin < self.reach:
            return ""
        return (
            f"{margin:g} is not less than the whole range of {self.label}, {self.low:g} to {self.high:g}, so any two "
            f"teams would be equivalent{'; 0.05 is 5 points' if self.share else ''}"
        )


#: A share that describes how a team behaves.
behaviour = partial(Metric, share=True, behaviour=True)

Metrics = Mapping[str, Metric]
"""The metrics of an environment by name, in display order; every environment also has ``reward``."""

NO_METRICS: Metrics = MappingProxyType({})
"""No metrics."""


def with_reward(metrics: Metrics, low: float, high: float) -> Metrics:
    """Return the metrics with the range of an episode's reward (`Environment.episode_bounds`), if it is one."""
    if not 0 < high - low < math.inf:
        return metrics
    return {**metrics, "reward": replace(describe("reward", metrics), low=low, high=high)}


def describe(name: str, metrics: Metrics) -> Metric:
    """Return the name and format of a metric; an unknown metric is a plain number under its own name."""
    return metrics.get(name) or Metric(name.replace("_", " "))
