"""How much evidence the families provide: when a t test is valid, and which bounds are reported if it is not.

With skewed differences, as at a ceiling, a t test is wrong on one side; `primary` and `within` widen it there
(`upper_critical`).

A t test assumes that unseen families vary like the observed ones.  This fails if one or two families have all the
variation: at a ceiling or floor most families show no difference at all, and the standard error comes from a few of
them.  `families` computes the effective number of families that carry the variation.  Below `LEAST_CARRYING` there is
no p value, and the verdict follows from bounds that assume only that values are in the metric's range.

Every metric with a declared range is a share in another unit, so one rule serves all; one without a range has no
verdict.  benchmarks/results/calibration-grid.md measures all of this.

If most families lose a little and a few gain much, the standard error is small when the mean is too low, so the
distribution of t has a long lower tail and a short upper one.  To first order its quantile with probability q above
shifts by -g (2 z^2 + 1) / 6, where g is the skewness of the mean and z the normal quantile (Johnson 1978; Hall 1992).
A limit is only moved outwards, by ``caution`` times that shift (`outwards`).  Symmetric data keep
Student's test, except for the skewness that they show by chance.

The claim that the training *procedure* produces better teams is about seeds that were not run (`new_runs`).  Runs and
problems are crossed random effects: the variance of the mean difference is that over runs, plus that over (clusters of)
problems, minus their interaction, which both contain (Cameron, Gelbach & Miller 2011; in a balanced design the
classical analysis of variance), with Satterthwaite's degrees of freedom.  With fewer than three runs of a trained team
no such claim is possible.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.clusters import (
    NO_VARIATION,
    ClusteredMean,
    Codes,
    cluster_totals,
    clustered_mean,
    encode,
    t_interval,
)
from pipeline_lib.evaluation.results import Estimate, EvaluationError, Result, TestResult


def paired(differences: ArrayLike, clusters: Codes, level: float = 0.95) -> TestResult:
    """Test that the mean of paired differences is 0; Student t with the degrees of freedom of `clustered_mean`.

    With one difference per cluster this is scipy's `ttest_rel`.
    """
    result = clustered_mean(differences, clusters)
    method = "paired t test, clustered"
    if result.degenerate:
        return no_answer(method, (result.clusters,), level, result.degenerate, result.mean)
    t = result.mean / result.se
    p = float(2 * stats.t.sf(abs(t), result.df))
    return student(method, result.mean, result.se, result.df, (result.clusters,), level, t, p)


def equivalence(test: TestResult, margin: float, alpha: float) -> TestResult:
    """Test that a difference is smaller than ``margin`` > 0 either way (TOST, Schuirmann 1987).

    It uses estimate, se and df of ``test``, a t test of the difference.  The interval has level 1 - 2 alpha, and lies
    inside the margin exactly if p <= alpha.
    """
    if margin <= 0:
        raise EvaluationError(f"the margin is the smallest difference that would matter; got {margin}, need > 0")
    method = f"two one-sided t tests, margin {margin:g}"
    if test.se is None or test.df is None or test.estimate is None:
        return no_answer(method, test.n, 1 - 2 * alpha, test.degenerate, test.estimate)
    upper = float(stats.t.sf((test.estimate + margin) / test.se, test.df))
    lower = float(stats.t.cdf((test.estimate - margin) / test.se, test.df))
    half = float(stats.t.ppf(1 - alpha, test.df)) * test.se
    t = min(test.estimate + margin, margin - test.estimate) / test.se
    return TestResult(
        method, test.estimate, test.estimate - half, test.estimate + half, 1 - 2 * alpha, t, test.df,
        max(upper, lower), test.se, test.n,
    )  # fmt: skip


def wilson(successes: int, n: int, level: float = 0.95) -> Estimate:
    """Return a rate with Wilson's interval (1927), which is valid at 0 and 1 too."""
    if not 0 <= successes <= n or n < 1:
        raise EvaluationError(f"{successes} successes in {n} episodes: need 0 <= successes <= n and n >= 1")
    limits = stats.binomtest(successes, n).proportion_ci(confidence_level=level, method="wilson")
    return Estimate(successes / n, float(limits.low), float(limits.high), level, "Wilson", n)


