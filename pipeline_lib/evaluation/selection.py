"""Select a checkpoint of each training run by a rule fixed in advance, and estimate how far the choice can be trusted.

The best of many validation means is biased upwards.  The bootstrap estimates this bias: the best checkpoint of a
resample is evaluated on the problem families that are not in the resample, where it has no such advantage.  A resample
contains some clusters several times, so its mean varies more than that of the data; the gap is divided by that factor.
For equal checkpoints the estimate is the textbook value (1.74 standard errors for the best of 15), for a clear winner
it is 0.

Curves over checkpoints: means on common problems, pointwise intervals, and a simultaneous band.

A resample of clusters is a vector of counts, so ten thousand resampled means of many checkpoints are one matrix
product.  All checkpoints share the resamples, so their differences and maxima are correct.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from pipeline_lib.environment_api.metrics import NO_METRICS, Metrics
from pipeline_lib.evaluation.clusters import Codes, cluster_totals, clustered_mean, encode, hedges_correction
from pipeline_lib.evaluation.episodes import EpisodeRecord, Guarded, check_guards
from pipeline_lib.evaluation.plan import problems_digest
from pipeline_lib.evaluation.results import EvaluationError, Result
from pipeline_lib.evaluation.table import Table, on_common_episodes, problem_means, tabulate

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import EvaluateSettings, VerdictSettings


Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Point(Result):
    """One checkpoint on the validation curve."""

    step: int  #: training step; 0 is the base
    mean: float  #: mean of the primary metric over problems
    se: float | None  #: clustered standard error, or None
    low: float | None  #: lower limit of the pointwise interval, or None
    high: float | None  #: its upper limit, or None
    band_low: float | None  #: lower limit of the band that covers all checkpoints at once, or None
    band_high: float | None  #: its upper limit, or None
    faults: tuple[str, ...] = ()  #: guards it fails, in words; with any, it is not selected


def common_means(tables: Sequence[Table], owner: str) -> tuple[Array, Codes, list[str]]:
    """Return (tables, problems) means on the episodes that no table lost, their clusters, and notes.

    There is a table per checkpoint; messages call them ``owner``.  EvaluationError if they have no common problem.
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
    multiplied by the ratio of t and normal quantiles for few clusters.  ``draws`` are (resamples, rows) resampled means
    with common draws; ``df`` the lowest degrees of freedom of the rows' standard errors.
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


@dataclass(frozen=True, slots=True)
class SeedSelection(Result):
    """The choice for one training run."""

    seed: int  #: training seed
    step: int  #: the step selected
    mean: float  #: its validation mean, too high by about ``optimism``; not to be reported as the result
    last: int  #: the last step
    guarded: bool  #: whether the step passes all guards; False only if no checkpoint does
    #: Expected excess of the selected mean over its true value, or None with fewer than three families.
    optimism: float | None
    optimism_if_equal: float | None  #: the same if all checkpoints were equally good: the maximum due to chance alone
    repeats: Mapping[int, float]  #: share of resamples that select each step
    curve: tuple[Point, ...]  #: all checkpoints
    notes: tuple[str, ...]  #: caveats


@dataclass(frozen=True, slots=True)
class Selection(Result):
    """The outcome of the sweep."""

    metric: str  #: primary metric
    rule: str  #: rule of selection
    seeds: Mapping[int, SeedSelection]  #: the choice for each training seed
    champion_seed: int  #: training seed whose selected checkpoint has the best validation mean
    champion_step: int  #: its step
    base: Point | None  #: the base on the validation split, or None if it was not evaluated
    curve: tuple[Point, ...]  #: means over all training seeds, at the steps that all have
    notes: tuple[str, ...]  #: caveats
    design: Mapping[str, Any]  #: the actual design, for comparison with the plan


def select(
    checkpoints: Mapping[int, Mapping[int, Sequence[EpisodeRecord]]],
    base: Sequence[EpisodeRecord],
    evaluate: EvaluateSettings,
    verdict: VerdictSettings,
    metrics: Metrics = NO_METRICS,
) -> Selection:
    """Select a checkpoint for each training seed from its episodes on the validation split.

    ``checkpoints`` has episodes by training seed and step; ``base`` may be empty.  Intervals have the level 1 -
    ``verdict.alpha``.

    Raises:
        EvaluationError: there are no checkpoints, or no problem was evaluated for all of them.
    """
    if not checkpoints or not all(checkpoints.values()):
        raise EvaluationError(
            "there are no checkpoints to select from; train first, with train.checkpoint_every at most train.steps"
        )
    tables = {
        seed: {
            step: tabulate(steps[step], evaluate.metric, f"step {step} of training seed {seed}")
            for step in sorted(steps)
        }
        for seed, steps in sorted(checkpoints.items())
    }
    seeds = {
        seed: _select_seed(
            seed,
            by_step,
            {step: check_guards(checkpoints[seed][step], base, evaluate, metrics) for step in by_step},
            evaluate,
            verdict,
        )
        for seed, by_step in tables.items()
    }
    champion = max(seeds.values(), key=lambda chosen: (chosen.guarded, chosen.mean, -chosen.seed))
    common = sorted(set.intersection(*(set(by_step) for by_step in tables.values())))
    pooled: list[Point] = []
    if common:
        flat = [by_step[step] for by_step in tables.values() for step in common]
        means, clusters, _ = common_means(flat, "the curve over training seeds")
        pooled, _ = curve(common, means.reshape(len(tables), len(common), -1).mean(axis=0), clusters, verdict)
    reference = None
    if base:
        means, clusters, _ = common_means([tabulate(base, evaluate.metric, "the base")], "the base")
        ((reference,), _) = curve([0], means, clusters, verdict)
    notes = tuple(dict.fromkeys(note for chosen in seeds.values() for note in chosen.notes))
    if reference and champion.mean <= reference.mean:
        notes += ("no selected checkpoint is better than the base on the validation split",)
    every = [problem for by_step in tables.values() for table in by_step.values() for problem in table.problems]
    return Selection(
        metric=evaluate.metric,
        rule=evaluate.select,
        seeds=seeds,
        champion_seed=champion.seed,
        champion_step=champion.step,
        base=reference,
        curve=tuple(pooled),
        notes=notes,
        design={
            "metric": evaluate.metric,
            "select": evaluate.select,
            "alpha": verdict.alpha,
            "resamples": verdict.resamples,
            "resampling_seed": verdict.seed,
            "training_seeds": list(tables),
            "checkpoints": {str(seed): list(by_step) for seed, by_step in tables.items()},
            "validation_problems": problems_digest(every),
            "validation_samples": max(t.values.shape[2] for by_step in tables.values() for t in by_step.values()),
        },
    )


