"""A clustered bootstrap, which scipy lacks: it resamples whole clusters, pairs everything, and is fast.

A resample of clusters is a vector of counts, so ten thousand resampled means of many checkpoints are one matrix
product.  The interquartile mean of a resample is computed from cumulated counts over values that are sorted once.  All
checkpoints (or arms) share the resamples, so their differences and maxima are correct.

Percentile intervals of few clusters are too narrow by sqrt((G-1)/G) and because of normal instead of t quantiles;
`interval` widens the percentiles accordingly (Hesterberg 2015, "expanded percentile").
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from pipeline_lib.evaluation.clusters import ONE_CLUSTER, ClusteredMean, Codes
from pipeline_lib.evaluation.results import Estimate, EvaluationError

Array = NDArray[np.float64]

#: Minimum number of clusters for an interval (calibrated).
MIN_CLUSTERS = 8


def cluster_counts(clusters: int, resamples: int, rng: np.random.Generator) -> Array:
    """Return how often each cluster is drawn: (resamples, clusters), rows summing to ``clusters``."""
    if clusters < 1 or resamples < 1:
        raise EvaluationError(f"cannot draw {resamples} resamples of {clusters} clusters")
    return rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=resamples).astype(float)


def cluster_totals(values: ArrayLike, clusters: Codes) -> tuple[Array, Array]:
    """Return sums and sizes per cluster of several paired rows.

    Args:
        values: (rows, n); a row is a checkpoint or an arm.
        clusters: (n,) cluster of each column.

    Returns:
        sums (rows, G) and sizes (G,).
    """
    x = np.atleast_2d(np.asarray(values, float))
    groups = int(clusters.max()) + 1
    membership = np.zeros((x.shape[1], groups))
    membership[np.arange(x.shape[1]), clusters] = 1.0
    return x @ membership, membership.sum(axis=0)


def clustered_means(values: ArrayLike, clusters: Codes, counts: Array) -> Array:
    """Return the resampled means of each row: (resamples, rows), from counts of `cluster_counts`.

    ``values`` are as in `cluster_totals`.
    """
    sums, sizes = cluster_totals(values, clusters)
    return np.asarray((counts @ sums.T) / (counts @ sizes)[:, None])


def clustered_bootstrap(values: ArrayLike, clusters: Codes, resamples: int, seed: int) -> Array:
    """Draw whole clusters with replacement and return the mean of every row: (resamples, rows)."""
    counts = cluster_counts(int(clusters.max()) + 1, resamples, np.random.default_rng(seed))
    return clustered_means(values, clusters, counts)


def interval(draws: Array, known: ClusteredMean, level: float, method: str, value: float | None = None) -> Estimate:
    """Return a mean with the expanded percentile interval of its resampled ``draws`` (resamples,).

    Resamples of few clusters stay within the observed range, so even expanded percentiles cover too little (76 %
    instead of 95 % with three clusters).  Below `MIN_CLUSTERS` there is no interval.

    Args:
        draws: the resampled statistic.
        known: the mean, its clusters and its degrees of freedom, which expand the percentiles.
        level: confidence level.
        method: how the draws were made, in words.
        value: the statistic, if it is not the mean.
    """
    clusters = known.clusters
    value = known.mean if value is None else value
    if clusters < 2:
        return Estimate(value, None, None, level, method, clusters, ONE_CLUSTER)
    if clusters < MIN_CLUSTERS:
        reason = f"{clusters} families are too few to resample; it needs {MIN_CLUSTERS}"
        return Estimate(value, None, None, level, method, clusters, reason)
    if np.ptp(draws) <= 1e-12 * max(1.0, abs(value)):
        return Estimate(value, None, None, level, method, clusters, "every resample gives the same value")
    tail = expanded_tail((1 - level) / 2, clusters, known.df)
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Estimate(value, float(low), float(high), level, method, clusters)


def expanded_tail(tail: float, units: int, df: float) -> float:
    """Return the expanded percentile for few resampled units: Phi(sqrt(n / (n-1)) t_df^{-1}(tail))."""
    return float(stats.norm.cdf(math.sqrt(units / (units - 1)) * stats.t.ppf(tail, df)))


def simultaneous_factor(draws: Array, level: float, df: float) -> float:
    """Return c such that mean +- c standard errors covers all rows at once with probability ``level``.

    The max-|t| method: the ``level`` quantile over resamples of the greatest standardised deviation among the rows,
    multiplied by the ratio of t and normal quantiles for few clusters.

    Args:
        draws: (resamples, rows) resampled means with common draws.
        level: simultaneous confidence level.
        df: lowest degrees of freedom of the rows' standard errors.
    """
    deviation = draws - draws.mean(axis=0)
    sd = deviation.std(axis=0)
    moving = sd > 1e-12
    if not moving.any():
        return 0.0
    greatest = np.abs(deviation[:, moving] / sd[moving]).max(axis=1)
    tail = (1 - level) / 2
    pointwise = float(-stats.t.ppf(tail, df))
    stretch = pointwise / float(-stats.norm.ppf(tail))
    return max(pointwise, float(np.quantile(greatest, level)) * stretch)


def weighted_iqm(values: Array, counts: NDArray[np.number]) -> Array:
    """Return the interquartile mean of multisets given by counts.

    Args:
        values: (n,) the distinct cells.
        counts: (resamples, n) how often each is in the multiset; rows may have different sums.

    Returns:
        (resamples,) mean after dropping floor(N/4) of the N elements at each end.
    """
    order = np.argsort(values, kind="stable")
    reach = np.cumsum(counts[:, order], axis=1, dtype=float)
    total = reach[:, -1:]
    cut = np.floor(total * 0.25)
    inside = np.clip(reach, cut, total - cut)
    inside[:, 1:] -= inside[:, :-1].copy()
    inside[:, 0] -= cut[:, 0]
    return np.asarray(inside @ values[order] / (total - 2 * cut)[:, 0])


def crossed_bootstrap(
    values: ArrayLike,
    clusters: Codes,
    statistic: Literal["mean", "iqm"],
    resamples: int,
    seed: int,
    draw_runs: bool = True,
) -> Array:
    """Resample whole runs and whole clusters of problems, independently of each other (Owen 2007).

    Valid if each run (a training seed) has episodes on all problems.

    Args:
        values: (runs, problems).
        clusters: (problems,) cluster of each problem.
        statistic: ``mean`` or ``iqm`` over all runs and problems.
        resamples: number of resamples.
        seed: seed of the draws.
        draw_runs: resample runs too; otherwise the result holds for these runs only.

    Returns:
        (resamples,) the statistic of each resample.
    """
    x = np.asarray(values, float)
    runs = x.shape[0]
    rng = np.random.default_rng(seed)
    run_counts = cluster_counts(runs, resamples, rng) if draw_runs else np.ones((resamples, runs))
    problem_counts = cluster_counts(int(clusters.max()) + 1, resamples, rng)[:, clusters]
    if statistic == "mean":
        top = np.einsum("rs,sp,rp->r", run_counts, x, problem_counts, optimize=True)
        return np.asarray(top / (runs * problem_counts.sum(axis=1)))
    result = np.empty(resamples)
    step = max(1, 2_000_000 // x.size)
    for start in range(0, resamples, step):
        part = slice(start, min(start + step, resamples))
        counts = run_counts[part, :, None] * problem_counts[part, None, :]
        result[part] = weighted_iqm(x.ravel(), counts.reshape(-1, x.size))
    return result
