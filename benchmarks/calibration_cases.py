"""Simulated experiments whose truth is known: the cases of the calibration, and of the test that keeps them right.

Every case is a function of a random generator that returns one outcome: rejected (for tests), covered (for intervals).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.grid_data import draw_sizes, shares_passed
from benchmarks.simulated_data import CODES, Rng, crossed, families, inside, passed_shares, records, rejected
from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation import clusters, evidence
from pipeline_lib.evaluation import evidence as tests
from pipeline_lib.evaluation.clusters import t_interval
from pipeline_lib.evaluation.comparison import measure as measure_comparison
from pipeline_lib.evaluation.evidence import new_runs
from pipeline_lib.evaluation.results import holm
from pipeline_lib.evaluation.selection import choose, curve
from pipeline_lib.settings.evaluate import VerdictSettings

QUICK = VerdictSettings(resamples=200)
ERROR, COVERAGE, CAUTIOUS = (0.04, 0.06), (0.93, 0.97), (0.93, 1.0)


@dataclass(frozen=True)
class Case:
    """One simulation.

    Attributes:
        group: heading in the table and the figure.
        name: what is tested.
        accepted: rates between these are right.
        draw: one simulated outcome.
        share: how many of the runs asked for are made (slow cases make fewer).
    """

    group: str
    name: str
    accepted: tuple[float, float]
    draw: Callable[[Rng], bool]
    share: float = 1.0


def _paired_simple(rng: Rng) -> bool:
    return rejected(tests.paired(rng.normal(0, 1, 30), np.arange(30)).p)


def _paired_families(rng: Rng) -> bool:
    return rejected(tests.paired(families(rng), CODES).p)


def _paired_skewed(rng: Rng) -> bool:
    p = rng.beta(1, 3, CODES.size)
    return rejected(tests.paired(passed_shares(rng, p) - passed_shares(rng, p), CODES).p)


def _ignoring_families(rng: Rng) -> bool:
    d = families(rng)
    return rejected(tests.paired(d, np.arange(d.size)).p)


def _runs_three(rng: Rng) -> bool:
    return rejected(new_runs(*crossed(rng, 3, 0.08), 0.95).p)


def _runs_eight(rng: Rng) -> bool:
    return rejected(new_runs(*crossed(rng, 8, 0.08), 0.95).p)


def _runs_ignored(rng: Rng) -> bool:
    trained, _, families = crossed(rng, 3, 0.08)
    return rejected(tests.paired(trained.mean(axis=0), families).p)


def _whole_comparison(rng: Rng) -> bool:
    p = np.clip(rng.beta(2, 3, CODES.size), 0.05, 0.95)
    a = {s: records(rng.binomial(6, p[:, None], (p.size, 3)) / 6, s) for s in range(2)}
    b = records(rng.binomial(6, p[:, None], (p.size, 3)) / 6, 9)
    return rejected(measure_comparison(a, b, QUICK, "tests_passed", ("a", "b")).difference.p)


def _holm_family(rng: Rng, correct: bool = True) -> bool:
    """One selected team against three others: the comparisons share the selected team's noise."""
    selected = families(rng)
    p = [tests.paired(selected - families(rng), CODES).p for _ in range(3)]
    return any(rejected(q) for q in (holm(p) if correct else p))


def _select_then_test(rng: Rng, naive: bool = False) -> bool:
    """Fifteen checkpoints as good as the base, 30 episodes each; the best is compared with the base."""
    validation = rng.normal(0.5, 0.3, (15, 30))
    error = validation.std(axis=1, ddof=1) / math.sqrt(30)
    best = int(choose(validation.mean(axis=1), error, np.ones(15, dtype=bool), "best_mean"))
    looked_at = validation[best] if naive else rng.normal(0.5, 0.3, 30)
    return rejected(float(stats.ttest_ind(looked_at, rng.normal(0.5, 0.3, 30), equal_var=False).pvalue))


def _three_looks(rng: Rng) -> bool:
    """Three looks at equal steps, each as if it were the only one."""
    score = np.cumsum(rng.standard_normal(3)) / np.sqrt(np.arange(1, 4))
    return bool((np.abs(score) > 1.96).any())


def _equivalence_at_margin(rng: Rng) -> bool:
    d = families(rng, mean=0.1)
    return rejected(evidence.within(evidence.primary(d, CODES, 0.95), evidence.families(d, CODES), 0.1, 0.05).p)


def _t_coverage(rng: Rng) -> bool:
    found = t_interval(families(rng, 0.3), CODES, 0.95)
    return inside(found.low, found.high, 0.3)


def _team_mean(rate: float, count: int, equal: bool) -> Callable[[Rng], bool]:
    """A team's own mean on 128 problems of ``count`` families, whose rates vary around ``rate``."""
    info = Metric("tests passed", share=True)

    def covers(rng: Rng) -> bool:
        codes = np.repeat(np.arange(count), draw_sizes(rng, count, 128, equal))
        values = shares_passed(rng, rng.beta(4 * rate, 4 * (1 - rate), count)[codes])
        found = evidence.mean_interval(values, codes, 0.95, info)
        return inside(found.low, found.high, rate)

    return covers


def _g_dependent(rng: Rng) -> bool:
    common = rng.normal(0, math.sqrt(0.6), 40)
    a, b = (common + rng.normal(m, math.sqrt(0.4), 40) for m in (0.8, 0.0))
    found = clusters.paired_hedges_g(a, b, np.arange(40), 39, 0.95)
    return inside(found.low, found.high, 0.8)


