"""Policies without a model: reference lines for every report, and the ladder of the reward audit.

A script sees the whole batch as arrays and returns action codes.  Each says what it may look at: most act on what a
philosopher sees anyway (its hands and forks, its seat, the clock); `Optimal` is the exception that knows everything.
Chance comes from a generator that the caller seeds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pipeline_lib.environments.philosophers.optimum import (
    EATING,
    EXACT_PHILOSOPHERS,
    HAS_LEFT,
    HAS_RIGHT,
    NOTHING,
    Plan,
    actions_between,
    make_plan,
)
from pipeline_lib.environments.philosophers.table import INVALID, LEFT, RELEASE, RIGHT, WAIT, Bools, Table

Actions = npt.NDArray[np.int8]


class Script(ABC):
    """A policy of the whole table."""

    name: str

    def check(self, table: Table) -> None:
        """Raise ValueError if this script is not made for such a table; by default every table will do."""

    @abstractmethod
    def act(self, table: Table, rng: np.random.Generator) -> Actions:
        """Return the action codes of everybody, (N, B)."""


class Constant(Script):
    """Everybody always does the same."""

    def __init__(self, name: str, action: int) -> None:
        self.name, self._action = name, action

    def act(self, table: Table, rng: np.random.Generator) -> Actions:
        """Return the one action."""
        return np.full(table.left.shape, self._action, np.int8)


class FirstThenSecond(Script):
    """Take the first fork, then the second, wait for what is not free; never give anything back.

    ``right_first`` says, by seat, whose first fork is the right one.
    """

    def __init__(self, name: str, right_first: Callable[[Table], Bools], graphs: tuple[str, ...]) -> None:
        self.name, self._right_first, self._graphs = name, right_first, graphs

    def check(self, table: Table) -> None:
        """Raise ValueError on a graph for which this order means nothing."""
        if table.graph.name not in self._graphs:
            raise ValueError(
                f"the scripted policy {self.name!r} is made for {' and '.join(self._graphs)}, not for a "
                f"{table.graph.name}"
            )

    def act(self, table: Table, rng: np.random.Generator) -> Actions:
        """Return grabs of free forks in the order of this script."""
        free_left, free_right = _free(table)
        right_first = np.broadcast_to(self._right_first(table), table.left.shape)
        # What is held at the start decides which fork is the second one.
        wants_right = np.where(table.left, True, np.where(table.right, False, right_first))
        return np.where(wants_right, np.where(free_right, RIGHT, WAIT), np.where(free_left, LEFT, WAIT)).astype(np.int8)


class Random(Script):
    """Each of the four actions with equal chance."""

    name = "random"

    def act(self, table: Table, rng: np.random.Generator) -> Actions:
        """Return independent draws."""
        return rng.integers(0, 4, table.left.shape, dtype=np.int8)


class PoliteRandom(Script):
    """Start only when both forks are free (left, right or wait, by lot); put a fork down when the other is not free."""

    name = "polite_random"

    def act(self, table: Table, rng: np.random.Generator) -> Actions:
        """Return draws where there is a choice."""
        free_left, free_right = _free(table)
        lot = rng.choice(np.array([LEFT, RIGHT, WAIT], np.int8), table.left.shape)
        empty = np.where(free_left & free_right, lot, WAIT)
        has_left = np.where(free_right, RIGHT, RELEASE)
        has_right = np.where(free_left, LEFT, RELEASE)
        return np.where(table.left, has_left, np.where(table.right, has_right, empty)).astype(np.int8)


class TimeSlots(Script):
    """Philosophers of one colour eat while the others keep their hands off; colours take turns by the clock."""

    name = "time_slots"

    def act(self, table: Table, rng: np.random.Generator) -> Actions:
        """Return grabs for those whose slot it is, and RELEASE for everybody else who holds something."""
        colours = np.array(table.graph.colours)[:, None]
        rounds = table.time // (table.graph.philosophers if table.sequential else 1)
        mine = colours == (rounds // (2 + table.eating_time)) % (colours.max() + 1)
        grab = np.where(table.left, RIGHT, LEFT)
        release = np.where(table.left ^ table.right, RELEASE, WAIT)
        return np.where(table.eating > 0, WAIT, np.where(mine, grab, release)).astype(np.int8)


class Optimal(Script):
    """Knows the whole table and plans to the horizon by dynamic programming: the most meals that are possible.

    Among the best moves it takes one that favours those who have eaten least.
    """

    name = "optimal"

    def check(self, table: Table) -> None:
        """Raise ValueError on tables whose optimum is not computed exactly."""
        if table.graph.philosophers > EXACT_PHILOSOPHERS:
            raise ValueError(
                f"the scripted policy 'optimal' plans for up to {EXACT_PHILOSOPHERS} philosophers, "
                f"not for {table.graph.philosophers}"
            )

    def act(self, table: Table, rng: np.random.Generator) -> Actions:
        """Return the moves of an optimal plan, per episode."""
        actions = np.full(table.left.shape, WAIT, np.int8)
        digits = np.select(
            [table.eating > 0, table.left, table.right], [EATING - 1 + table.eating, HAS_LEFT, HAS_RIGHT], NOTHING
        ).astype(np.int8)
        for column in np.flatnonzero(~table.done):
            order = tuple(np.argsort(table.priority[:, column]).tolist()) if table.sequential else ()
            plan = make_plan(table.graph, int(table.eating_time[column]), int(table.horizon[column]), order)
            actions[:, column] = self._best(plan, digits[:, column], table, int(column))
        return actions

    @staticmethod
    def _best(plan: Plan, digits: npt.NDArray[np.int8], table: Table, column: int) -> Actions:
        left = int(table.horizon[column] - table.time[column])
        phase = int(table.time[column]) % len(plan.starts)
        best = plan.best_moves(int(plan.number(digits)), phase, left)
        after = plan.configurations[best]
        eaten = table.meals[:, column]
        begins = (after >= EATING) & (digits < EATING)
        # Begun meals weigh twice what a fork in hand does; ties go to the first.
        cost = (eaten * (2 * begins + ((after == HAS_LEFT) | (after == HAS_RIGHT)))).sum(axis=1)
        return actions_between(digits, after[int(np.argmin(cost))])


def _free(table: Table) -> tuple[Bools, Bools]:
    """Return whether each philosopher's left and right fork lies free, (N, B) each."""
    free = ~table.taken()
    return free[table.graph.left_index], free[table.graph.right_index]