def choose(means: Array, se: Array, eligible: NDArray[np.bool_], rule: str) -> NDArray[np.intp]:
    """Apply the rule of selection to many sets of means at once; return the place of each chosen checkpoint, (...).

    ``means`` is (..., checkpoints) in order of step, ``se`` (checkpoints,) their standard errors, ``eligible``
    (checkpoints,) bool, at least one.  ``best_mean`` chooses the earliest of ties, ``one_standard_error`` the earliest
    whose mean is at most one standard error below the best.
    """
    masked = np.where(eligible, means, -np.inf)
    best = masked.argmax(axis=-1)
    if rule == "best_mean":
        return np.asarray(best)
    floor = np.take_along_axis(masked, best[..., None], -1) - se[best][..., None]
    return np.asarray((masked >= floor).argmax(axis=-1))


def _select_seed(
    seed: int,
    tables: Mapping[int, Table],
    guards: Mapping[int, Guarded],
    evaluate: EvaluateSettings,
    verdict: VerdictSettings,
) -> SeedSelection:
    steps = list(tables)
    means, clusters, notes = common_means(list(tables.values()), f"training seed {seed}")
    points, counts = curve(steps, means, clusters, verdict)
    passed = np.array([guards[step].passed for step in steps])
    eligible = passed if passed.any() else np.ones(len(steps), dtype=bool)
    se = np.array([point.se or 0.0 for point in points])
    chosen = int(choose(means.mean(axis=1), se, eligible, evaluate.select))
    if not passed.any():
        notes.append(f"training seed {seed}: no checkpoint passes the guards; the one selected must not be trusted")
    if evaluate.guards and all(len(guards[step].not_measured) == len(evaluate.guards) for step in steps):
        notes.append(
            f"no guard applies: the environment reports none of {', '.join(guards[steps[0]].not_measured)}; "
            "name metrics that it has in evaluate.guards"
        )
    winners = choose(clustered_means(means, clusters, counts), se, eligible, evaluate.select)
    share = np.bincount(winners, minlength=len(steps)) / len(winners)
    excess, excess_if_equal = _optimism(means, clusters, counts, winners, eligible)
    return SeedSelection(
        seed=seed,
        step=steps[chosen],
        mean=points[chosen].mean,
        last=steps[-1],
        guarded=bool(passed[chosen]),
        optimism=excess,
        optimism_if_equal=excess_if_equal,
        repeats={step: float(value) for step, value in zip(steps, share, strict=True) if value > 0},
        curve=tuple(dataclasses.replace(point, faults=guards[point.step].failures) for point in points),
        notes=tuple(notes),
    )


def _optimism(
    means: Array, clusters: Codes, counts: Array, winners: NDArray[np.intp], eligible: NDArray[np.bool_]
) -> tuple[float | None, float | None]:
    sums, sizes = cluster_totals(means, clusters)
    if sizes.size < 3:
        return None, None
    drawn = (counts @ sums.T) / (counts @ sizes)[:, None]
    centred = np.where(eligible, drawn - means.mean(axis=1), -np.inf)
    left = (counts == 0).astype(float)
    fair = left.any(axis=1)
    rows = np.arange(winners.size)[fair]
    outside = (left[fair] @ sums.T) / (left[fair] @ sizes)[:, None]
    gap = drawn[rows, winners[fair]] - outside[np.arange(rows.size), winners[fair]]
    # Standard deviation of the resample's mean over that of the data's, for the families it drew.
    weights = counts[fair] * sizes
    wider = np.sqrt((weights**2).sum(axis=1) / (sizes**2).sum()) * sizes.sum() / weights.sum(axis=1)
    # The spread of resamples lacks Bessel's correction and is biased; Hedges' factor for G corrects both.
    return float((gap / wider).mean()), float(centred.max(axis=1).mean()) / hedges_correction(sizes.size)