def student(
    method: str, estimate: float, se: float, df: float, n: tuple[int, ...], level: float, t: float, p: float
) -> TestResult:
    """Return a test with the interval of Student's t."""
    half = float(stats.t.ppf((1 + level) / 2, df)) * se
    return TestResult(method, estimate, estimate - half, estimate + half, level, t, df, p, se, n)


def no_answer(method: str, n: tuple[int, ...], level: float, reason: str, estimate: float | None) -> TestResult:
    """Return a test that cannot be made, with the reason."""
    return TestResult(method, estimate, None, None, level, None, None, None, None, n, reason)


#: Smallest p value.
_MIN_P = 1e-300


def upper_critical(q: float, df: float, skewness: float, caution: float) -> float:
    """Return the critical t: the probability of a greater one, if there is no difference, is ``q``, in (0, 0.5].

    ``df`` is at least 1.  For the lower limit change the sign of ``skewness``, which is that of the mean.  The shift
    for it is multiplied by ``caution``.
    """
    return -float(special.stdtrit(df, q)) + _outwards(q, -skewness, caution)


def upper_tail(t: float, df: float, skewness: float, caution: float) -> float:
    """Return the one-sided p value of ``t``, in [1e-300, 1]: the least q for which it reaches `upper_critical`."""
    plain = float(special.stdtr(df, -t))
    if plain >= 0.5 or skewness >= 0:
        return max(plain, _MIN_P)
    if t <= _outwards(0.5, -skewness, caution):
        return 0.5
    low = math.log(max(plain, _MIN_P))

    def missing(log_q: float) -> float:
        return upper_critical(math.exp(log_q), df, skewness, caution) - t

    if missing(low) <= 0:
        return math.exp(low)
    return math.exp(float(optimize.brentq(missing, low, math.log(0.5), xtol=1e-10)))


def _outwards(q: float, lean: float, caution: float) -> float:
    z = float(special.ndtri(q))
    return caution * max(0.0, lean) * (2 * z * z + 1) / 6


#: Below this number, a note says that interval and p value depend on the distribution of the differences.
FEW_CARRYING = 10.0


#: Minimum effective number of families that carry the variation of a difference (calibrated).
LEAST_CARRYING = 3.0
#: Factor by which the shift of a limit for the skewness is multiplied (calibrated).
CAUTION = 1.5


def outwards(df: float) -> float:
    """Return the factor for the observed skewness, given the degrees of freedom ``df`` >= 1 of the mean.

    A sample's skewness is too small.  The correction is that for exponential families: 8, 12 and 24 of them show 53, 61
    and 75 % of theirs on average.
    """
    return CAUTION * (1 + 7 / df)


@dataclass(frozen=True, slots=True)
class Families(Result):
    """The families of problems as evidence on a mean difference."""

    count: int  #: number of families
    carrying: float  #: how many carry the variation, in [1, count] (see `clusters.ClusteredMean`)
    skewness: float  #: of the mean difference: positive if few families gain much more than the others
    largest: float  #: share of the largest family in all problems, in (0, 1]
    gain: float  #: mean over problems of the family differences above 0, in units of the metric
    loss: float  #: mean over problems of those below 0, as a positive number
    constant: bool = False  #: whether all families, two at least, show the same difference


def families(differences: ArrayLike, clusters: Codes) -> Families:
    """Return the evidence behind ``differences`` (n,) of problems in ``clusters`` (n,)."""
    d = np.asarray(differences, float)
    sizes = np.bincount(clusters)
    means = np.bincount(clusters, weights=d) / sizes
    weights = sizes / d.size
    known = clustered_mean(d, clusters)
    return Families(
        count=sizes.size,
        carrying=known.carrying,
        skewness=known.skewness,
        largest=float(weights.max()),
        gain=float(weights @ np.maximum(means, 0.0)),
        loss=float(weights @ np.maximum(-means, 0.0)),
        constant=known.degenerate == NO_VARIATION,
    )


