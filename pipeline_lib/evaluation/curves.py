"""Curves over checkpoints: means on common problems, pointwise intervals, and a simultaneous band.

A resample of clusters is a vector of counts, so ten thousand resampled means of many checkpoints are one matrix
product.  All checkpoints share the resamples, so their differences and maxima are correct.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from pipeline_lib.evaluation.clusters import Codes, cluster_totals, clustered_mean, encode
from pipeline_lib.evaluation.results import EvaluationError, Result
from pipeline_lib.evaluation.table import Table, on_common_episodes, problem_means

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import VerdictSettings

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point(Result):
    """One checkpoint on the validation curve.

    Attributes:
        step: training step; 0 is the base.
        mean: mean of the primary metric over problems.
        se: clustered standard error, or None.
        low: lower limit of the pointwise interval, or None.
        high: its upper limit, or None.
        band_low: lower limit of the band that covers all checkpoints at once, or None.
        band_high: its upper limit, or None.
        faults: guards it fails, in words; with any, it is not selected.
    """

    step: int
    mean: float
    se: float | None
    low: float | None
    high: float | None
    band_low: float | None
    band_high: float | None
    faults: tuple[str, ...] = ()


def common_means(tables: Sequence[Table], owner: str) -> tuple[Array, Codes, list[str]]:
    """Return (tables, problems) means on the episodes that no table lost, their clusters, and notes.

    Args:
        tables: one per checkpoint.
        owner: description of the tables, for messages.

    Raises:
        EvaluationError: the tables have no common problem.
    """
    rows = []
    for table in on_common_episodes(tables):
        means = problem_means(table)[0]
        rows.append({p: means[i] for i, p in enumerate(table.problems) if not np.isnan(means[i])})
    usable = sorted(set(rows[0]).intersection(*rows))
    if not usable:
        raise EvaluationError(f"{owner}: no problem was evaluated for all checkpoints; evaluate the missing ones")
    every = set().union(*(table.problems for table in tables))
    notes = []
    if lost := sum(table.lost for table in tables):
        notes.append(f"{owner}: {lost} episodes were lost to the infrastructure and left out for every checkpoint")
    if len(usable) < len(every):
        notes.append(
            f"{owner}: {len(every) - len(usable)} of {len(every)} problems lack a checkpoint and were left out"
        )
    if len(usable) == 1:
        notes.append(
            f"{owner}: one problem only, so the variation over problems is unknown; evaluate more validation problems"
        )
    family = {p: f for table in tables for p, f in zip(table.problems, table.families, strict=True)}
    return np.array([[row[p] for p in usable] for row in rows]), encode([family[p] for p in usable]), notes


def curve(steps: Sequence[int], means: Array, clusters: Codes, verdict: VerdictSettings) -> tuple[list[Point], Array]:
    """Return the points of a curve with pointwise intervals and simultaneous band, and the resamples behind it."""
    level = 1 - verdict.alpha
    groups = int(clusters.max()) + 1
    counts = cluster_counts(groups, verdict.resamples, np.random.default_rng(verdict.seed))
    found = [clustered_mean(row, clusters) for row in means]
    known = [one for one in found if not one.degenerate]
    least = min((one.df for one in known), default=1.0)
    factor = simultaneous_factor(clustered_means(means, clusters, counts), level, least) if known else 0.0
    points = []
    for step, one in zip(steps, found, strict=True):
        if one.degenerate:
            points.append(Point(step, one.mean, None, None, None, None, None))
            continue
        half, band = float(stats.t.ppf((1 + level) / 2, one.df)) * one.se, factor * one.se
        points.append(Point(step, one.mean, one.se, one.mean - half, one.mean + half, one.mean - band, one.mean + band))
    return points, counts


def cluster_counts(clusters: int, resamples: int, rng: np.random.Generator) -> Array:
    """Return how often each cluster is drawn: (resamples, clusters), rows summing to ``clusters``."""
    if clusters < 1 or resamples < 1:
        raise EvaluationError(f"cannot draw {resamples} resamples of {clusters} clusters")
    return rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=resamples).astype(float)


def clustered_means(values: ArrayLike, clusters: Codes, counts: Array) -> Array:
    """Return the resampled means of each row: (resamples, rows), from counts of `cluster_counts`.

    ``values`` are as in `cluster_totals`.
    """
    sums, sizes = cluster_totals(values, clusters)
    return np.asarray((counts @ sums.T) / (counts @ sizes)[:, None])


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


def pooled_curve(
    tables: Sequence[Sequence[Table]], steps: Sequence[int], verdict: VerdictSettings
) -> tuple[Point, ...]:
    """Return the curve of means over training seeds, at common steps and problems."""
    if not steps:
        return ()
    flat, clusters, _ = common_means([table for row in tables for table in row], "the curve over training seeds")
    means = flat.reshape(len(tables), len(steps), -1).mean(axis=0)
    return tuple(curve(steps, means, clusters, verdict)[0])


def base_point(base: Table, verdict: VerdictSettings) -> Point:
    """Return the base as the point at step 0."""
    means, clusters, _ = common_means([base], "the base")
    return curve([0], means, clusters, verdict)[0][0]
