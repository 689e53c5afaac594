"""Sample sizes: how many problems, episodes and training runs are needed to detect a difference.

The variances come from a pilot (any earlier sweep or test).  The paired t test over problems gives the number of
problems (at most two more than Miller's formula, 2024, arXiv 2411.00640, unless there are few).  Training runs are a
second, crossed source of variation.  Selection adds optimism: the expected maximum of several equal checkpoints.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, stats

from pipeline_lib.evaluation.clusters import clustered_mean
from pipeline_lib.evaluation.power import detectable, problems_needed
from pipeline_lib.evaluation.results import EvaluationError, Result
from pipeline_lib.evaluation.table import Episodes, pair, tabulate

MAX_PROBLEMS = 1_000_000


@dataclass(frozen=True, slots=True)
class Variances(Result):
    """Components of the variance of differences between two teams, in squared natural units.

    Attributes:
        between: omega^2, over problems, of the true difference; ``clustering`` corrects for families.
        within_a: s_a^2, of the first team's episodes on one problem.
        within_b: s_b^2, of the second's.
        runs: over training runs, of the mean difference; 0 if the pilot had only one run.
        clustering: factor by which families inflate the variance of a mean over problems; 1 without families.
        problems: problems of the pilot.
        training_runs: training runs of the pilot.
    """

    between: float
    within_a: float
    within_b: float
    runs: float = 0.0
    clustering: float = 1.0
    problems: int = 0
    training_runs: int = 1


def variances(a: Episodes, b: Episodes, metric: str) -> Variances:
    """Estimate the variances from a pilot's episodes of two teams (moment estimates, never below 0).

    Raises:
        EvaluationError: fewer than two common problems, or only one episode per problem (then the variance within
            problems cannot be separated from that between problems).
    """
    pairing = pair(tabulate(a, metric, "the first team"), tabulate(b, metric, "the second team"))
    if len(pairing.problems) < 2:
        raise EvaluationError("a pilot needs at least two problems; evaluate more")
    within_a, samples_a = _within(pairing.a)
    within_b, samples_b = _within(pairing.b if pairing.trained[1] else pairing.b[:1])
    difference = pairing.a_means.mean(axis=0) - pairing.b_means.mean(axis=0)
    spread = float(difference.var(ddof=1))
    clustered = clustered_mean(difference, pairing.clusters)
    simple = spread / difference.size
    per_run = (pairing.a_means - pairing.b_means).mean(axis=1) if pairing.aligned else pairing.a_means.mean(axis=1)
    noise = (interaction_variance(pairing.a_means - pairing.b_means) if pairing.aligned else 0.0) / difference.size
    return Variances(
        between=max(0.0, spread - within_a / samples_a - within_b / samples_b),
        within_a=within_a,
        within_b=within_b,
        runs=max(0.0, float(per_run.var(ddof=1)) - noise) if per_run.size > 1 else 0.0,
        clustering=max(1.0, clustered.se**2 / simple) if simple > 0 and not clustered.degenerate else 1.0,
        problems=difference.size,
        training_runs=per_run.size,
    )


def interaction_variance(rows: NDArray[np.float64]) -> float:
    """Return the interaction variance of (runs, problems): the variance after removal of row and column means."""
    rest = rows - rows.mean(axis=1, keepdims=True) - rows.mean(axis=0, keepdims=True) + rows.mean()
    freedom = (rows.shape[0] - 1) * (rows.shape[1] - 1)
    return float((rest**2).sum() / freedom) if freedom else 0.0


def requirements(
    pilot: Variances,
    differences: Sequence[float],
    samples: Sequence[int],
    runs: Sequence[int],
    alpha: float = 0.05,
    power: float = 0.8,
    checkpoints: int = 8,
) -> list[dict[str, Any]]:
    """Return the needed sample sizes, one row per difference, samples per problem and number of training runs.

    Args:
        pilot: variances, from `variances` or by hand.
        differences: wanted true differences in natural units, for example (0.02, 0.05, 0.1).
        samples: episodes per problem and team to consider.
        runs: training runs to consider.
        alpha: two-sided level.
        power: wanted power.
        checkpoints: checkpoints of a run among which one is selected.

    Returns:
        Rows with ``difference``, ``samples``, ``runs``, ``problems`` (for a statement about the teams trained),
        ``problems_new_runs`` (for one about other training runs; None if no number of problems is enough, or with
        fewer than three runs), ``test_episodes`` (all teams: the runs and one base), ``sweep_episodes`` (all
        checkpoints of all runs and the base, on as many problems) and ``optimism`` (expected excess of the best of
        ``checkpoints`` equal ones on as many problems, in natural units).
    """
    rows = []
    for difference in differences:
        for k in samples:
            for n in runs:
                problems = problems_needed(difference, _problem_variance(pilot, k, n), alpha, power)
                rows.append(
                    {
                        "difference": difference,
                        "samples": k,
                        "runs": n,
                        "problems": problems,
                        "problems_new_runs": _problems_new_runs(pilot, difference, k, n, alpha, power),
                        "test_episodes": problems * k * (n + 1),
                        "sweep_episodes": problems * k * (n * checkpoints + 1),
                        "optimism": expected_maximum(checkpoints) * math.sqrt(pilot.within_a / k / problems),
                    }
                )
    return rows


def expected_maximum(count: int) -> float:
    """Return the expected greatest of ``count`` independent standard normals: 0.564 for 2, 1.736 for 15."""
    if count < 2:
        return 0.0

    def integrand(x: float) -> float:
        return float(x * count * stats.norm.pdf(x) * stats.norm.cdf(x) ** (count - 1))

    return float(integrate.quad(integrand, -9, 9, epsabs=1e-10)[0])


def _within(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the variance of episodes within a problem, and the mean number of independent episodes per problem."""
    present = (~np.isnan(values)).sum(axis=2)
    if (present < 2).all():
        raise EvaluationError(
            "the pilot has one episode per problem, so the spread within a problem is unknown; evaluate with at least "
            "two samples per problem"
        )
    enough = present > 1
    means = np.nanmean(values, axis=2, keepdims=True)
    squares = np.nansum((values - means) ** 2, axis=2)
    variance = float((squares[enough] / (present[enough] - 1)).mean())
    return variance, float(present.mean()) * values.shape[0]


def _problem_variance(pilot: Variances, samples: int, runs: int) -> float:
    return pilot.clustering * (pilot.between + pilot.within_a / (samples * runs) + pilot.within_b / samples)


def _problems_new_runs(
    pilot: Variances, difference: float, samples: int, runs: int, alpha: float, power: float
) -> int | None:
    """Return the problems at which the crossed t test of `training_runs` finds the difference, or None."""
    if runs < 3:
        return None
    over_runs = pilot.runs / runs

    def found(problems: int) -> bool:
        over_problems = _problem_variance(pilot, samples, runs) / problems
        variance = over_runs + over_problems
        if variance == 0:
            return True
        df = variance**2 / (over_runs**2 / (runs - 1) + over_problems**2 / max(1, problems - 1))
        return detectable(math.sqrt(variance), df, alpha, power) <= abs(difference)

    if not found(MAX_PROBLEMS):
        return None
    return 2 + bisect_left(range(2, MAX_PROBLEMS), True, key=found)
