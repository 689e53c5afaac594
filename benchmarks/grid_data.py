"""Differences of two teams problem by problem, of the shapes that evaluation meets, with the true mean difference."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import stats

from benchmarks.simulated_data import Rng
from pipeline_lib.environment_api.metrics import Metric

#: Differences, (problems,), and their true mean.
Drawn = tuple[np.ndarray, float]

#: Episodes per problem and hidden tests per episode.
SAMPLES, TESTS = 4, 6


def draw_sizes(rng: Rng, families: int, problems: int, equal: bool) -> np.ndarray:
    """Return problems per family: as equal as can be, or in proportions from a Dirichlet distribution of 1.5."""
    if equal:
        return np.diff(np.linspace(0, problems, families + 1).astype(int))
    return 1 + rng.multinomial(problems - families, rng.dirichlet(np.full(families, 1.5)))


def normal(rng: Rng, codes: np.ndarray, runs: int) -> tuple[np.ndarray, float]:
    """Normal differences, correlated by 0.4 within a family."""
    shared = math.sqrt(0.4) * rng.standard_normal(codes.max() + 1)[codes]
    return 0.3 * (shared + math.sqrt(0.6) * rng.standard_normal(codes.size)), 0.0


def lopsided(rng: Rng, codes: np.ndarray, runs: int) -> tuple[np.ndarray, float]:
    """Most families lose a little, some gain much: exponential family effects."""
    shared = math.sqrt(0.4) * (rng.exponential(1, codes.max() + 1) - 1)[codes]
    return 0.3 * (shared + math.sqrt(0.6) * rng.standard_normal(codes.size)), 0.0


def shares_passed(rng: Rng, rates: np.ndarray) -> np.ndarray:
    """Return a team's mean fraction of tests passed, mostly all or nothing, on problems that it passes at ``rates``."""
    rates = np.clip(rates, 1e-9, 1 - 1e-9)
    problem = np.clip(rng.beta(3 * rates, 3 * (1 - rates)), 1e-9, 1 - 1e-9)[:, None]
    episode = rng.beta(0.4 * problem, 0.4 * (1 - problem), (rates.size, SAMPLES))
    return np.asarray(rng.binomial(TESTS, np.nan_to_num(episode, nan=0.5)).mean(axis=1) / TESTS)


def _rates(before: float, after: float) -> Callable[[Rng, np.ndarray, int], tuple[np.ndarray, float]]:
    """Fractions of tests passed, mostly all or nothing; the selected team's several runs against one base."""

    def draw(rng: Rng, codes: np.ndarray, runs: int) -> tuple[np.ndarray, float]:
        families = codes.max() + 1
        base = rng.beta(4 * before, 4 * (1 - before), families)
        selected = base if after == before else rng.beta(4 * after, 4 * (1 - after), families)
        means = np.mean([shares_passed(rng, selected[codes]) for _ in range(runs)], axis=0)
        return means - shares_passed(rng, base[codes]), after - before

    return draw


def _tailed(quantile: Callable[[np.ndarray], np.ndarray]) -> Callable[[Rng, np.ndarray, int], Drawn]:
    """Skewed family effects about 0, in a metric whose range ends with the greatest one in a hundred (`metric_of`).

    Greater ones are cut off.  Problems add a little noise.
    """

    def cut(share: np.ndarray) -> np.ndarray:
        return 0.2 * quantile(np.minimum(share, 0.99))

    mean = float(cut((np.arange(100_000) + 0.5) / 100_000).mean())

    def draw(rng: Rng, codes: np.ndarray, runs: int) -> Drawn:
        noise = np.clip(0.1 * rng.standard_normal(codes.size), -NOISE, NOISE)
        return cut(rng.random(codes.max() + 1))[codes] - mean + noise, 0.0

    return draw


