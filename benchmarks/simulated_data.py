"""Data of evaluation's shape whose truth is known: families of problems, skewed test fractions, training runs."""

from __future__ import annotations

import math

import numpy as np

from pipeline_lib.evaluation.episodes import EpisodeRecord

Rng = np.random.Generator
FAMILIES, SIZE = 24, 4  # clusters of problems, problems in each
CODES = np.repeat(np.arange(FAMILIES), SIZE)


def families(rng: Rng, mean: float = 0.0, rho: float = 0.4) -> np.ndarray:
    """Differences of 96 problems in 24 families, correlated within a family."""
    shared = math.sqrt(rho) * rng.standard_normal(FAMILIES)[CODES]
    return mean + 0.3 * (shared + math.sqrt(1 - rho) * rng.standard_normal(CODES.size))


def passed_shares(rng: Rng, p: np.ndarray, samples: int = 4) -> np.ndarray:
    """Mean fraction of 6 tests passed over episodes that are often all or nothing: skewed, bounded, many 0 and 1."""
    ability = rng.beta(0.4 * p[:, None], 0.4 * (1 - p[:, None]), (p.size, samples))
    return np.asarray(rng.binomial(6, ability).mean(axis=1) / 6)


def records(values: np.ndarray, seed: int) -> list[EpisodeRecord]:
    """Episodes of one team: (problems, samples)."""
    return [
        EpisodeRecord(
            f"p{i}", f"f{CODES[i]}", k, float(v), 1, {}, {"tests_passed": float(v)}, 10 + (i * 7 + k + seed) % 31
        )
        for i, row in enumerate(values)
        for k, v in enumerate(row)
    ]


def crossed(rng: Rng, runs: int, run_sd: float, mean: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (runs, problems) of a trained team, those of the base, and the families; runs and families both vary."""
    d = mean + run_sd * rng.standard_normal((runs, 1)) + families(rng)[None, :]
    return d + 0.2 * rng.standard_normal((runs, CODES.size)), np.zeros_like(d), CODES


def rejected(p: float | None, alpha: float = 0.05) -> bool:
    """Return whether a test rejects; one without p value does not."""
    return p is not None and p <= alpha


def inside(low: float | None, high: float | None, truth: float) -> bool:
    """Return whether an interval covers the truth; one that does not exist does not."""
    return low is not None and high is not None and low <= truth <= high
