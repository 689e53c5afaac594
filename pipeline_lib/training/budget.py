"""How much compute a training run may use, and how much it has used; without torch.

A budget makes two kinds of training comparable that need different amounts of compute per update: the second is trained
until it has used as much as the first.  A budget ends a run after the first update that reaches it, so what was used is
greater by at most one update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pipeline_lib.settings.train import TrainSettings

Measure = Literal["tokens", "executions", "seconds"]

#: What counts as compute: tokens sampled, joint actions executed, wall seconds; and its name in the log of a step.
MEASURES: Mapping[Measure, str] = {
    "tokens": "actions/tokens",
    "executions": "executions/count",
    "seconds": "time/step_s",
}
#: A run ends after this many times ``train.steps`` updates, even if its budget is not used up: a policy that has
#: learned to say nothing would never use it up.
MOST_TIMES = 10


@dataclass(frozen=True, slots=True)
class Budget:
    """The compute that a run may use."""

    measure: Measure  #: what is counted
    amount: float  #: how much of it; > 0

    def of(self, metrics: Mapping[str, float]) -> float:
        """Return how much an update used, by its metrics."""
        return float(metrics[MEASURES[self.measure]])

    def progress(self, used: float, settings: TrainSettings) -> float:
        """Return which of ``train.steps`` updates comes next when ``used`` is spent; a schedule goes by this."""
        return settings.steps * min(1.0, used / self.amount)


def used(rows: Sequence[Mapping[str, float]]) -> dict[Measure, float]:
    """Return the compute of a whole run.

    Args:
        rows: metrics of all of its updates.
    """
    return {measure: sum(float(row[name]) for row in rows) for measure, name in MEASURES.items()}


def most_steps(settings: TrainSettings, budget: Budget | None) -> int:
    """Return the largest number of updates of a run."""
    return settings.steps if budget is None else MOST_TIMES * settings.steps