def primary(differences: ArrayLike, clusters: Codes, level: float) -> TestResult:
    """Return the paired t test, or in ``degenerate`` why these families do not support one.

    Interval and p value are those of `evidence.paired`, widened for skewed differences.  Both use the same
    method, so that p value, interval and verdict cannot contradict each other.
    """
    test = paired(differences, clusters, level)
    found = families(differences, clusters)
    if test.statistic is None or test.df is None:
        return test
    if found.carrying < LEAST_CARRYING:
        reason = (
            f"too few families for a test: {found.count} were evaluated and about {found.carrying:.1f} of them carry "
            f"the variation, where at least {LEAST_CARRYING:g} are needed; evaluate problems of more families"
        )
        return no_answer(test.method, test.n, level, reason, test.estimate)
    caution = outwards(test.df)
    tails = (
        upper_tail(test.statistic, test.df, found.skewness, caution),
        upper_tail(-test.statistic, test.df, -found.skewness, caution),
    )
    low, high = _limits(test, found, (1 - level) / 2)
    return dataclasses.replace(
        test, method=f"{test.method}, widened for skewness", low=low, high=high, p=min(1.0, 2 * min(tails))
    )


def within(test: TestResult, found: Families, margin: float, alpha: float) -> TestResult:
    """Test whether the difference is smaller than ``margin`` > 0: whether its whole 1 - alpha interval lies within.

    These are two one-sided tests (Schuirmann 1987) at alpha / 2 each.  At alpha each they would be exact for symmetric
    differences, but at a ceiling, where few families show the tail, up to 10 % of the verdicts EQUIVALENT were wrong
    (benchmarks/results/calibration-grid.md).  ``test`` is the result of `primary`.  The p value is twice the greater of
    the two one-sided ones: p <= alpha exactly if the interval lies within the margin.
    """
    plain = equivalence(test, margin, alpha)
    if test.estimate is None or test.se is None or test.df is None:
        return dataclasses.replace(plain, level=1 - alpha)
    caution = outwards(test.df)
    above = upper_tail((test.estimate + margin) / test.se, test.df, found.skewness, caution)
    below = upper_tail((margin - test.estimate) / test.se, test.df, -found.skewness, caution)
    low, high = _limits(test, found, alpha / 2)
    return dataclasses.replace(
        plain,
        method=f"interval within the margin {margin:g}",
        low=low,
        high=high,
        level=1 - alpha,
        p=min(1.0, 2 * max(above, below)),
    )


def critical(df: float, found: Families, alpha: float) -> float:
    """Return the critical t at the two-sided level ``alpha``, averaged over both directions."""
    lean, caution = found.skewness, outwards(df)
    return (upper_critical(alpha / 2, df, lean, caution) + upper_critical(alpha / 2, df, -lean, caution)) / 2


def mean_interval(values: ArrayLike, clusters: Codes, level: float, info: Metric) -> Estimate:
    """Return the mean of a team's ``values`` (problems,) with its interval of coverage ``level``.

    With a declared range it is treated as a proportion: the interval is the exact binomial one, with the number of
    trials that has the variance of the clustered mean (Korn & Graubard 1998).  At a ceiling few families fail, and the
    observed variance is too small, so one family is added, with the greatest variance possible at this mean.  If no
    family varies, the families are the trials.  A metric without a range has Student's interval, widened for skewness,
    within the end that it has.
    """
    plain, known = t_interval(values, clusters, level), clustered_mean(values, clusters)
    tail = (1 - level) / 2
    if known.clusters < 2:
        return plain
    if info.low is not None and info.high is not None:
        width = info.high - info.low
        share = min(1.0, max(0.0, (known.mean - info.low) / width))
        trials = _trials(share, known.se / width, known, len(np.asarray(values)), tail)
        low = float(special.betaincinv(share * trials, (1 - share) * trials + 1, tail)) if share > 0 else 0.0
        high = float(special.betaincinv(share * trials + 1, (1 - share) * trials, 1 - tail)) if share < 1 else 1.0
        method = "mean, exact binomial interval of as many trials, and one family more"
        return Estimate(known.mean, info.low + width * low, info.low + width * high, level, method, known.clusters)
    if plain.degenerate:
        return plain
    caution = outwards(known.df)
    low = known.mean - upper_critical(tail, known.df, known.skewness, caution) * known.se
    high = known.mean + upper_critical(tail, known.df, -known.skewness, caution) * known.se
    low = low if info.low is None else max(low, info.low)
    high = high if info.high is None else min(high, info.high)
    return dataclasses.replace(plain, low=low, high=high, method=f"{plain.method}, widened for skewness")


