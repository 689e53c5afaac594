"""Inference about other training runs: over training seeds and problems together.

The claim that the training *procedure* produces better teams is about seeds that were not run.
Runs and problems are crossed random effects: the variance of the mean difference is that over runs, plus that over
(clusters of) problems, minus their interaction, which both contain (Cameron, Gelbach & Miller 2011; in a balanced
design the classical analysis of variance), with Satterthwaite's degrees of freedom.  With fewer than three runs of a
trained team no such claim is possible.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pipeline_lib.evaluation.clusters import Codes, cluster_totals, clustered_mean
from pipeline_lib.evaluation.evidence import no_answer, student
from pipeline_lib.evaluation.results import TestResult

Array = NDArray[np.float64]

MIN_RUNS = 3
METHOD = "t test over training runs and problems (crossed random effects)"


def new_runs(
    a: Array, b: Array, clusters: Codes, level: float, aligned: bool = True, trained: bool = True
) -> TestResult:
    """Test the mean difference as a statement about new training runs on new problems.

    ``a`` and ``b`` are (runs, problems) means of the teams; ``aligned``: row i of one belongs to row i of the other.

    Returns:
        The test, or in ``degenerate`` why there is none (too few runs, one family, no variation at all).
    """
    differences = a.mean(axis=0) - b.mean(axis=0)
    parts = [a - b] if aligned else [a, b]
    runs = tuple(part.shape[0] for part in parts)
    over_problems = clustered_mean(differences, clusters)
    mean = over_problems.mean

    def unknown(reason: str) -> TestResult:
        return no_answer(METHOD, runs, level, reason, mean)

    if not trained:
        return unknown("neither team was trained")
    if min(runs) < MIN_RUNS:
        return unknown(
            f"{' and '.join(str(n) for n in runs)} training run{'s' if runs != (1,) else ''}: a statement about other "
            f"runs needs at least {MIN_RUNS}; this result is about the checkpoints tested"
        )
    if over_problems.clusters < 2:
        return unknown(over_problems.degenerate)
    pieces = [(over_problems.se**2, over_problems.df)]
    for part in parts:
        pieces.append((float(part.mean(axis=1).var(ddof=1)) / part.shape[0], part.shape[0] - 1.0))
    interactions = [_interaction(part, clusters) for part in parts]
    variance = sum(value for value, _ in pieces) - sum(value for value, _ in interactions)
    # Subtracting an estimate can overshoot; the variance is never below its greatest part.
    variance = max(variance, *(value for value, _ in pieces))
    if variance <= 1e-28 * max(1.0, mean * mean):
        return unknown("no variation between runs or problems, so no interval can be estimated")
    df = variance**2 / sum(value**2 / freedom for value, freedom in (*pieces, *interactions))
    se = math.sqrt(variance)
    t = mean / se
    p = float(2 * stats.t.sf(abs(t), df))
    return student(METHOD, mean, se, df, (*runs, over_problems.clusters), level, t, p)


def _interaction(values: Array, clusters: Codes) -> tuple[float, float]:
    """Return the variance of the mean that is due to run x cluster interaction, and its degrees of freedom."""
    runs, problems = values.shape
    groups = int(clusters.max()) + 1
    rest = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0, keepdims=True) + values.mean()
    totals, _ = cluster_totals(rest, clusters)
    freedom = (runs - 1.0) * (groups - 1.0)
    return float((totals**2).sum()) / (runs * problems) ** 2 * runs * groups / freedom, freedom
