"""Rewards of an episode as sums of named terms, and the summary of its events from which they are computed.

Metrics and reports are computed from the same summary.  A quotient has a defined value if nothing was counted, and
nothing that did not happen counts as good (for DPBench a table without meals is perfectly fair; here its fairness is
0).

A reward looks at what happened so far (`Summary`) and returns its weighted terms.  The reward of a turn is the
increment of that sum, so the turns of an episode add up to the reward of the whole, whatever the turns are; there is
one definition for training, evaluation, audit and report.

`SoundReward` is the default.  `SumReward` adds up terms of the library `TERMS` by weight: the four-term family that
reproduces the published failure is one of them, and the audit refuses it.  Terms whose name ends in ``_vacuous``
are best when nothing happens; they are there to show what goes wrong.  A reward of your own is a subclass of `Reward`
(docs/rewards.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline_lib.environment_api import reward
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


class Reward(reward.Reward[Summary, Floats]):
    """The reward of an episode: `terms` takes the summary of B episodes so far and returns arrays of shape (B,)."""

    def total(self, summary: Summary) -> Floats:
        return np.sum(list(self.terms(summary).values()), axis=0, dtype=np.float64)


class SoundReward(Reward):
    """Meals relative to the optimum, discounted by unfairness, less a deadlock penalty that shrinks with survival.

    * ``meals``: meals / optimum * (1/2 + fairness / 2), in [0, 1]; 0 without meals, and the first meal always
      raises it.
    * ``deadlock``: -weight * (share of the horizon that was lost).  An early deadlock is worse than a late one, so
      a team that always ends in deadlock still has something to learn from.
    * ``invalid``: -weight * (unparseable actions / decisions of a full episode).  There is no bonus for parsing.
    """

    def __init__(self, deadlock: float = 0.1, invalid: float = 1.0) -> None:
        self._deadlock, self._invalid = deadlock, invalid
        self.bounds = (-deadlock - invalid, 1.0)

    def terms(self, summary: Summary) -> dict[str, Floats]:
        return {
            "meals": TERMS["fair_meals"](summary),
            "deadlock": -self._deadlock * TERMS["early_deadlock"](summary),
            "invalid": -self._invalid * TERMS["invalid"](summary),
        }


class SumReward(Reward):
    """Terms of the library `TERMS` by weight, optionally clipped.

    Args:
        weights: weight by term name; every term is in [0, 1].
        clip: least and greatest reward of an episode, or None; the amount that is clipped is a separate term.

    Raises:
        ValueError: a term that is not in the library, or no term at all.
    """

    def __init__(self, weights: Mapping[str, float], clip: tuple[float, float] | None = None) -> None:
        if not weights:
            raise ValueError(f"a reward needs at least one term; known terms: {', '.join(TERMS)}")
        for name in weights:
            if name not in TERMS:
                raise ValueError(f"there is no reward term {name!r}; known terms: {', '.join(TERMS)}")
        self._weights, self._clip = weights, clip
        self.bounds = clip or (sum(min(w, 0.0) for w in weights.values()), sum(max(w, 0.0) for w in weights.values()))

    def terms(self, summary: Summary) -> dict[str, Floats]:
        weighted = {name: weight * TERMS[name](summary) for name, weight in self._weights.items()}
        if self._clip is not None:
            total = np.sum(list(weighted.values()), axis=0, dtype=np.float64)
            weighted["clip"] = np.clip(total, *self._clip) - total
        return weighted


#: The library of terms, each in [0, 1] for every episode and every moment of it.
TERMS: dict[str, Callable[[Summary], Floats]] = {
    # What is wanted.
    "meals": lambda s: s.share,
    "fair_meals": lambda s: s.share * (0.5 + 0.5 * s.fairness()),
    "fair_meals_without_deadlock": lambda s: s.share * s.fairness() * (1.0 - s.deadlocked),
    "minimum_share": lambda s: s.philosophers * s.meals.min(axis=0) / s.optimum,
    "fairness": lambda s: s.fairness(),
    # What is not wanted; give these a negative weight.
    "deadlock": lambda s: s.deadlocked.astype(np.float64),
    "early_deadlock": lambda s: 1.0 - s.deadlock_time,
    "starvation": lambda s: s.starving / s.philosophers,
    "invalid": lambda s: s.counts.invalid / s.full,
    "failed": lambda s: s.counts.failed / s.full,
    # Best when nothing happens.
    "no_deadlock_vacuous": lambda s: (~s.deadlocked).astype(np.float64),
    "fairness_vacuous": lambda s: s.fairness(without_meals=1.0),
    "success_vacuous": lambda s: ratio(s.counts.taken, s.counts.taken + s.counts.failed, empty=1.0),
    "efficiency_vacuous": lambda s: np.minimum(ratio(2.0 * s.total_meals, s.counts.taken, empty=1.0), 1.0),
}