def over_problems(
    values: Mapping[str, Sequence[float]], families: Mapping[str, str], level: float, info: Metric
) -> Estimate:
    """Return `mean_interval` of the mean ``values`` of each problem; both mappings are by problem."""
    means = [float(np.mean(found)) for found in values.values()]
    return mean_interval(means, encode([families[problem] for problem in values]), level, info)


def _trials(share: float, se: float, known: ClusteredMean, problems: int, tail: float) -> float:
    """Return the number of trials of probability ``share`` with the variance of the clustered mean."""
    variance, families = share * (1 - share), known.clusters
    if known.degenerate or variance == 0:
        return float(families)
    trials = (families + 1) / (families * se**2 / variance + 1 / families)
    quantiles = special.stdtrit(max(problems - 1, 1), tail) / special.stdtrit(known.df, tail)
    return float(trials * quantiles**2)


def _limits(test: TestResult, found: Families, tail: float) -> tuple[float, float]:
    assert test.estimate is not None and test.se is not None and test.df is not None
    lean, caution = found.skewness, outwards(test.df)
    low = test.estimate - upper_critical(tail, test.df, lean, caution) * test.se
    return low, test.estimate + upper_critical(tail, test.df, -lean, caution) * test.se


def note(test: TestResult, found: Families) -> str:
    """Return a caveat about interval and p value, one sentence; empty if there are enough families."""
    if test.p is None or found.carrying >= FEW_CARRYING:
        return ""
    return (
        f"About {found.carrying:.1f} of {found.count} families carry the variation, so the interval may cover more "
        "than it says where families differ in size, and less where few of them gain or lose much more than the others."
    )


def missing(families: float, alpha: float) -> float:
    """Return the greatest share of families, in (0, 1), that a sample of this size misses with probability ``alpha``.

    1 - alpha^(1/G), at 5 % about 3 / G: the rule of three.
    """
    return 1 - alpha ** (1 / families)


def families_against(share: float, alpha: float) -> int:
    """Return the fewest families of which `missing` is at most ``share``, in (0, 1)."""
    return math.ceil(math.log(alpha) / math.log1p(-share))


def with_missing(low: float, high: float, families: int, alpha: float, reach: float) -> tuple[float, float]:
    """Return the least and greatest mean difference if the `missing` families differ by ``reach``.

    ``low`` and ``high`` are those of the families that were seen.  A t test takes unseen families to be like the seen
    ones, and no test can do better: a share of families that is `missing` leaves no trace.
    """
    rare = missing(families, alpha)
    return (1 - rare) * low - rare * reach, (1 - rare) * high + rare * reach


def range_bounds(found: Families, alpha: float, reach: float) -> tuple[float, float]:
    """Return limits for the mean difference of these families that assume only that each is within [-reach, reach]."""
    if found.constant:
        return constant_bounds(found.gain - found.loss, found.count, alpha, reach)
    return distribution_free(found, alpha, reach)


def constant_bounds(value: float, clusters: int, alpha: float, reach: float) -> tuple[float, float]:
    """Return limits for a mean if all of ``clusters`` clusters show the same value.

    Without variation there is no standard error, but still uncertainty: with confidence 1 - alpha at most a share
    1 - (alpha/2)^(1/G) of the population has other values (the exact binomial bound behind the rule of three), and
    these lie within ``reach`` of 0.  Distribution-free and conservative.
    """
    seen = (alpha / 2) ** (1 / clusters)
    return seen * value - (1 - seen) * reach, seen * value + (1 - seen) * reach


