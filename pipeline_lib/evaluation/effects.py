"""Effect sizes that scipy lacks in exact form.

Hedges' g uses the pooled standard deviation, the exact small-sample factor J (a ratio of gamma functions, not the
1 - 3/(4 df - 1) of most packages), and the jackknife over families for its interval.  The interquartile mean is that of
rliable (Agarwal et al. 2021), the probability of improvement likewise.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from pipeline_lib.evaluation.clusters import Codes
from pipeline_lib.evaluation.results import Effect, EvaluationError

Array = NDArray[np.float64]


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
