"""A comparison of two teams: all numbers of a verdict, computed from paired episodes.

The primary test is Student's t on mean differences per problem, clustered by family, averaged over training seeds: a
claim about these teams on new problems; `evidence` decides when it can be trusted.

Nothing says that episodes which the infrastructure lost are lost at random: programs that run out of memory may be the
wrong ones.  Each lost episode may have had any value in the metric's range, so a comparison is made three times:
without the lost pairs, and with the values that are worst and best for the first team.  What holds of the difference
must hold in all three (the worst-case bounds of Horowitz & Manski 2000).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.environment_api.metrics import NO_METRICS, Metric, Metrics, describe
from pipeline_lib.evaluation.clusters import (
    Codes,
    encode,
    no_effect,
    paired_hedges_g,
    probability_of_improvement,
)
from pipeline_lib.evaluation.episodes import identical_share
from pipeline_lib.evaluation.evidence import (
    Families,
    families,
    mean_interval,
    new_runs,
    no_answer,
    primary,
    range_bounds,
    with_missing,
    within,
)
from pipeline_lib.evaluation.results import Effect, Estimate, Result, TestResult, to_json
from pipeline_lib.evaluation.table import Episodes, Pairing, Table, pair, problem_means, tabulate

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import VerdictSettings


@dataclass(frozen=True, slots=True)
class Losses(Result):
    """Lost episodes of a comparison."""

    lost: tuple[int, int]  #: lost episodes of the first team and of the second
    played: tuple[int, int]  #: all episodes of the first team and of the second
    low: float  #: least mean difference that is possible, whatever the lost episodes would have shown
    high: float  #: greatest one
    assumed: bool  #: the metric has no range, so lost episodes are taken to lie within the values that were seen
    #: The families as evidence with the lost episodes worst for the first team, and with them best for it.
    evidence: tuple[Families, Families]


def extremes(a: Table, b: Table, names: tuple[str, str], info: Metric) -> tuple[Pairing, ...]:
    """Return the pairing with the lost episodes worst for the first team, and the one with them best for it.

    Both are empty if nothing was lost.
    """
    if not a.lost and not b.lost:
        return ()
    low, high = ends((a, b), info)
    return tuple(pair(filled(a, first), filled(b, second), names) for first, second in ((low, high), (high, low)))


def describe_losses(a: Table, b: Table, found: Sequence[Pairing], info: Metric) -> Losses | None:
    """Return what was lost and what it could change; ``found`` are the `extremes`, None if there are none."""
    if not found:
        return None
    low, high = sorted(float(one.a_means.mean() - one.b_means.mean()) for one in found)
    worst, best = (families(one.a_means.mean(axis=0) - one.b_means.mean(axis=0), one.clusters) for one in found)
    assumed = info.low is None or info.high is None
    return Losses((a.lost, b.lost), (a.played, b.played), low, high, assumed, (worst, best))


def whatever_was_lost(test: TestResult, others: Sequence[TestResult], signed: bool = True) -> TestResult:
    """Return a test that claims only what it and the tests of the extremes claim alike.

    The interval covers those of all, and p is the greatest of them; 1 if the test is of no difference (``signed``) and
    the extremes contradict each other in sign.  Without an answer to one of them there is no answer.
    """
    if not others:
        return test
    every = (test, *others)
    if test.p is None:
        return dataclasses.replace(test, low=None, high=None)
    if reasons := [one.degenerate for one in others if one.p is None]:
        reason = f"with the lost episodes at an end of their range, {reasons[0]}"
        return dataclasses.replace(
            test, statistic=None, df=None, p=None, se=None, low=None, high=None, degenerate=reason
        )
    signs = {np.sign(one.estimate or 0.0) for one in every if signed}
    p = 1.0 if len(signs) > 1 else max(one.p or 0.0 for one in every)
    return dataclasses.replace(test, **_cover(every), p=p)


def widest(estimate: Estimate, others: Sequence[Estimate]) -> Estimate:
    """Return an estimate with an interval that covers those of all."""
    return dataclasses.replace(estimate, **_cover((estimate, *others)))


def _cover(every: Sequence[Estimate | TestResult]) -> dict[str, Any]:
    """Return the limits of an interval that covers those of all; None if one has none."""
    lows, highs = [one.low for one in every], [one.high for one in every]
    return {
        "low": None if None in lows else min(low for low in lows if low is not None),
        "high": None if None in highs else max(high for high in highs if high is not None),
    }


def ends(tables: Sequence[Table], info: Metric) -> tuple[float, float]:
    """Return the least and greatest value of a lost episode: of the metric, else of what was seen."""
    if info.low is not None and info.high is not None:
        return info.low, info.high
    seen = np.concatenate([table.values.ravel() for table in tables])
    return float(np.nanmin(seen)), float(np.nanmax(seen))


def filled(table: Table, value: float) -> Table:
    """Return a table whose lost episodes have ``value``."""
    return dataclasses.replace(table, values=np.where(table.gone, value, table.values), gone=np.zeros_like(table.gone))


Array = NDArray[np.float64]
Names: TypeAlias = tuple[str, str]

IMPROVED, WORSE, EQUIVALENT, INCONCLUSIVE = "IMPROVED", "WORSE", "EQUIVALENT", "INCONCLUSIVE"
#: In place of a verdict: the comparison is reported, but is outside the family of comparisons.
UNTESTED = "UNTESTED"


@dataclass(frozen=True, slots=True)
class SeedResult(Result):
    """One training seed's result."""

    seed: int  #: training seed
    mean_a: float  #: mean of the first team over problems
    mean_b: float  #: mean of the second
    difference: TestResult  #: primary test of this seed alone
    #: Its p corrected for the training runs of the comparison and for the family, or None.
    p_adjusted: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison(Result):
    """Two teams, the evidence, and the verdict, which `verdict.decide` adds."""

    names: Names  #: the first team and the second; differences are first minus second
    metric: str  #: primary metric
    info: Metric  #: its name and format; not part of the JSON
    problems: int  #: number of problems compared
    families: int  #: number of clusters, the unit of analysis
    evidence: Families  #: the families as evidence
    runs: tuple[int, int]  #: training runs of each team; 0 for a team without training seeds
    episodes: tuple[int, int]  #: episodes of each team
    means: tuple[Estimate, Estimate]  #: mean of each team, with clustered intervals
    difference: TestResult  #: the primary test: paired, clustered, over the training seeds at hand
    effect: Effect  #: Hedges' g in units of the spread over problems, interval for dependent groups
    improvement: Estimate  #: probability that a random episode of the first beats one of the second on the same problem
    equivalence: TestResult  #: whether the interval lies within the margin
    new_runs: TestResult  #: the wider claim, about other training runs
    per_seed: tuple[SeedResult, ...]  #: each training seed alone; empty when neither team was trained
    margin: float  #: smallest difference that would matter
    alpha: float  #: family-wise error rate
    power: float  #: power for the next two numbers, which hold after the correction for the family
    faults: tuple[str, ...]  #: guards that the first team fails
    degenerate: str  #: why these data are no evidence; empty if they are
    #: They count as a single observation (identical episodes, or one family), so there is no verdict.
    one_observation: bool
    notes: tuple[str, ...]  #: episodes that were left out, and other caveats
    #: Episodes that the infrastructure lost and what they could change, or None.  Means, the difference, equivalence,
    #: new runs and single runs hold whatever the lost episodes would have shown.
    losses: Losses | None = None
    family_size: int = 1  #: number of comparisons corrected for; 0 outside the family
    detectable: float | None = None  #: true difference that this design detects with that power, or None
    problems_for_margin: int | None = None  #: to detect a difference of the margin; None: unknown, too many
    p_adjusted: float | None = None  #: Holm's p of the difference, or None
    equivalence_p_adjusted: float | None = None  #: Holm's p of equivalence, or None
    verdict: str = ""  #: IMPROVED, WORSE, EQUIVALENT or INCONCLUSIVE; UNTESTED outside the family
    sentence: str = ""  #: summary that can be quoted
    where: str = "held-out"  #: description of the problems, for example ``held-out``; not part of the JSON

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object, without ``info`` and ``where``."""
        return {key: to_json(getattr(self, key)) for key in self.__slots__ if key not in ("info", "where")}


def measure(
    a: Episodes,
    b: Episodes,
    settings: VerdictSettings,
    metric: str,
    names: Names,
    faults: Sequence[str] = (),
    metrics: Metrics = NO_METRICS,
    where: str = "held-out",
) -> Comparison:
    """Compute everything except the verdict; see `verdict.compare` for arguments and errors."""
    one, two = tabulate(a, metric, names[0]), tabulate(b, metric, names[1])
    same = _identical(a, names[0]) or _identical(b, names[1])
    return measure_tables(one, two, settings, metric, describe(metric, metrics), names, faults, where, same)


def measure_tables(
    a: Table,
    b: Table,
    settings: VerdictSettings,
    metric: str,
    info: Metric,
    names: Names,
    faults: Sequence[str] = (),
    where: str = "held-out",
    same: str = "",
) -> Comparison:
    """Compute everything except the verdict from the values of two teams; ``same``: why they are one observation.

    Raises:
        EvaluationError: the teams have no common problem, or none without lost episodes.
    """
    worst = extremes(a, b, names, info)
    pairing = pair(a, b, names)
    level, clusters = 1 - settings.alpha, pairing.clusters
    left, right = pairing.a_means.mean(axis=0), pairing.b_means.mean(axis=0)
    claims, *others = [_claims(one, info, settings) for one in (pairing, *worst)]
    difference = whatever_was_lost(claims.difference, [other.difference for other in others])
    found = families(left - right, clusters)
    flat = [np.moveaxis(values, 1, 2).reshape(-1, values.shape[1]) for values in (pairing.a, pairing.b)]
    return Comparison(
        names=names,
        metric=metric,
        info=info,
        problems=len(pairing.problems),
        families=found.count,
        evidence=found,
        runs=(len(pairing.a) if pairing.trained[0] else 0, len(pairing.b) if pairing.trained[1] else 0),
        episodes=pairing.episodes,
        means=(
            widest(claims.means[0], [other.means[0] for other in others]),
            widest(claims.means[1], [other.means[1] for other in others]),
        ),
        difference=difference,
        effect=_effect(left, right, clusters, difference, level),
        improvement=_improvement(probability_of_improvement(*flat), clusters, difference, level),
        equivalence=whatever_was_lost(claims.equivalence, [other.equivalence for other in others], signed=False),
        new_runs=whatever_was_lost(claims.new_runs, [other.new_runs for other in others]),
        per_seed=tuple(
            replace(run, difference=whatever_was_lost(run.difference, [same.difference for same in lost]))
            for run, *lost in zip(claims.per_seed, *(other.per_seed for other in others), strict=True)
        ),
        margin=settings.margin,
        alpha=settings.alpha,
        power=settings.power,
        faults=tuple(faults),
        degenerate=same or _no_test(difference, found, info),
        one_observation=bool(same) or found.count < 2,
        notes=pairing.notes,
        losses=describe_losses(a, b, worst, info),
        where=where,
    )


def measure_apart(
    a: Table, b: Table, settings: VerdictSettings, metric: str, info: Metric, names: Names, reason: str
) -> Comparison:
    """Return the comparison of two teams that cannot be paired: their means, but neither test nor verdict.

    A difference between the teams cannot be told from one between their problems.  Each team has a value.
    """
    level = 1 - settings.alpha
    means = []
    for table in (a, b):
        values = problem_means(table)
        kept = np.flatnonzero(~np.isnan(values).all(axis=0))
        groups = encode([table.families[i] for i in kept])
        means.append(mean_interval(np.nanmean(values[:, kept], axis=0), groups, level, info))
    difference = (means[0].value or 0.0) - (means[1].value or 0.0)
    nothing = no_answer("paired t test, clustered", (0,), level, reason, difference)
    return Comparison(
        names=names,
        metric=metric,
        info=info,
        problems=len({*a.problems, *b.problems}),
        families=len({*a.families, *b.families}),
        evidence=Families(0, 0.0, 0.0, 0.0, 0.0, 0.0),
        runs=(len(a.seeds) if a.trained else 0, len(b.seeds) if b.trained else 0),
        episodes=(a.played - a.lost, b.played - b.lost),
        means=(means[0], means[1]),
        difference=nothing,
        effect=no_effect(reason, level),
        improvement=Estimate(None, None, None, level, "", 0, reason),
        equivalence=nothing,
        new_runs=nothing,
        per_seed=(),
        margin=settings.margin,
        alpha=settings.alpha,
        power=settings.power,
        faults=(),
        degenerate=reason,
        one_observation=True,
        notes=(),
        where="separate",
    )


@dataclass(frozen=True, slots=True)
class _Claims:
    """What lost episodes could change: see the attributes of `Comparison`."""

    difference: TestResult
    equivalence: TestResult
    new_runs: TestResult
    means: tuple[Estimate, Estimate]
    per_seed: tuple[SeedResult, ...]


def _claims(pairing: Pairing, info: Metric, settings: VerdictSettings) -> _Claims:
    level, clusters = 1 - settings.alpha, pairing.clusters
    left, right = pairing.a_means.mean(axis=0), pairing.b_means.mean(axis=0)
    difference = primary(left - right, clusters, level)
    return _Claims(
        difference=difference,
        equivalence=within(difference, families(left - right, clusters), settings.margin, settings.alpha),
        new_runs=new_runs(pairing.a_means, pairing.b_means, clusters, level, pairing.aligned, any(pairing.trained)),
        means=(mean_interval(left, clusters, level, info), mean_interval(right, clusters, level, info)),
        per_seed=_per_seed(pairing, level),
    )


def bounds(comparison: Comparison) -> tuple[float, float] | None:
    """Return limits of a difference without p value, or None if the metric has no known range.

    They assume no distribution, and hold whatever lost episodes would have shown, for the whole family of comparisons
    at once (Bonferroni).
    """
    info, found = comparison.info, comparison.evidence
    estimate = comparison.difference.estimate
    if comparison.difference.p is not None or estimate is None or found.count < 2:
        return None
    if math.isinf(info.reach):
        return None
    alpha, reach = comparison.alpha / comparison.family_size, info.reach
    lost = () if comparison.losses is None else comparison.losses.evidence
    lows, highs = zip(*(range_bounds(each, alpha, reach) for each in (found, *lost)), strict=True)
    return min(lows), max(highs)


@dataclass(frozen=True, slots=True)
class Basis:
    """A difference with a p value, of an experiment or of a study: what its verdict rests on."""

    estimates: tuple[float, ...]  #: of the difference; if episodes were lost, with what they may have shown
    p: float | None  #: of no difference, corrected for the family
    same: float | None  #: of a difference of the margin or more, corrected
    families: int  #: families in the sample
    info: Metric  #: the metric
    alpha: float  #: error rate
    margin: float  #: smallest difference that would matter
    terms: int = 1  #: number of differences between two teams that are added: 2 in an interaction

    @property
    def most(self) -> float:
        """The greatest difference that a family can show; infinite if the metric has no declared range."""
        return self.terms * self.info.reach

    def unseen(self) -> tuple[float, float]:
        """Return limits of the difference if the families that may be missing from the sample differ most.

        One kind of family is missing from all comparisons or from none, so alpha is not corrected for their number.
        """
        return with_missing(min(self.estimates), max(self.estimates), self.families, self.alpha, self.most)

    def verdict(self) -> str:
        """Return the verdict: what is significant, and holds whatever families that are not in the sample show.

        Nothing does for a metric without a declared range, of which those could show anything.
        """
        low, high = self.unseen()
        significant, equal = (p is not None and p <= self.alpha for p in (self.p, self.same))
        if equal and -self.margin < low and high < self.margin:
            return EQUIVALENT
        if significant and (low > 0 or high < 0):
            return IMPROVED if low > 0 else WORSE
        return INCONCLUSIVE


def basis(c: Comparison) -> Basis | None:
    """Return what the verdict of a comparison rests on, None if it has no p value."""
    if c.difference.p is None or c.difference.estimate is None:
        return None
    lost = () if c.losses is None else (c.losses.low, c.losses.high)
    p, same = c.p_adjusted, c.equivalence_p_adjusted
    return Basis((c.difference.estimate, *lost), p, same, c.families, c.info, c.alpha, c.margin)


def _effect(left: Array, right: Array, clusters: Codes, difference: TestResult, level: float) -> Effect:
    if difference.p is None or difference.df is None:
        return no_effect(difference.degenerate, level)
    return paired_hedges_g(left, right, clusters, difference.df, level)


def _improvement(by_problem: Array, clusters: Codes, difference: TestResult, level: float) -> Estimate:
    found = mean_interval(by_problem, clusters, level, Metric("improvement", share=True))
    return found if difference.p is not None else replace(found, low=None, high=None, degenerate=difference.degenerate)


def _per_seed(pairing: Pairing, level: float) -> tuple[SeedResult, ...]:
    if not any(pairing.trained):
        return ()
    a, b = pairing.a_means, pairing.b_means
    if not pairing.aligned:
        b = np.broadcast_to(b.mean(axis=0), a.shape)
    return tuple(
        SeedResult(int(seed), float(x.mean()), float(y.mean()), primary(x - y, pairing.clusters, level))
        for seed, x, y in zip(pairing.seeds, a, b, strict=True)
        if seed is not None
    )


def _identical(episodes: Episodes, name: str) -> str:
    groups = [episodes] if isinstance(episodes, Sequence) else list(episodes.values())
    records = [record for group in groups for record in group]
    if identical_share(records) < 1:
        return ""
    reward = next(record.reward for record in records if record.reward is not None)
    return (
        f"every episode of {name} is the same in every recorded respect (reward {reward:g}), whatever the problem: "
        "they count as one observation (n_eff = 1)"
    )


def _no_test(difference: TestResult, found: Families, info: Metric) -> str:
    """Return why there is no test of the difference, empty if there is one."""
    if difference.p is not None or difference.estimate is None:
        return ""
    if not found.constant:
        return difference.degenerate
    return f"the difference is {info.difference(difference.estimate)} on every family: {difference.degenerate}"