def distribution_free(found: Families, alpha: float, reach: float) -> tuple[float, float]:
    """Return limits for the mean difference that hold for any distribution within [-reach, reach].

    Hoeffding's (1963) bound in its relative-entropy form, which for a mean of 0 is the rule of three.  It is computed
    for the difference itself (sharp if all families gain) and for the losses or gains alone (sharp if most families
    show no difference), each at alpha / 4 per side; the tighter limit is used.  The sample size is the inverse share of
    the largest family.  The mean lies outside with probability ``alpha`` at most.
    """
    n, chance = 1 / found.largest, alpha / 4
    middle = (found.gain - found.loss) / (2 * reach) + 0.5
    low = max(-reach * _upper(found.loss / reach, n, chance), reach * (1 - 2 * _upper(1 - middle, n, chance)))
    high = min(reach * _upper(found.gain / reach, n, chance), reach * (2 * _upper(middle, n, chance) - 1))
    return low, high


def _upper(mean: float, n: float, chance: float) -> float:
    """Return the upper confidence limit, at error probability ``chance``, of the mean of ``n`` variables in [0, 1].

    It solves P(average <= mean) <= exp(-n KL(mean, limit)) = chance.
    """
    mean = min(max(mean, 0.0), 1.0)
    wanted = math.log(1 / chance) / n

    def excess(limit: float) -> float:
        return float(special.rel_entr(mean, limit) + special.rel_entr(1 - mean, 1 - limit)) - wanted

    top = 1 - 1e-12
    if mean >= top or excess(top) <= 0:
        return 1.0
    return float(optimize.brentq(excess, mean, top, xtol=1e-12))


Array = NDArray[np.float64]

MIN_RUNS = 3
METHOD = "t test over training runs and problems (crossed random effects)"


def new_runs(
    a: Array, b: Array, clusters: Codes, level: float, aligned: bool = True, trained: bool = True
) -> TestResult:
    """Test the mean difference as a statement about new training runs on new problems.

    ``a`` and ``b`` are (runs, problems) means of the teams; ``aligned``: row i of one belongs to row i of the other.

    Returns:
        The test, or in ``degenerate`` why there is none (too few runs, one family, no variation at all).
    """
    differences = a.mean(axis=0) - b.mean(axis=0)
    parts = [a - b] if aligned else [a, b]
    runs = tuple(part.shape[0] for part in parts)
    over_problems = clustered_mean(differences, clusters)
    mean = over_problems.mean

    def unknown(reason: str) -> TestResult:
        return no_answer(METHOD, runs, level, reason, mean)

    if not trained:
        return unknown("neither team was trained")
    if min(runs) < MIN_RUNS:
        return unknown(
            f"{' and '.join(str(n) for n in runs)} training run{'s' if runs != (1,) else ''}: a statement about other "
            f"runs needs at least {MIN_RUNS}; this result is about the checkpoints tested"
        )
    if over_problems.clusters < 2:
        return unknown(over_problems.degenerate)
    pieces = [(over_problems.se**2, over_problems.df)]
    for part in parts:
        pieces.append((float(part.mean(axis=1).var(ddof=1)) / part.shape[0], part.shape[0] - 1.0))
    interactions = [_interaction(part, clusters) for part in parts]
    variance = sum(value for value, _ in pieces) - sum(value for value, _ in interactions)
    # Subtracting an estimate can overshoot; the variance is never below its greatest part.
    variance = max(variance, *(value for value, _ in pieces))
    if variance <= 1e-28 * max(1.0, mean * mean):
        return unknown("no variation between runs or problems, so no interval can be estimated")
    df = variance**2 / sum(value**2 / freedom for value, freedom in (*pieces, *interactions))
    se = math.sqrt(variance)
    t = mean / se
    p = float(2 * stats.t.sf(abs(t), df))
    return student(METHOD, mean, se, df, (*runs, over_problems.clusters), level, t, p)


def _interaction(values: Array, clusters: Codes) -> tuple[float, float]:
    """Return the variance of the mean that is due to run x cluster interaction, and its degrees of freedom."""
    runs, problems = values.shape
    groups = int(clusters.max()) + 1
    rest = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0, keepdims=True) + values.mean()
    totals, _ = cluster_totals(rest, clusters)
    freedom = (runs - 1.0) * (groups - 1.0)
    return float((totals**2).sum()) / (runs * problems) ** 2 * runs * groups / freedom, freedom
