"""Episodes made to measure, for tests of statistics."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline_lib.environments.coding import task as coding
from pipeline_lib.environments.philosophers import task as philosophers
from pipeline_lib.evaluation import verdict
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.table import Episodes
from pipeline_lib.settings.evaluate import Guard, VerdictSettings

#: What both environments of the library measure.
METRICS = {**coding.METRICS, **philosophers.METRICS}


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


def compare(a: Episodes, b: Episodes, settings: VerdictSettings, metric: str = "tests_passed", **options: Any):
    """Compare two teams by the share of tests passed."""
    return verdict.compare(a, b, settings, metric, metrics=METRICS, **options)


summarise_test = functools.partial(verdict.summarise_test, metrics=METRICS)
