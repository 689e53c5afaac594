"""The events of an episode so far, as the numbers from which rewards, metrics and reports are computed.

All use this one definition.  A quotient has a defined value if nothing was counted, and nothing that did not happen
counts as good (for DPBench a table without meals is perfectly fair; here its fairness is 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline_lib.environments.philosophers.table import Counts, Table

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Summary:
    """Facts of B episodes up to now; arrays of shape (B,) unless said otherwise."""

    meals: npt.NDArray[np.int32]  #: (N, B), meals begun by each philosopher
    deadlocked: npt.NDArray[np.bool_]  #: whether a deadlock was seen
    deadlock_time: Floats  #: share of the horizon that had passed at the first deadlock, in (0, 1]; 1 without one
    time: Floats  #: share of the horizon that has passed, in [0, 1]
    optimum: Floats  #: most meals possible on this table within the horizon, at least 1
    horizon: Floats  #: steps of a full episode
    full: Floats  #: decisions of a full episode (horizon times the philosophers that move per step)
    counts: Counts  #: counters, see `Counts`

    @property
    def philosophers(self) -> int:
        return int(self.meals.shape[0])

    @property
    def total_meals(self) -> Floats:
        return self.meals.sum(axis=0).astype(np.float64)

    @property
    def share(self) -> Floats:
        """Return meals relative to the optimum, in [0, 1]."""
        return self.total_meals / self.optimum

    @property
    def starving(self) -> Floats:
        return (self.meals == 0).sum(axis=0).astype(np.float64)

    def fairness(self, without_meals: float = 0.0) -> Floats:
        """Return one minus the normalised Gini coefficient of the meals, in [0, 1]; see `fairness`."""
        return fairness(self.meals, without_meals)


def summarise(table: Table, optimum: npt.ArrayLike) -> Summary:
    """Return the facts of a table; ``optimum`` is (B,) or a number, at least 1."""
    horizon = table.horizon.astype(np.float64)
    movers = 1 if table.sequential else table.graph.philosophers
    return Summary(
        meals=table.meals,
        deadlocked=table.deadlocked,
        deadlock_time=np.where(table.deadlocked, table.deadlock_time / horizon, 1.0),
        time=table.time / horizon,
        optimum=np.broadcast_to(np.asarray(optimum, dtype=np.float64), horizon.shape),
        horizon=horizon,
        full=horizon * movers,
        counts=table.counts,
    )


def fairness(meals: npt.NDArray[np.int32], without_meals: float = 0.0) -> Floats:
    """Return 1 - G N / (N - 1) with G the Gini coefficient of the meals over philosophers.

    Args:
        meals: (N, B).
        without_meals: the value if there was no meal; 0, because a table at which nothing happens is not fair.

    Returns:
        (B,), 1 if all ate equally often, 0 if one philosopher had all meals.
    """
    n = meals.shape[0]
    ascending = np.sort(meals, axis=0).astype(np.float64)
    total = ascending.sum(axis=0)
    weighted = (np.arange(1, n + 1)[:, None] * ascending).sum(axis=0)
    gini = 2 * weighted / (n * np.maximum(total, 1)) - (n + 1) / n
    return np.where(total > 0, np.clip(1 - gini * n / (n - 1), 0, 1), without_meals)


def ratio(numerator: npt.ArrayLike, denominator: npt.ArrayLike, empty: float) -> Floats:
    """Return numerator / denominator, and ``empty`` where the denominator is 0."""
    top, bottom = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), empty)


def metrics(summary: Summary) -> dict[str, Floats]:
    """Return the metrics of the episodes so far, each of shape (B,); `metrics.METRICS` says what they are."""
    counts, n = summary.counts, summary.philosophers
    return {
        "meals": summary.total_meals,
        "meals_share": summary.share,
        "meals_per_step": summary.total_meals / summary.horizon,
        "deadlock": summary.deadlocked.astype(np.float64),
        "deadlocks": counts.deadlocks.astype(np.float64),
        "fairness": summary.fairness(),
        "minimum_share": n * summary.meals.min(axis=0) / summary.optimum,
        "starvation": summary.starving / n,
        "livelock": counts.livelock.astype(np.float64),
        "wait_share": ratio(counts.waits, counts.decisions, 0.0),
        "invalid_share": ratio(counts.invalid, counts.decisions, 0.0),
        "failed_share": ratio(counts.failed, counts.decisions, 0.0),
        "survived": summary.deadlock_time,
    }
