"""Means over clustered data with their standard errors and degrees of freedom, and effect sizes.

Episodes of one problem, and problems of one family, are not independent; clusters are.  The standard error is CR2 (Bell
& McCaffrey 2002): a cluster's residual total is multiplied by 1 / (1 - its share of the observations), which corrects
for the cluster's share in the mean.  With clusters of one size this is the error of Miller (2024, arXiv 2411.00640)
times sqrt(G / (G - 1)).  With one observation per cluster it is exactly sd / sqrt(n), so that a paired comparison is
scipy's `ttest_rel`.

With few clusters of unequal size, the standard error is less certain than their number suggests.  The degrees of
freedom are Satterthwaite's under a common correlation within clusters that is estimated from the data (Imbens & Kolesar
2016); with clusters of one size they are G - 1.

Hedges' g uses the pooled standard deviation, the exact small-sample factor J (a ratio of gamma functions, not the
1 - 3/(4 df - 1) of most packages), and the jackknife over families for its interval.  The interquartile mean is that of
rliable (Agarwal et al. 2021), the probability of improvement likewise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from pipeline_lib.evaluation.results import Effect, Estimate, EvaluationError

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

ONE_CLUSTER = (
    "all problems belong to one family, so the variation over other families is unknown; "
    "evaluate problems of more families"
)
NO_VARIATION = "no variation between families, so no interval can be estimated"


def encode(labels: Sequence[str]) -> Codes:
    """Return the clusters as codes 0..G-1, in order of label."""
    return np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.intp)


@dataclass(frozen=True, slots=True)
class ClusteredMean:
    """A mean and its cluster-robust standard error."""

    mean: float  #: mean over observations
    se: float  #: standard error (CR2); 0 if the clusters do not vary, NaN if there is only one cluster
    clusters: int  #: number of clusters G
    n: int  #: number of observations
    df: float  #: degrees of freedom of the standard error, in [1, G - 1]; 0 if there is only one cluster
    #: Effective number of clusters that carry the variation, (sum of r^2)^2 / sum of r^4 over their residual totals r,
    #: in [1, G]: about G / 3 for normal residuals, near 1 if a single cluster dominates.
    carrying: float
    #: Of the mean, corrected for the bias of a sample's skewness: positive if few clusters lie far above the mean; it
    #: falls with 1 / sqrt(G); 0 below three clusters.
    skewness: float = 0.0

    @property
    def degenerate(self) -> str:
        """Why there is no interval; empty when there is one."""
        if self.clusters < 2:
            return ONE_CLUSTER
        return NO_VARIATION if self.se == 0 else ""


def clustered_mean(values: ArrayLike, clusters: Codes) -> ClusteredMean:
    """Return mean and clustered standard error of ``values`` (n,), with ``clusters`` (n,) the code of each."""
    x = np.asarray(values, float)
    mean = float(x.mean())
    groups = int(clusters.max()) + 1
    if groups < 2:
        return ClusteredMean(mean, math.nan, groups, x.size, 0.0, 1.0)
    sizes = np.bincount(clusters, minlength=groups).astype(float)
    totals = np.bincount(clusters, weights=x - mean, minlength=groups)
    squares = totals**2
    se = math.sqrt(float((squares / (1 - sizes / x.size)).sum())) / x.size
    # Rounding gives about 1e-17 if all values are equal; that is no variation.
    greatest = max(1.0, float(np.abs(x).max()))
    if np.ptp(x) <= 1e-12 * greatest or se <= 1e-14 * greatest:
        return ClusteredMean(mean, 0.0, groups, x.size, groups - 1.0, 1.0)
    df = groups - 1.0 if np.ptp(sizes) == 0 else _degrees_of_freedom(sizes, _correlation(x, clusters, sizes))
    carrying = float(squares.sum() ** 2 / (squares**2).sum())
    return ClusteredMean(mean, se, groups, x.size, df, carrying, _skewness(np.asarray(totals, float)))


def _skewness(totals: Array) -> float:
    """Return the skewness of the mean, from the clusters' residual totals."""
    groups = totals.size
    if groups < 3:
        return 0.0
    seen = float((totals**3).sum() / (totals**2).sum() ** 1.5)
    return seen * math.sqrt(groups * (groups - 1)) / (groups - 2)


def _correlation(x: Array, clusters: Codes, sizes: Array) -> float:
    """Return the correlation within clusters, in [0, 1], by the analysis of variance; 1 if it cannot be estimated."""
    n, groups = x.size, sizes.size
    if n == groups:
        return 1.0
    means = np.bincount(clusters, weights=x) / sizes
    within = float(((x - means[clusters]) ** 2).sum()) / (n - groups)
    between = float((sizes * (means - x.mean()) ** 2).sum()) / (groups - 1)
    shared = max(0.0, (between - within) * (groups - 1) / (n - float((sizes**2).sum()) / n))
    return shared / (shared + within) if shared + within > 0 else 1.0


