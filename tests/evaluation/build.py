"""Episodes made to measure, for tests of statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.settings.evaluate import Guard

GUARDS = (
    Guard(metric="syntax", slack=0.05),
    Guard(metric="meals_share", limit=0.01),
    Guard(metric="invalid_share", better="lower", slack=0.05),
    Guard(metric="deadlock", better="lower", slack=0.1),
)


def episode(problem: str, sample: int, value: float | None, family: str = "", tokens: int = 10, **metrics: float):
    return EpisodeRecord(
        problem=problem,
        family=family or problem,
        sample=sample,
        reward=value,
        turns=1,
        terms={} if value is None else {"tests": value},
        metrics={} if value is None else {"tests_passed": value, **metrics},
        tokens=tokens,
    )


def team(
    means: Sequence[float],
    samples: int,
    seed: int,
    families: int = 0,
    noise: float = 0.2,
    metrics: Mapping[str, float] | None = None,
) -> list[EpisodeRecord]:
    """Episodes whose values scatter around one mean per problem; ``families`` > 0 groups problems round-robin."""
    rng = np.random.default_rng(seed)
    return [
        episode(
            f"p{i:03d}",
            k,
            float(mean + noise * rng.standard_normal()),
            f"f{i % families}" if families else "",
            int(rng.integers(5, 50)),
            **(metrics or {}),
        )
        for i, mean in enumerate(means)
        for k in range(samples)
    ]


def constant_team(values: Sequence[float], samples: int = 2, varied_tokens: bool = True) -> list[EpisodeRecord]:
    return [
        episode(f"p{i:03d}", k, value, tokens=10 + 7 * i % 13 + k if varied_tokens else 10)
        for i, value in enumerate(values)
        for k in range(samples)
    ]
