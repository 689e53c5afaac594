"""Rewards of an episode as sums of named terms.

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

import numpy as np

from pipeline_lib.environment_api import reward
from pipeline_lib.environments.philosophers.summary import Floats, Summary, ratio


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
