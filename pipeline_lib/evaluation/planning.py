"""Sample sizes: how many problems, episodes and training runs are needed to detect a difference.

The variances come from a pilot (any earlier sweep or test).  The paired t test over problems gives the number of
problems (at most two more than Miller's formula, 2024, arXiv 2411.00640, unless there are few).  Training runs are a
second, crossed source of variation.  Selection adds optimism: the expected maximum of several equal checkpoints.

The power of a design: smallest detectable effect, and how many problems, samples or episodes are needed.

Exact (noncentral t) for t tests; `questions_needed` is the normal approximation of Miller (2024), from which
`problems_needed` starts its search.

`scipy.special.nctdtr` and `scipy.stats.nct.cdf` return NaN for many arguments that the power of large effects needs
(for example t = 170, parameter -123, 1.1 degrees of freedom).  Here the probability is computed by Gauss-Legendre
quadrature, accurate to 1e-9 (1e-5 between 1 and 2 degrees of freedom).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, optimize, special, stats

from pipeline_lib.evaluation.clusters import clustered_mean
from pipeline_lib.evaluation.evidence import missing
from pipeline_lib.evaluation.results import EvaluationError, Result
from pipeline_lib.evaluation.table import Episodes, pair, tabulate

Array = NDArray[np.float64]


_quadrature = cache(np.polynomial.legendre.leggauss)


def noncentral_t_cdf(t: float, df: float, noncentrality: float) -> float:
    """Return P(T <= t) for T = (Z + noncentrality) / sqrt(C^2 / df), Z standard normal, C chi with df degrees."""
    if t < 0:
        return 1.0 - noncentral_t_cdf(-t, df, -noncentrality)
    points, weights = _quadrature(512)
    root = math.sqrt(df)
    if t * t <= 2 * df:
        # Average Phi(t C / sqrt(df) - nc) over C, whose standard deviation is about 0.7 for any df.
        low, high = max(0.0, root - 9), root + 9
        c = (low + high) / 2 + (high - low) / 2 * points
        log_density = (df - 1) * np.log(c) - c * c / 2 - (df / 2 - 1) * math.log(2) - special.gammaln(df / 2)
        mass = np.exp(log_density) * special.ndtr(t * c / root - noncentrality)
    else:
        # Here the integrand is too steep in C; average P(C >= (Z + nc) sqrt(df) / t) over Z instead.
        low, high = min(9.0, max(-9.0, -noncentrality)), 9.0
        z = (low + high) / 2 + (high - low) / 2 * points
        edge = (z + noncentrality) * root / t
        mass = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * special.gammaincc(df / 2, edge * edge / 2)
        sure = float(special.ndtr(low)) if low > -9 else 0.0  # below, Z + nc < 0, which any C exceeds
        return min(1.0, sure + float(weights @ mass) * (high - low) / 2)
    return min(1.0, max(0.0, float(weights @ mass) * (high - low) / 2))


def t_power(noncentrality: float, df: float, alpha: float) -> float:
    """Return the power of a two-sided t test whose statistic has this noncentrality."""
    return _power_beyond(float(stats.t.ppf(1 - alpha / 2, df)), noncentrality, df)


def _power_beyond(critical: float, noncentrality: float, df: float) -> float:
    return 1 - noncentral_t_cdf(critical, df, noncentrality) + noncentral_t_cdf(-critical, df, noncentrality)


def detectable(se: float, df: float, alpha: float, power: float, critical: float | None = None) -> float:
    """Return the true difference that a two-sided t test with this standard error detects with probability ``power``.

    For large df this is (z_{1-alpha/2} + z_power) se: 2.80 se at 5 % and 80 %.  ``se`` > 0 is known or estimated
    without bias (`unbiased`), ``df`` at least 1; ``critical`` is the test's critical value, None for Student's at
    ``alpha``.
    """
    _check(alpha, power)
    if se <= 0 or df < 1:
        raise EvaluationError(f"need a standard error above 0 and at least one degree of freedom, got {se} and {df}")
    return _noncentrality(float(stats.t.ppf(1 - alpha / 2, df)) if critical is None else critical, df, power) * se


def beyond_missing(se: float, families: float, power: float, reach: float, chance: float) -> float:
    """Return the difference that the families that may be missing do not undo with probability ``power``."""
    rare = missing(families, chance)
    return reach * rare / (1 - rare) + float(special.ndtri(power)) * se if reach else 0.0


def unbiased(se: float, df: float) -> float:
    """Return an estimated standard error corrected for bias: the root of an estimated variance is too small."""
    return se * math.sqrt(df / 2) * math.exp(math.lgamma(df / 2) - math.lgamma((df + 1) / 2))


@lru_cache(maxsize=256)
def _noncentrality(critical: float, df: float, power: float) -> float:
    """Return the noncentrality at which t lies beyond the critical value with this power."""

    def lacking(noncentrality: float) -> float:
        return power - _power_beyond(critical, noncentrality, df)

    low, high = 0.0, critical + 2.0  # the median of t lies near its noncentrality
    while lacking(high) > 0:
        low, high = high, 2 * high
    return float(optimize.toms748(lacking, low, high, xtol=1e-7, rtol=1e-9))


def questions_needed(difference: float, variance: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return how many problems a paired comparison needs (Miller 2024, eq. 9; not rounded up).

    n = (z_{alpha/2} + z_beta)^2 variance / difference^2, for a true mean ``difference`` (not 0) in natural units and
    the ``variance`` of a problem's measured difference: omega^2 between problems, and s^2 / K of each team's K
    episodes.
    """
    _check(alpha, power)
    if difference == 0:
        raise EvaluationError("no number of problems shows a difference of 0; give the smallest one that would matter")
    quantiles = float(stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(power))
    return quantiles**2 * variance / difference**2


