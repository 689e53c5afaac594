"""Two teams compared: every number a verdict rests on, from paired episodes.

The primary test is Student's t on mean differences per problem, clustered by family, averaged over training seeds: a
statement about the teams at hand on new problems.  Welch's test, a permutation test and a bootstrap interval stand
beside it, so that a reader sees whether the answer hangs on the method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.evaluation.bootstrap import clustered_bootstrap, interval
from pipeline_lib.evaluation.clusters import ClusteredMean, clustered_mean, t_interval
from pipeline_lib.evaluation.effects import no_effect, probability_of_improvement, standardised
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.guards import identical_share
from pipeline_lib.evaluation.metrics import MetricInfo, describe
from pipeline_lib.evaluation.power import detectable, problems_needed
from pipeline_lib.evaluation.results import Effect, Estimate, Result, TestResult
from pipeline_lib.evaluation.table import Episodes, Pairing, pair, tabulate
from pipeline_lib.evaluation.tests_of_difference import (
    equivalence,
    paired,
    rates_paired,
    sign_flips,
    welch_clustered,
)
from pipeline_lib.evaluation.training_runs import new_runs

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import VerdictSettings

Array = NDArray[np.float64]
Names: TypeAlias = tuple[str, str]

FEW_CLUSTERS = 10
IMPROVED, WORSE, EQUIVALENT, INCONCLUSIVE = "IMPROVED", "WORSE", "EQUIVALENT", "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class SeedResult(Result):
    """One training seed's result.

    Attributes:
        seed: training seed.
        mean_a: mean of the first team over problems.
        mean_b: mean of the second.
        difference: paired test of this seed alone.
    """

    seed: int
    mean_a: float
    mean_b: float
    difference: TestResult


@dataclass(frozen=True, slots=True)
class Comparison(Result):
    """Two teams, the evidence, and (once `verdict.decide` has seen the whole family) the verdict.

    Attributes:
        names: the first team and the second; differences are first minus second.
        metric: primary metric.
        problems: number of problems compared.
        families: number of clusters, the unit of analysis.
        episodes: episodes of each team.
        means: mean of each team, with clustered intervals.
        difference: the primary test: paired, clustered, over the training seeds at hand.
        bootstrap: the difference with a clustered bootstrap interval.
        permutation: signs of clusters flipped.
        welch: unpaired, for comparison with the literature; pairing makes it conservative.
        effect: Hedges' g in units of the spread over problems, interval for dependent groups.
        improvement: probability that a random episode of the first beats one of the second on the same problem.
        rates: McNemar's test where each problem has one 0/1 episode per team, else None.
        equivalence: two one-sided tests against the margin.
        new_runs: the wider claim, about other training runs.
        per_seed: each training seed alone; empty when neither team was trained.
        margin: smallest difference that would matter.
        alpha: family-wise error rate.
        power: power behind the two next numbers.
        detectable: true difference that this design finds with that power, or None.
        problems_for_margin: problems needed to find a difference of the margin, or None.
        problems_for_observed: problems needed to find the difference observed, were it true, or None.
        faults: guards that the first team fails.
        degenerate: what is wrong with these data as evidence, in words; empty when nothing is.
        one_observation: they count as a single observation (identical episodes, or one family), so no verdict is due.
        notes: what was left out, and what the reader must know.
        family_size: number of comparisons corrected for.
        p_adjusted: Holm's p of the difference, or None.
        equivalence_p_adjusted: Holm's p of equivalence, or None.
        verdict: IMPROVED, WORSE, EQUIVALENT or INCONCLUSIVE.
        sentence: what may be quoted.
    """

    names: Names
    metric: str
    problems: int
    families: int
    episodes: tuple[int, int]
    means: tuple[Estimate, Estimate]
    difference: TestResult
    bootstrap: Estimate
    permutation: TestResult
    welch: TestResult
    effect: Effect
    improvement: Estimate
    rates: TestResult | None
    equivalence: TestResult
    new_runs: TestResult
    per_seed: tuple[SeedResult, ...]
    margin: float
    alpha: float
    power: float
    detectable: float | None
    problems_for_margin: int | None
    problems_for_observed: int | None
    faults: tuple[str, ...]
    degenerate: str
    one_observation: bool
    notes: tuple[str, ...]
    family_size: int = 1
    p_adjusted: float | None = None
    equivalence_p_adjusted: float | None = None
    verdict: str = ""
    sentence: str = ""


def measure(
    a: Episodes, b: Episodes, settings: VerdictSettings, metric: str, names: Names, faults: Sequence[str] = ()
) -> Comparison:
    """Compute everything but the verdict; see `verdict.compare` for arguments and errors."""
    pairing = pair(tabulate(a, metric, names[0]), tabulate(b, metric, names[1]), names)
    level = 1 - settings.alpha
    clusters = pairing.clusters
    left, right = pairing.a_means.mean(axis=0), pairing.b_means.mean(axis=0)
    d = left - right
    mean_a, mean_b, mean_d = (clustered_mean(x, clusters) for x in (left, right, d))
    difference = paired(d, clusters, level)
    draws = clustered_bootstrap(np.vstack([d, _improvements(pairing)]), clusters, settings.resamples, settings.seed)
    seen = _detectable(difference, settings)
    needed = _needed(mean_d, settings)
    same = _identical(_flat(a), names[0]) or _identical(_flat(b), names[1])
    notes = list(pairing.notes)
    if 2 <= mean_d.clusters < FEW_CLUSTERS:
        notes.append(f"only {mean_d.clusters} families: intervals lean on the assumption of a normal distribution")
    return Comparison(
        names=names,
        metric=metric,
        problems=len(pairing.problems),
        families=mean_d.clusters,
        episodes=pairing.episodes,
        means=(t_interval(left, clusters, level), t_interval(right, clusters, level)),
        difference=difference,
        bootstrap=interval(draws[:, 0], mean_d.mean, mean_d.clusters, level, "clustered bootstrap, percentiles"),
        permutation=sign_flips(d, clusters, settings.resamples, settings.seed, level),
        welch=welch_clustered(mean_a, mean_b, level),
        effect=_effect(left, right, mean_d, level),
        improvement=interval(
            draws[:, 1],
            float(_improvements(pairing).mean()),
            mean_d.clusters,
            level,
            "mean over problems, clustered bootstrap",
        ),
        rates=_rates(pairing, level),
        equivalence=equivalence(difference, settings.margin, settings.alpha),
        new_runs=new_runs(pairing, level),
        per_seed=_per_seed(pairing, level),
        margin=settings.margin,
        alpha=settings.alpha,
        power=settings.power,
        detectable=seen,
        problems_for_margin=needed[0],
        problems_for_observed=needed[1],
        faults=tuple(faults),
        degenerate=same or _constant(difference, describe(metric)),
        one_observation=bool(same) or mean_d.clusters < 2,
        notes=tuple(notes),
    )


def constant_bounds(value: float, clusters: int, alpha: float, reach: float) -> tuple[float, float]:
    """Return limits for a mean when every one of ``clusters`` clusters shows the same value.

    No variation means no standard error, but not certainty: with confidence 1 - alpha at most a share
    1 - (alpha/2)^(1/G) of the population differs from what was seen (the exact binomial bound behind the rule of
    three), and what differs lies within ``reach`` of 0.  Distribution-free and conservative.
    """
    seen = (alpha / 2) ** (1 / clusters)
    return seen * value - (1 - seen) * reach, seen * value + (1 - seen) * reach


def bounds_without_variation(comparison: Comparison) -> tuple[float, float] | None:
    """Return limits of a difference that is the same on every family, or None when the metric has no known range.

    They hold for the whole family of comparisons at once (Bonferroni).
    """
    info = describe(comparison.metric)
    estimate = comparison.difference.estimate
    constant = comparison.difference.p is None and comparison.families >= 2
    if not constant or estimate is None or info.low is None or info.high is None:
        return None
    return constant_bounds(
        estimate, comparison.families, comparison.alpha / comparison.family_size, info.high - info.low
    )


def _improvements(pairing: Pairing) -> Array:
    problems = len(pairing.problems)
    a = np.moveaxis(pairing.a, 1, 2).reshape(-1, problems)
    b = np.moveaxis(pairing.b, 1, 2).reshape(-1, problems)
    return probability_of_improvement(a, b)


def _effect(left: Array, right: Array, difference: ClusteredMean, level: float) -> Effect:
    sd = math.sqrt((left.var(ddof=1) + right.var(ddof=1)) / 2) if left.size > 1 else 0.0
    if sd <= 1e-12:
        return no_effect("no variation over problems, so there is no unit to measure the difference in", level)
    if difference.degenerate:
        return no_effect(difference.degenerate, level)
    return standardised(
        difference.mean, difference.se, difference.clusters - 1, sd, 2 * (left.size - 1), level
    )  # fmt: skip


def _rates(pairing: Pairing, level: float) -> TestResult | None:
    single = pairing.a.shape[0] == pairing.b.shape[0] == pairing.a.shape[2] == 1
    values = np.concatenate([pairing.a.ravel(), pairing.b.ravel()])
    if not single or not np.isin(values, (0.0, 1.0)).all():
        return None
    return rates_paired(pairing.a[0, :, 0], pairing.b[0, :, 0], level)


def _per_seed(pairing: Pairing, level: float) -> tuple[SeedResult, ...]:
    if not any(pairing.trained):
        return ()
    a, b = pairing.a_means, pairing.b_means
    if not pairing.aligned:
        b = np.broadcast_to(b.mean(axis=0), a.shape)
    return tuple(
        SeedResult(int(seed), float(x.mean()), float(y.mean()), paired(x - y, pairing.clusters, level))
        for seed, x, y in zip(pairing.seeds, a, b, strict=True)
        if seed is not None
    )


def _detectable(test: TestResult, settings: VerdictSettings) -> float | None:
    if test.se is None or test.df is None:
        return None
    return detectable(test.se, test.df, settings.alpha, settings.power)


def _needed(difference: ClusteredMean, settings: VerdictSettings) -> tuple[int | None, int | None]:
    if difference.degenerate:
        return None, None
    variance = difference.se**2 * difference.n  # of a problem's difference, clustering included

    def problems(target: float) -> int | None:
        if abs(target) < 1e-9:
            return None
        return problems_needed(target, variance, settings.alpha, settings.power)

    return problems(settings.margin), problems(difference.mean)


def _flat(episodes: Episodes) -> list[EpisodeRecord]:
    groups = [episodes] if isinstance(episodes, Sequence) else list(episodes.values())
    return [record for group in groups for record in group]


def _identical(records: Sequence[EpisodeRecord], name: str) -> str:
    if identical_share(records) < 1:
        return ""
    reward = next(record.reward for record in records if record.reward is not None)
    return (
        f"every episode of {name} is the same in every recorded respect (reward {reward:g}), whatever the problem: "
        "they count as one observation (n_eff = 1)"
    )


def _constant(difference: TestResult, info: MetricInfo) -> str:
    if difference.p is not None or difference.estimate is None:
        return ""
    if difference.n[0] < 2:
        return difference.degenerate
    return f"the difference is {info.difference(difference.estimate)} on every family: {difference.degenerate}"
