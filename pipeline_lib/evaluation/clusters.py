"""Means over clustered data: which observations belong together, and how certain a mean of them is.

Episodes of one problem, and problems of one family, are not independent; the cluster is.  The standard error is the
cluster-robust one of Miller (2024, arXiv 2411.00640) times sqrt(G / (G - 1)), so that with one observation a cluster
it is exactly the usual sd / sqrt(n), and a paired comparison is exactly scipy's `ttest_rel`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from pipeline_lib.evaluation.results import Estimate

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

ONE_CLUSTER = (
    "all problems belong to one family, so nothing says how a result would vary over others; "
    "evaluate problems of more families"
)
NO_VARIATION = "no variation between families, so there is nothing to estimate an interval from"


def encode(labels: Sequence[str]) -> Codes:
    """Return the clusters as codes 0..G-1 in order of label; the single source of who belongs together."""
    return np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.intp)


@dataclass(frozen=True, slots=True)
class ClusteredMean:
    """A mean and its cluster-robust standard error.

    Attributes:
        mean: mean over observations.
        se: standard error; 0 when the clusters do not vary, NaN when there is one cluster only.
        clusters: number of clusters G; G - 1 are the degrees of freedom.
        n: number of observations.
    """

    mean: float
    se: float
    clusters: int
    n: int

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
        return ClusteredMean(mean, math.nan, groups, x.size)
    totals = np.bincount(clusters, weights=x - mean, minlength=groups)
    se = math.sqrt(groups / (groups - 1) * float(totals @ totals)) / x.size
    # Rounding leaves some 1e-17 where all values are equal; that is no variation.
    if np.ptp(x) <= 1e-12 * max(1.0, float(np.abs(x).max())) or se <= 1e-14 * max(1.0, float(np.abs(x).max())):
        se = 0.0
    return ClusteredMean(mean, se, groups, x.size)


def t_interval(values: ArrayLike, clusters: Codes, level: float) -> Estimate:
    """Return a mean with its interval from Student's t with G - 1 degrees of freedom."""
    result = clustered_mean(values, clusters)
    method = "mean, clustered standard error, Student t"
    if result.degenerate:
        return Estimate(result.mean, None, None, level, method, result.clusters, result.degenerate)
    half = float(stats.t.ppf((1 + level) / 2, result.clusters - 1)) * result.se
    return Estimate(result.mean, result.mean - half, result.mean + half, level, method, result.clusters)