def _greedy(table: Table) -> Bools:
    return np.zeros((table.graph.philosophers, 1), np.bool_)


def _even_seats(table: Table) -> Bools:
    return (np.arange(table.graph.philosophers) % 2 == 0)[:, None]


def _lower_fork(table: Table) -> Bools:
    return (table.graph.right_index < table.graph.left_index)[:, None]


_ANY = ("ring", "chain", "grid")

#: All scripted policies by name.  ``unparseable`` writes what cannot be read.
SCRIPTS: dict[str, Script] = {
    script.name: script
    for script in (
        Constant("wait", WAIT),
        Constant("release", RELEASE),
        Constant("unparseable", INVALID),
        Constant("always_left", LEFT),
        Constant("always_right", RIGHT),
        FirstThenSecond("greedy_left", _greedy, _ANY),
        Random(),
        PoliteRandom(),
        FirstThenSecond("parity", _even_seats, ("ring", "chain")),
        FirstThenSecond("hierarchy", _lower_fork, _ANY),
        TimeSlots(),
        Optimal(),
    )
}


def script(name: str) -> Script:
    """Return a scripted policy.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in SCRIPTS:
        raise ValueError(f"there is no scripted policy {name!r}; known: {', '.join(SCRIPTS)}")
    return SCRIPTS[name]
