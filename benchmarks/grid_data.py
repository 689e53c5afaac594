"""Differences of two teams problem by problem, of the shapes that evaluation meets, with the true mean difference."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from benchmarks.simulated_data import Rng

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


#: Shape by name, and whether the number of training runs matters to it.
SHAPES: dict[str, tuple[Callable[[Rng, np.ndarray, int], tuple[np.ndarray, float]], bool]] = {
    "normal": (normal, False),
    "skew": (_rates(0.3, 0.3), True),
    "floor": (_rates(0.06, 0.06), True),
    "ceiling": (_rates(0.99, 0.99), True),
    "gain": (_rates(0.2, 0.8), True),
    "rare gain": (_rates(0.96, 0.99), True),
    "lopsided": (lopsided, False),
}
