"""Select a checkpoint of each training run by a rule fixed in advance, and estimate how far the choice can be trusted.

The best of many validation means is biased upwards.  The bootstrap estimates this bias: the best checkpoint of a
resample is evaluated on the problem families that are not in the resample, where it has no such advantage.  A resample
contains some clusters several times, so its mean varies more than that of the data; the gap is divided by that factor.
For equal checkpoints the estimate is the textbook value (1.74 standard errors for the best of 15), for a clear winner
it is 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.environment_api.metrics import NO_METRICS, Metrics
from pipeline_lib.evaluation.clusters import Codes, cluster_totals
from pipeline_lib.evaluation.curves import Point, base_point, clustered_means, common_means, curve, pooled_curve
from pipeline_lib.evaluation.effects import hedges_correction
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.guards import Guarded, check_guards
from pipeline_lib.evaluation.results import EvaluationError, Result
from pipeline_lib.evaluation.table import Table, problems_digest, tabulate

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import EvaluateSettings, VerdictSettings

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SeedSelection(Result):
    """The choice for one training run.

    Attributes:
        seed: training seed.
        step: the step selected.
        mean: its validation mean, too high by about ``optimism``; not to be reported as the result.
        last: the last step.
        guarded: whether the step passes all guards; False only if no checkpoint does.
        optimism: expected excess of the selected mean over its true value, or None with fewer than three families.
        optimism_if_equal: the same if all checkpoints were equally good: the maximum due to chance alone.
        repeats: share of resamples that select each step.
        curve: all checkpoints.
        notes: caveats.
    """

    seed: int
    step: int
    mean: float
    last: int
    guarded: bool
    optimism: float | None
    optimism_if_equal: float | None
    repeats: Mapping[int, float]
    curve: tuple[Point, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selection(Result):
    """The outcome of the sweep.

    Attributes:
        metric: primary metric.
        rule: rule of selection.
        seeds: the choice for each training seed.
        champion_seed: training seed whose selected checkpoint has the best validation mean.
        champion_step: its step.
        base: the base on the validation split, or None if it was not evaluated.
        curve: means over all training seeds, at the steps that all have.
        notes: caveats.
        design: the actual design, for comparison with the plan.
    """

    metric: str
    rule: str
    seeds: Mapping[int, SeedSelection]
    champion_seed: int
    champion_step: int
    base: Point | None
    curve: tuple[Point, ...]
    notes: tuple[str, ...]
    design: Mapping[str, Any]


def select(
    checkpoints: Mapping[int, Mapping[int, Sequence[EpisodeRecord]]],
    base: Sequence[EpisodeRecord],
    evaluate: EvaluateSettings,
    verdict: VerdictSettings,
    metrics: Metrics = NO_METRICS,
) -> Selection:
    """Select a checkpoint for each training seed from its episodes on the validation split.

    Args:
        checkpoints: episodes by training seed and step.
        base: episodes of the base on the same problems; may be empty.
        evaluate: metric, rule and guards.
        verdict: alpha (intervals have level 1 - alpha), resamples and seed of the resampling.
        metrics: the environment's, for messages about guards.

    Raises:
        EvaluationError: there are no checkpoints, or no problem was evaluated for all of them.
    """
    if not checkpoints or not all(checkpoints.values()):
        raise EvaluationError(
            "there are no checkpoints to select from; train first, with train.checkpoint_every at most train.steps"
        )
    base_table = tabulate(base, evaluate.metric, "the base") if base else None
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
    pooled = pooled_curve([[by_step[step] for step in common] for by_step in tables.values()], common, verdict)
    reference = base_point(base_table, verdict) if base_table else None
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
        curve=pooled,
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
    """Apply the rule of selection to many sets of means at once.

    Args:
        means: (..., checkpoints) in order of step.
        se: (checkpoints,) standard error of each mean, for ``one_standard_error``.
        eligible: (checkpoints,) bool, which may be chosen; at least one.
        rule: ``best_mean`` (ties: the earliest) or ``one_standard_error`` (the earliest whose mean is at most one
            standard error below the best).

    Returns:
        (...) position of the chosen checkpoint.
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
