"""Looking more than once without lying: group-sequential bounds by numeric integration.

Scipy and statsmodels have none.  The density of the score process between looks is carried forward on a grid
(Armitage, McPherson & Rowe 1969); a constant bound is Pocock's (1977), one falling with the square root of information
O'Brien & Fleming's (1979).  The simplest policy stays: a fixed number of episodes, and one look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from scipy import optimize, stats

from pipeline_lib.evaluation.results import EvaluationError

GRID = 301  # points of the composite Simpson rule; enough for bounds to better than 1e-6


def crossing_probability(bounds: Sequence[float], information: Sequence[float] | None = None) -> float:
    """Return the chance under no difference that |z| exceeds its bound at any look.

    Args:
        bounds: critical value of |z| at each look.
        information: share of all data available at each look, rising to 1; equal steps when left out.
    """
    times = _times(len(bounds), information)
    inside = 1.0
    grid = np.zeros(1)
    density = np.ones(1)  # of the score (Brownian motion) at time 0: all mass at 0
    weights = np.ones(1)
    before = 0.0
    for bound, time in zip(bounds, times, strict=True):
        edge = bound * math.sqrt(time)
        scale = math.sqrt(time - before)
        # |score| beyond 12 standard deviations has no mass worth integrating, however wide the bound
        reach = min(edge, 12 * math.sqrt(time))
        upper = stats.norm.cdf((edge - grid) / scale) - stats.norm.cdf((-edge - grid) / scale)
        inside = float((weights * density) @ upper)
        points = np.linspace(-reach, reach, GRID)
        step = stats.norm.pdf((points[:, None] - grid[None, :]) / scale) / scale
        density = step @ (weights * density)
        weights = _simpson(points)
        grid, before = points, time
    return 1 - inside


def bounds(
    looks: int,
    alpha: float = 0.05,
    shape: Literal["pocock", "obrien_fleming"] = "obrien_fleming",
    information: Sequence[float] | None = None,
) -> list[float]:
    """Return critical values of |z| for each look, with family-wise error ``alpha`` (two-sided) over all of them.

    Args:
        looks: how many times the data are looked at, 1 to 20.
        alpha: two-sided error over all looks.
        shape: ``pocock`` (the same bound at each look) or ``obrien_fleming`` (strict early, nearly the fixed-sample
            value at the end).
        information: share of all data at each look, rising to 1; equal steps when left out.
    """
    if not 1 <= looks <= 20:
        raise EvaluationError(f"the number of looks must be 1 to 20, got {looks}")
    times = _times(looks, information)
    form: Callable[[float], list[float]] = {
        "pocock": lambda c: [c] * looks,
        "obrien_fleming": lambda c: [c / math.sqrt(time) for time in times],
    }[shape]
    constant = optimize.brentq(
        lambda c: crossing_probability(form(c), times) - alpha,
        float(stats.norm.ppf(1 - alpha / 2)) - 0.01,
        float(stats.norm.ppf(1 - alpha / (2 * looks))) + 0.01,
        xtol=1e-6,
    )
    return form(float(constant))


def peeking_error(looks: int, alpha: float = 0.05) -> float:
    """Return the true false-positive rate of testing at every look as if it were the only one."""
    return crossing_probability([float(stats.norm.ppf(1 - alpha / 2))] * looks)


def _times(looks: int, information: Sequence[float] | None) -> list[float]:
    times = [(i + 1) / looks for i in range(looks)] if information is None else [float(t) for t in information]
    rising = all(a < b for a, b in zip([0.0, *times], times, strict=False))
    if len(times) != looks or not rising or not math.isclose(times[-1], 1.0):
        raise EvaluationError(f"information must rise from above 0 to 1 in {looks} steps, got {times}")
    return times


def _simpson(points: np.ndarray) -> np.ndarray:
    weights = np.ones(points.size)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return weights * (points[1] - points[0]) / 3