def _improvement_coverage(rng: Rng) -> bool:
    shift = rng.normal(0.5, 0.5, CODES.size)
    u = clusters.probability_of_improvement(
        shift + rng.standard_normal((8, CODES.size)), rng.standard_normal((8, CODES.size))
    )
    found = t_interval(u, CODES, 0.95)
    return inside(found.low, found.high, float(stats.norm.cdf(0.5 / math.sqrt(2 + 0.25))))


def _wilson_coverage(rng: Rng) -> bool:
    p = rng.uniform(0.05, 0.95)
    found = tests.wilson(int(rng.binomial(60, p)), 60)
    return inside(found.low, found.high, p)


def _new_runs_coverage(rng: Rng) -> bool:
    found = new_runs(*crossed(rng, 5, 0.15, 0.5), 0.95)
    return inside(found.low, found.high, 0.5)


def _band_coverage(rng: Rng, pointwise: bool = False) -> bool:
    """Does the band hold all eight checkpoints at once?  They share problems, so they are correlated."""
    truth = np.linspace(0.2, 0.8, 8)
    means = truth[:, None] + families(rng) + 0.3 * rng.standard_normal((8, CODES.size))
    settings = QUICK.model_copy(update={"resamples": 1000, "seed": int(rng.integers(1 << 30))})
    points, _ = curve(list(range(8)), means, CODES, settings)
    if pointwise:
        return all(inside(p.low, p.high, t) for p, t in zip(points, truth, strict=True))
    return all(inside(p.band_low, p.band_high, t) for p, t in zip(points, truth, strict=True))


NULL, MANY, HOLDS, WRONG = (
    "False positives, no difference",
    "Several tests, looks, checkpoints",
    "Coverage of 95 % intervals",
    "What goes wrong otherwise",
)
CASES = [
    Case(NULL, "paired t, 30 problems", ERROR, _paired_simple),
    Case(NULL, "paired t, 24 families of 4", ERROR, _paired_families),
    Case(NULL, "paired t, skewed test fractions", ERROR, _paired_skewed),
    Case(NULL, "whole comparison, from episodes", ERROR, _whole_comparison, 0.3),
    Case(NULL, "other training runs, 3 runs", ERROR, _runs_three),
    Case(NULL, "other training runs, 8 runs", ERROR, _runs_eight),
    Case(MANY, "Holm, any of 3 comparisons", (0.0, 0.055), _holm_family, 0.3),
    Case(MANY, "select the best of 15, then test", ERROR, _select_then_test),
    Case(MANY, "EQUIVALENT at the margin (at most 5 %)", (0.0, 0.055), _equivalence_at_margin),
    Case(HOLDS, "mean, Student t, families", COVERAGE, _t_coverage),
    Case(HOLDS, "team's mean of 50 %, 24 families", CAUTIOUS, _team_mean(0.5, 24, True)),
    Case(HOLDS, "team's mean of 94 %, 24 families", CAUTIOUS, _team_mean(0.94, 24, True)),
    Case(HOLDS, "team's mean of 94 %, 12 unequal families", CAUTIOUS, _team_mean(0.94, 12, False)),
    Case(HOLDS, "team's mean of 94 %, 5 families", CAUTIOUS, _team_mean(0.94, 5, True)),
    Case(HOLDS, "team's mean of 98 %, 24 unequal families", CAUTIOUS, _team_mean(0.98, 24, False)),
    Case(HOLDS, "team's mean of 98 %, 66 families", CAUTIOUS, _team_mean(0.98, 66, True)),
    Case(HOLDS, "Hedges' g, paired", COVERAGE, _g_dependent, 0.5),
    Case(HOLDS, "probability of improvement", COVERAGE, _improvement_coverage, 0.5),
    Case(HOLDS, "rate, Wilson", COVERAGE, _wilson_coverage),
    Case(HOLDS, "other training runs, 5 runs", COVERAGE, _new_runs_coverage),
    Case(HOLDS, "band over 8 checkpoints, all at once", COVERAGE, _band_coverage, 0.5),
    Case(WRONG, "paired t that ignores families", (0.1, 1.0), _ignoring_families),
    Case(WRONG, "3 runs taken for the procedure", (0.1, 1.0), _runs_ignored),
    Case(WRONG, "3 comparisons, uncorrected", (0.07, 1.0), lambda rng: _holm_family(rng, correct=False), 0.5),
    Case(WRONG, "best of 15, tested on the same data", (0.16, 0.22), lambda rng: _select_then_test(rng, naive=True)),
    Case(WRONG, "three looks at z = 1.96", (0.09, 0.13), _three_looks),
    Case(WRONG, "any of 8 pointwise intervals misses", (0.1, 1.0), lambda rng: not _band_coverage(rng, True), 0.5),
]  # fmt: skip


def measure(case: Case, runs: int, seed: int = 0) -> dict[str, Any]:
    """Run one case and return its rate with the Monte Carlo interval (Wilson, 95 %)."""
    n = max(1, int(runs * case.share))
    rng = np.random.default_rng([seed, CASES.index(case)])
    hits = sum(bool(case.draw(rng)) for _ in range(n))
    limits = tests.wilson(hits, n)
    return {
        "group": case.group,
        "name": case.name,
        "accepted": case.accepted,
        "runs": n,
        "rate": hits / n,
        "low": limits.low,
        "high": limits.high,
    }
