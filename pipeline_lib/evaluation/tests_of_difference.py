"""Tests of difference and of equivalence, by scipy and statsmodels; for degenerate data they return a reason.

Two independent groups: `welch_clustered`, `welch_from_summaries`.  Pairs, possibly in clusters: `paired` (Student t on
clustered differences), `sign_flips` (permutation), `rates_paired` (McNemar).  No difference that matters: `equivalence`
(two one-sided tests).  One rate: `wilson`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from pipeline_lib.evaluation.clusters import ClusteredMean, Codes, clustered_mean
from pipeline_lib.evaluation.results import Estimate, EvaluationError, TestResult

TOO_FEW = "an arm has fewer than two observations, so its variation is unknown; evaluate more problems"
NO_WITHIN = "no variation within either arm: every arm counts as one observation (n_eff = 1)"


def welch_from_summaries(
    mean1: float, sd1: float, n1: int, mean2: float, sd2: float, n2: int, level: float = 0.95
) -> TestResult:
    """Welch's test from means, standard deviations (ddof 1) and sizes."""
    method = "Welch's t test"
    if min(n1, n2) < 2:
        return no_answer(method, (n1, n2), level, TOO_FEW, mean1 - mean2)
    if math.hypot(sd1, sd2) <= 1e-12 * max(abs(mean1), abs(mean2), 1e-300):
        return no_answer(method, (n1, n2), level, NO_WITHIN, mean1 - mean2)
    t, p = stats.ttest_ind_from_stats(mean1, sd1, n1, mean2, sd2, n2, equal_var=False)
    v1, v2 = sd1**2 / n1, sd2**2 / n2
    df = (v1 + v2) ** 2 / (v1**2 / (n1 - 1) + v2**2 / (n2 - 1))
    return student(method, mean1 - mean2, math.sqrt(v1 + v2), df, (n1, n2), level, float(t), float(p))


def welch_clustered(a: ClusteredMean, b: ClusteredMean, level: float = 0.95) -> TestResult:
    """Welch's test of two means with clustered standard errors; the unit is the cluster."""
    if min(a.clusters, b.clusters) < 2:
        return no_answer(
            "Welch's t test", (a.clusters, b.clusters), level, a.degenerate or b.degenerate, a.mean - b.mean
        )
    return welch_from_summaries(
        a.mean, a.se * math.sqrt(a.clusters), a.clusters, b.mean, b.se * math.sqrt(b.clusters), b.clusters, level
    )


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


def sign_flips(differences: ArrayLike, clusters: Codes, resamples: int, seed: int, level: float = 0.95) -> TestResult:
    """Test paired differences by flipping the signs of whole clusters; exact for few clusters."""
    x = np.asarray(differences, float)
    method = "permutation test, signs of clusters flipped"
    groups = int(clusters.max()) + 1
    totals = np.bincount(clusters, weights=x, minlength=groups)
    mean = float(x.mean())
    known = clustered_mean(x, clusters)
    if known.degenerate:
        return no_answer(method, (groups,), level, known.degenerate, mean)
    found = stats.permutation_test(
        (totals,),
        lambda u, axis: u.sum(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=resamples,
        batch=max(1, 4_000_000 // groups),
        rng=np.random.default_rng(seed),
    )
    return TestResult(method, mean, None, None, level, None, None, float(found.pvalue), None, (groups,))


def equivalence(test: TestResult, margin: float, alpha: float) -> TestResult:
    """Test that a difference is smaller than ``margin`` either way (TOST, Schuirmann 1987).

    Args:
        test: a t test of the difference (`welch_clustered`, `paired`, ...); uses its estimate, se and df.
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


def rates_paired(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> TestResult:
    """Compare two paired 0/1 outcomes by McNemar's exact test on the pairs that differ."""
    from statsmodels.stats.contingency_tables import mcnemar

    x, y = np.asarray(a, bool), np.asarray(b, bool)
    only_a, only_b = int((x & ~y).sum()), int((~x & y).sum())
    method = "McNemar's exact test"
    difference = (only_a - only_b) / x.size
    if only_a + only_b == 0:
        return no_answer(method, (x.size,), level, "both arms agree on every pair", difference)
    found = mcnemar([[int((x & y).sum()), only_a], [only_b, int((~x & ~y).sum())]], exact=True)
    return TestResult(
        method, difference, None, None, level, float(found.statistic), None, float(found.pvalue), None, (x.size,)
    )  # fmt: skip


def student(
    method: str, estimate: float, se: float, df: float, n: tuple[int, ...], level: float, t: float, p: float
) -> TestResult:
    """Return a test with the interval of Student's t."""
    half = float(stats.t.ppf((1 + level) / 2, df)) * se
    return TestResult(method, estimate, estimate - half, estimate + half, level, t, df, p, se, n)


def no_answer(method: str, n: tuple[int, ...], level: float, reason: str, estimate: float | None) -> TestResult:
    """Return a test that cannot be made, with the reason."""
    return TestResult(method, estimate, None, None, level, None, None, None, None, n, reason)
