"""Demonstrations for the warm start: philosophers take the left fork, then the right one, with many random slips.

The demonstrated behaviour is the one that deadlocks: take the left fork until it is held, then the right one, even if
it is not free.  A share of the actions are random slips instead, so every observation and every action occurs.  Most of
a philosopher's slips are of one kind, which depends on its number.  This gives no advantage to any philosopher, but a
model that all share learns from the start that the number matters.  Observations are those of the ``compact`` prompt,
which occur while such philosophers play training scenarios.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.environments.philosophers import text
from pipeline_lib.environments.philosophers.runtime import Board
from pipeline_lib.environments.philosophers.scenarios import Scenario
from pipeline_lib.environments.philosophers.scripted import lay_batches
from pipeline_lib.environments.philosophers.table import LEFT, RIGHT, Table, step
from pipeline_lib.storage import digest

#: Share of a philosopher's slips that are of its own kind; at one half, shared weights often never used the number.
OWN_SLIPS = 0.8


def demonstrate(problems: Sequence[Scenario], count: int, mistakes: float, seed: int) -> list[Demonstration]:
    """Return demonstrations, as `Task.demonstrate`; ``mistakes`` is the share of random actions.

    Raises:
        ValueError: there are no scenarios.
    """
    if not problems:
        raise ValueError("there are no scenarios to demonstrate")
    rng = np.random.default_rng(int(digest(["philosophers", seed])[:15], 16))
    demonstrations: list[Demonstration] = []
    while len(demonstrations) < count:
        for batch in lay_batches(problems, sequential=False):
            table = batch.table
            slips = np.array([s.labels or range(s.philosophers) for s in batch.scenarios]).T % 4  # (N, B)
            while not table.done.all():
                by_lot = rng.random(table.left.shape) < mistakes
                habit = np.where(table.left, RIGHT, LEFT)
                slip = np.where(rng.random(habit.shape) < OWN_SLIPS, slips, rng.integers(0, 4, habit.shape))
                actions = np.where(by_lot, slip, habit).astype(np.int8)
                demonstrations += _written(table, batch.scenarios, actions, rng)
                table = step(table, actions)
    chosen = rng.permutation(len(demonstrations))[:count]
    return [demonstrations[i] for i in chosen]


def _written(
    table: Table,
    scenarios: Sequence[Scenario],
    actions: np.ndarray,
    rng: np.random.Generator,
) -> list[Demonstration]:
    """Return observation and action of one philosopher of every unfinished episode."""
    board = Board(table)
    demonstrations = []
    for column in np.flatnonzero(~table.done).tolist():
        seat = int(rng.integers(table.graph.philosophers))
        labels = scenarios[column].labels
        view = board.view(seat, column, labels[seat] if labels else None)
        if view.eating:
            continue  # eating philosophers do not act
        demonstrations.append(Demonstration(text.compact(view), text.LETTERS[int(actions[seat, column])]))
    return demonstrations