_MOST_PROBLEMS = 1e15
"""More can be neither collected nor counted in a float."""


def problems_needed(
    difference: float,
    variance: float,
    alpha: float = 0.05,
    power: float = 0.8,
    per_family: float = 1.0,
    reach: float = 0.0,
    chance: float = 0.05,
) -> int:
    """Return the fewest problems at which the paired t test over problems finds ``difference``.

    The search starts from `questions_needed` (which see for the arguments): the normal distribution gives about two
    problems fewer.  With ``per_family`` problems in an independent family, n problems have n / per_family - 1 degrees
    of freedom.  The families that are missing with probability ``chance`` and may differ by ``reach`` must not undo the
    difference (`evidence.with_missing`).  EvaluationError if no number of problems is enough, or none that could be
    had.
    """
    normal = questions_needed(difference, variance, alpha=alpha, power=power)
    if normal > _MOST_PROBLEMS:
        raise EvaluationError(f"to detect {difference:g} at a variance of {variance:g} takes {normal:.1g} problems")
    problems = math.ceil(max(2 * per_family, normal))

    def enough(count: int) -> bool:
        se, groups = math.sqrt(max(0.0, variance) / count), count / per_family
        if beyond_missing(se, groups, power, reach, chance) > abs(difference):
            return False
        return se == 0 or t_power(abs(difference) / se, groups - 1, alpha) >= power

    if enough(problems):
        return problems
    low, high = problems, problems + 1
    while not enough(high):
        low, high = high, high + 2 * (high - low)
    return low + 1 + bisect_left(range(low + 1, high), True, key=enough)


def _check(alpha: float, power: float) -> None:
    if not 0 < alpha < 0.5 or not alpha < power < 1:
        raise EvaluationError(f"need 0 < alpha < 0.5 and alpha < power < 1, got alpha={alpha}, power={power}")


MAX_PROBLEMS = 1_000_000


@dataclass(frozen=True, slots=True)
class Variances(Result):
    """Components of the variance of differences between two teams, in squared natural units."""

    between: float  #: omega^2, over problems, of the true difference; ``clustering`` corrects for families
    within_a: float  #: s_a^2, of the first team's episodes on one problem
    within_b: float  #: s_b^2, of the second's
    runs: float = 0.0  #: over training runs, of the mean difference; 0 if the pilot had only one run
    #: Factor by which families inflate the variance of a mean over problems; 1 without families.
    clustering: float = 1.0
    problems: int = 0  #: problems of the pilot
    training_runs: int = 1  #: training runs of the pilot


def variances(a: Episodes, b: Episodes, metric: str) -> Variances:
    """Estimate the variances from a pilot's episodes of two teams (moment estimates, never below 0).

    Raises:
        EvaluationError: fewer than two common problems, only one episode per problem (then the variance within
            problems cannot be separated from that between problems), or no variance at all.
    """
    pairing = pair(tabulate(a, metric, "the first team"), tabulate(b, metric, "the second team"))
    if len(pairing.problems) < 2:
        raise EvaluationError("a pilot needs at least two problems; evaluate more")
    within_a, samples_a = _within(pairing.a)
    within_b, samples_b = _within(pairing.b if pairing.trained[1] else pairing.b[:1])
    difference = pairing.a_means.mean(axis=0) - pairing.b_means.mean(axis=0)
    spread = float(difference.var(ddof=1))
    clustered = clustered_mean(difference, pairing.clusters)
    simple = spread / difference.size
    per_run = (pairing.a_means - pairing.b_means).mean(axis=1) if pairing.aligned else pairing.a_means.mean(axis=1)
    if not (spread or within_a or within_b or per_run.std()):
        raise EvaluationError(
            f"the difference in {metric} is the same for all problems, episodes and runs of the pilot, so nothing is "
            "known of its variance; take a pilot whose teams sometimes fail, or give --between and --within"
        )
    noise = (interaction_variance(pairing.a_means - pairing.b_means) if pairing.aligned else 0.0) / difference.size
    return Variances(
        between=max(0.0, spread - within_a / samples_a - within_b / samples_b),
        within_a=within_a,
        within_b=within_b,
        runs=max(0.0, float(per_run.var(ddof=1)) - noise) if per_run.size > 1 else 0.0,
        clustering=max(1.0, clustered.se**2 / simple) if simple > 0 and not clustered.degenerate else 1.0,
        problems=difference.size,
        training_runs=per_run.size,
    )