def _degrees_of_freedom(sizes: Array, correlation: float) -> float:
    """Return Satterthwaite's degrees of freedom of the CR2 variance of a mean, in [1, G - 1].

    The variance is a quadratic form of normal totals with covariance M: its degrees of freedom are tr(M)^2 / tr(M^2).
    M = W (V - h v' - v h' + s h h') W is diagonal plus rank two, so both traces are sums over clusters.
    """
    h = sizes / sizes.sum()
    v = sizes * (1 + (sizes - 1) * correlation)
    weight = 1 / (1 - h)
    a = v.sum() * h - v
    rest = h * a - v * h  # diagonal of the rank-two part h a' - v h'
    trace = float((weight * (v + rest)).sum())
    off = (weight * h * h).sum() * ((weight * a * a).sum() + (weight * v * v).sum())
    off -= 2 * (weight * h * v).sum() * (weight * a * h).sum()
    square = float(off + (weight**2 * v * (v + 2 * rest)).sum())
    return min(sizes.size - 1.0, max(1.0, trace**2 / square))


def cluster_totals(values: ArrayLike, clusters: Codes) -> tuple[Array, Array]:
    """Return sums (rows, G) and sizes (G,) per cluster of paired rows ``values`` (rows, n) in ``clusters`` (n,)."""
    x = np.atleast_2d(np.asarray(values, float))
    groups = int(clusters.max()) + 1
    membership = np.zeros((x.shape[1], groups))
    membership[np.arange(x.shape[1]), clusters] = 1.0
    return x @ membership, membership.sum(axis=0)


def t_interval(values: ArrayLike, clusters: Codes, level: float) -> Estimate:
    """Return a mean with its interval from Student's t."""
    result = clustered_mean(values, clusters)
    method = "mean, clustered standard error, Student t"
    if result.degenerate:
        return Estimate(result.mean, None, None, level, method, result.clusters, result.degenerate)
    half = float(stats.t.ppf((1 + level) / 2, result.df)) * result.se
    return Estimate(result.mean, result.mean - half, result.mean + half, level, method, result.clusters)


def hedges_correction(df: float) -> float:
    """Return the exact small-sample factor J = Gamma(df/2) / (sqrt(df/2) Gamma((df-1)/2)) (Hedges 1981); df > 1."""
    if df <= 1:
        raise EvaluationError(f"Hedges' correction needs more than one degree of freedom, got {df}")
    return float(np.exp(special.gammaln(df / 2) - special.gammaln((df - 1) / 2)) / math.sqrt(df / 2))


def paired_hedges_g(left: ArrayLike, right: ArrayLike, clusters: Codes, t_df: float, level: float) -> Effect:
    """Return Hedges' g of two teams on the same problems, in units of their pooled spread over problems.

    ``left``, ``right`` and ``clusters`` are (problems,).  The interval is Student's t with the jackknife error over
    families.  Difference and spread come from the same families, so neither the noncentral t distribution nor an error
    of the difference alone is valid (with ten families of equal size the noncentral t covers 99.9 % for large effects).
    """
    a, b = np.asarray(left, float), np.asarray(right, float)
    groups = int(clusters.max()) + 1
    rows = np.vstack([np.ones(a.size), a, a * a, b, b * b])
    totals = np.vstack([np.bincount(clusters, weights=row, minlength=groups) for row in rows])
    # The first column is the total, the others leave out one family each.
    n, sum_a, square_a, sum_b, square_b = totals.sum(axis=1)[:, None] - np.hstack([np.zeros((5, 1)), totals])
    spread = (square_a - sum_a**2 / n + square_b - sum_b**2 / n) / (2 * np.maximum(n - 1, 1))
    if spread.min() <= 1e-12:
        return no_effect("too little variation over problems to standardise the difference", level)
    d, *without = (sum_a - sum_b) / n / np.sqrt(spread)
    error = math.sqrt((groups - 1) / groups * float(((np.array(without) - d) ** 2).sum()))
    half = float(stats.t.ppf((1 + level) / 2, t_df)) * error
    df = 2 * (a.size - 1)
    factor = hedges_correction(df)
    return Effect(
        g=factor * float(d), low=factor * float(d - half), high=factor * float(d + half), level=level, d=float(d),
        correction=factor, sd=math.sqrt(float(spread[0])), df=df,
        method="Hedges' g, exact factor, jackknife over families",
    )  # fmt: skip


def no_effect(reason: str, level: float) -> Effect:
    """Return the result for an effect size that cannot be computed, with the reason."""
    return Effect(None, None, None, level, None, None, None, None, "Hedges' g", reason)


def interquartile_mean(values: ArrayLike) -> float:
    """Return the mean of all values after dropping floor(n/4) from each end (rliable's IQM)."""
    return float(stats.trim_mean(np.asarray(values, float), 0.25, axis=None))


def probability_of_improvement(a: ArrayLike, b: ArrayLike) -> Array:
    """Return, per task, the probability that a random run of ``a`` beats one of ``b``; ties count one half.

    ``a`` is (runs, tasks), ``b`` (other runs, the same tasks); NaN marks a missing run.  The result, (tasks,), is
    Mann-Whitney U / (n m); its mean is rliable's probability of improvement.
    """
    x, y = np.asarray(a, float), np.asarray(b, float)
    result = np.empty(x.shape[1])
    for task in range(x.shape[1]):
        left, right = x[:, task], y[:, task]
        left, right = left[~np.isnan(left)], right[~np.isnan(right)]
        ordered = np.sort(right)
        below, upto = np.searchsorted(ordered, left, "left"), np.searchsorted(ordered, left, "right")
        result[task] = (below + upto).sum() / (2 * left.size * right.size)
    return result
