"""The power of a design: smallest detectable effect, and how many problems, samples or episodes are needed.

Exact (noncentral t) for t tests; `questions_needed` is the normal approximation of Miller (2024), from which
`problems_needed` starts its search.

`scipy.special.nctdtr` and `scipy.stats.nct.cdf` return NaN for many arguments that the power of large effects needs
(for example t = 170, parameter -123, 1.1 degrees of freedom).  Here the probability is computed by Gauss-Legendre
quadrature, accurate to 1e-9 (1e-5 between 1 and 2 degrees of freedom).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from pipeline_lib.evaluation.results import EvaluationError

Array = NDArray[np.float64]


@cache
def _nodes() -> tuple[Array, Array]:
    points, weights = np.polynomial.legendre.leggauss(512)
    return points, weights


def noncentral_t_cdf(t: float, df: float, noncentrality: float) -> float:
    """Return P(T <= t) for T = (Z + noncentrality) / sqrt(C^2 / df), Z standard normal, C chi with df degrees."""
    if t < 0:
        return 1.0 - noncentral_t_cdf(-t, df, -noncentrality)
    points, weights = _nodes()
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

    For large df this is (z_{1-alpha/2} + z_power) se: 2.80 se at 5 % and 80 %.

    Args:
        se: standard error, known or estimated without bias (see `unbiased`), > 0.
        df: its degrees of freedom, at least 1.
        alpha: two-sided level.
        power: wanted power.
        critical: critical value of the test; None for Student's at ``alpha``.
    """
    _check(alpha, power)
    if se <= 0 or df < 1:
        raise EvaluationError(f"need a standard error above 0 and at least one degree of freedom, got {se} and {df}")
    return _noncentrality(float(stats.t.ppf(1 - alpha / 2, df)) if critical is None else critical, df, power) * se


def unbiased(se: float, df: float) -> float:
    """Return an estimated standard error corrected for bias: the root of an estimated variance is too small."""
    return se * math.sqrt(df / 2) * math.exp(math.lgamma(df / 2) - math.lgamma((df + 1) / 2))


@lru_cache(maxsize=256)
def _noncentrality(critical: float, df: float, power: float) -> float:
    """Return the noncentrality at which t lies beyond the critical value with this power."""

    def missing(noncentrality: float) -> float:
        return power - _power_beyond(critical, noncentrality, df)

    low, high = 0.0, critical + 2.0  # the median of t lies near its noncentrality
    while missing(high) > 0:
        low, high = high, 2 * high
    return float(optimize.toms748(missing, low, high, xtol=1e-7, rtol=1e-9))


def questions_needed(difference: float, variance: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return how many problems a paired comparison needs (Miller 2024, eq. 9; not rounded up).

    n = (z_{alpha/2} + z_beta)^2 variance / difference^2

    Args:
        difference: true mean difference to be found, in natural units, not 0.
        variance: of a problem's measured difference: omega^2 between problems, and s^2 / K of each team's K episodes.
        alpha: two-sided level.
        power: wanted power.
    """
    _check(alpha, power)
    if difference == 0:
        raise EvaluationError("no number of problems shows a difference of 0; give the smallest one that would matter")
    quantiles = float(stats.norm.ppf(1 - alpha / 2) + stats.norm.ppf(power))
    return quantiles**2 * variance / difference**2


_MOST_PROBLEMS = 1e15
"""More can be neither collected nor counted in a float."""


def problems_needed(
    difference: float, variance: float, alpha: float = 0.05, power: float = 0.8, per_family: float = 1.0
) -> int:
    """Return the fewest problems at which the paired t test over problems finds ``difference``.

    The search starts from `questions_needed`, which uses the normal distribution and gives about two problems fewer.

    Args:
        difference: true mean difference to be found, in natural units, not 0.
        variance: of a problem's measured difference, its episodes' share included.
        alpha: two-sided level.
        power: wanted power.
        per_family: problems per independent family; n problems have n / per_family - 1 degrees of freedom.

    Raises:
        EvaluationError: no number of problems is enough, or none that could be had.
    """
    normal = questions_needed(difference, variance, alpha=alpha, power=power)
    if normal > _MOST_PROBLEMS:
        raise EvaluationError(f"to detect {difference:g} at a variance of {variance:g} takes {normal:.1g} problems")
    problems = math.ceil(max(2 * per_family, normal))

    def enough(count: int) -> bool:
        return t_power(abs(difference) / math.sqrt(variance / count), count / per_family - 1, alpha) >= power

    if variance <= 0 or enough(problems):
        return problems
    low, high = problems, problems + 1
    while not enough(high):
        low, high = high, high + 2 * (high - low)
    return low + 1 + bisect_left(range(low + 1, high), True, key=enough)


def _check(alpha: float, power: float) -> None:
    if not 0 < alpha < 0.5 or not alpha < power < 1:
        raise EvaluationError(f"need 0 < alpha < 0.5 and alpha < power < 1, got alpha={alpha}, power={power}")