def metric_of(shape: str) -> Metric:
    """Return the metric of a shape: a share, one with another range, or one without."""
    if shape in TAILS:
        return Metric("value", low=0.0, high=0.2 * float(TAILS[shape](np.array(0.99))) + NOISE)
    return Metric("value") if shape == NO_RANGE else Metric("tests passed", share=True)


def lost(rng: Rng, codes: np.ndarray, runs: int) -> Drawn:
    """Fractions of tests passed by equal teams, of which the first lost 3 % of its episodes, the worst ones.

    Returns:
        (3, problems): differences without the lost episodes, and with the least and the greatest value in their place.
    """
    rates = rng.beta(1.2, 2.8, codes.max() + 1)[codes]
    first, second = (rng.binomial(TESTS, rates[:, None], (codes.size, SAMPLES)) / TESTS for _ in range(2))
    gone = np.zeros(first.size, dtype=bool)
    gone[np.argsort(first.ravel() + rng.random(first.size))[: round(0.03 * first.size)]] = True
    gone = gone.reshape(first.shape) & ~gone.reshape(first.shape).all(axis=1, keepdims=True)
    kept = np.where(gone, np.nan, first)
    paired = np.nanmean(kept - second, axis=1)
    return np.stack(
        [paired, *(np.where(gone, value, first).mean(axis=1) - second.mean(axis=1) for value in (0, 1))]
    ), 0.0


def _rare(one_in: int, sign: int) -> Callable[[Rng, np.ndarray, int], Drawn]:
    """Fractions of tests passed: one family in so many loses 0.9, the others gain as much; or ``sign`` is -1."""

    def draw(rng: Rng, codes: np.ndarray, runs: int) -> Drawn:
        rare = (rng.random(codes.max() + 1) < 1 / one_in)[codes]
        base = np.full(codes.size, 0.9 if sign > 0 else 0.1)
        selected = base + sign * np.where(rare, -0.9, 0.9 / (one_in - 1))
        first, second = (rng.binomial(SAMPLES * TESTS, rates) / (SAMPLES * TESTS) for rates in (selected, base))
        return first - second, 0.0

    return draw


def no_range(rng: Rng, codes: np.ndarray, runs: int) -> Drawn:
    """Differences in a metric without a range: one family in a hundred gains as much as all others, by 0.05 each, lose.

    Samples without such a family show little spread, so the values that were seen say nothing of its size.
    """
    rare = (rng.random(codes.max() + 1) < 0.01)[codes]
    return np.where(rare, 0.05 * 99, -0.05) + 0.02 * rng.standard_normal(codes.size), 0.0


#: Shapes in which a kind of family that is hardly seen makes up for what all others show.
RARE = ("one in ten", "one in twenty")

#: The same in a metric without a declared range, of which nothing bounds what the kind shows.
NO_RANGE = "one in a hundred, no range"

#: Greatest noise of a problem in the next shapes.
NOISE = 0.3
#: Quantiles of the family effects of metrics with another range than that of a share.
TAILS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "lognormal": stats.lognorm(1).ppf,
    "very lognormal": stats.lognorm(2).ppf,
    "Pareto": stats.lomax(3).ppf,
    "heavy Pareto": stats.lomax(1.5).ppf,
}

#: Shape by name, and whether the number of training runs matters to it.
SHAPES: dict[str, tuple[Callable[[Rng, np.ndarray, int], tuple[np.ndarray, float]], bool]] = {
    "normal": (normal, False),
    "skew": (_rates(0.3, 0.3), True),
    "floor": (_rates(0.06, 0.06), True),
    "ceiling": (_rates(0.99, 0.99), True),
    "gain": (_rates(0.2, 0.8), True),
    "rare gain": (_rates(0.96, 0.99), True),
    "lopsided": (lopsided, False),
    **{name: (_tailed(quantile), False) for name, quantile in TAILS.items()},
    "lost": (lost, False),
    "one in ten": (_rare(10, 1), False),
    "one in twenty": (_rare(20, -1), False),
    NO_RANGE: (no_range, False),
}
