"""Tests of difference and of equivalence by Student's t; for degenerate data they return a reason.

Pairs, possibly in clusters: `paired`.  No difference that matters: `equivalence` (two one-sided tests).  One rate:
`wilson`.
"""

from __future__ import annotations

from numpy.typing import ArrayLike
from scipy import stats

from pipeline_lib.evaluation.clusters import Codes, clustered_mean
from pipeline_lib.evaluation.results import Estimate, EvaluationError, TestResult


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
    """Test that a difference is smaller than ``margin`` either way (TOST, Schuirmann 1987).

    Args:
        test: a t test of the difference (`paired`, ...); uses its estimate, se and df.
        margin: smallest difference that would matter, > 0.
        alpha: level; the interval has level 1 - 2 alpha, and lies inside the margin exactly if p <= alpha.
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