def interaction_variance(rows: NDArray[np.float64]) -> float:
    """Return the interaction variance of (runs, problems): the variance after removal of row and column means."""
    rest = rows - rows.mean(axis=1, keepdims=True) - rows.mean(axis=0, keepdims=True) + rows.mean()
    freedom = (rows.shape[0] - 1) * (rows.shape[1] - 1)
    return float((rest**2).sum() / freedom) if freedom else 0.0


def requirements(
    pilot: Variances,
    differences: Sequence[float],
    samples: Sequence[int],
    runs: Sequence[int],
    alpha: float = 0.05,
    power: float = 0.8,
    checkpoints: int = 8,
) -> list[dict[str, Any]]:
    """Return the needed sample sizes, one row per difference, samples per problem and number of training runs.

    ``differences`` are wanted true differences in natural units, for example (0.02, 0.05, 0.1); ``samples`` are
    episodes per problem and team; of ``checkpoints`` of a run one is selected.

    Returns:
        Rows with ``difference``, ``samples``, ``runs``, ``problems`` (for a statement about the teams trained),
            ``problems_new_runs`` (for one about other training runs; None if no number of problems is enough, or with
            fewer than three runs), ``test_episodes`` (all teams: the runs and one base), ``sweep_episodes`` (all
            checkpoints of all runs and the base, on as many problems) and ``optimism`` (expected excess of the best of
            ``checkpoints`` equal ones on as many problems, in natural units).
    """
    rows = []
    for difference in differences:
        for k in samples:
            for n in runs:
                problems = problems_needed(difference, _problem_variance(pilot, k, n), alpha, power)
                rows.append(
                    {
                        "difference": difference,
                        "samples": k,
                        "runs": n,
                        "problems": problems,
                        "problems_new_runs": _problems_new_runs(pilot, difference, k, n, alpha, power),
                        "test_episodes": problems * k * (n + 1),
                        "sweep_episodes": problems * k * (n * checkpoints + 1),
                        "optimism": expected_maximum(checkpoints) * math.sqrt(pilot.within_a / k / problems),
                    }
                )
    return rows


def expected_maximum(count: int) -> float:
    """Return the expected greatest of ``count`` independent standard normals: 0.564 for 2, 1.736 for 15."""
    if count < 2:
        return 0.0

    def integrand(x: float) -> float:
        return float(x * count * stats.norm.pdf(x) * stats.norm.cdf(x) ** (count - 1))

    return float(integrate.quad(integrand, -9, 9, epsabs=1e-10)[0])


def _within(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the variance of episodes within a problem, and the mean number of independent episodes per problem."""
    present = (~np.isnan(values)).sum(axis=2)
    if (present < 2).all():
        raise EvaluationError(
            "the pilot has one episode per problem, so the spread within a problem is unknown; evaluate with at least "
            "two samples per problem"
        )
    enough = present > 1
    means = np.nanmean(values, axis=2, keepdims=True)
    squares = np.nansum((values - means) ** 2, axis=2)
    variance = float((squares[enough] / (present[enough] - 1)).mean())
    return variance, float(present.mean()) * values.shape[0]


def _problem_variance(pilot: Variances, samples: int, runs: int) -> float:
    return pilot.clustering * (pilot.between + pilot.within_a / (samples * runs) + pilot.within_b / samples)


def _problems_new_runs(
    pilot: Variances, difference: float, samples: int, runs: int, alpha: float, power: float
) -> int | None:
    """Return the problems at which the crossed t test of `evidence.new_runs` finds the difference, or None."""
    if runs < 3:
        return None
    over_runs = pilot.runs / runs

    def found(problems: int) -> bool:
        over_problems = _problem_variance(pilot, samples, runs) / problems
        variance = over_runs + over_problems
        if variance == 0:
            return True
        df = variance**2 / (over_runs**2 / (runs - 1) + over_problems**2 / max(1, problems - 1))
        return detectable(math.sqrt(variance), df, alpha, power) <= abs(difference)

    if not found(MAX_PROBLEMS):
        return None
    return 2 + bisect_left(range(2, MAX_PROBLEMS), True, key=found)
