"""The state of one episode: a column of a table that many episodes share, and its messages and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from pipeline_lib.environments.philosophers.optimum import most_meals
from pipeline_lib.environments.philosophers.scenarios import Scenario
from pipeline_lib.environments.philosophers.table import Table, concatenate, make_table
from pipeline_lib.environments.philosophers.text import View


class Board:
    """A table with access to one philosopher at a time; its arrays are converted to Python values once."""

    def __init__(self, table: Table) -> None:
        self.table = table

    @cached_property
    def _lists(self) -> tuple[list[list[int]], ...]:
        table = self.table
        taken = table.taken()
        left = np.where(table.left, 0, 1 + taken[table.graph.left_index])
        right = np.where(table.right, 0, 1 + taken[table.graph.right_index])
        return tuple(array.tolist() for array in (left, right, table.eating, table.meals, table.idle))

    def view(self, seat: int, column: int, label: int | None) -> View:
        """Return what the philosopher on ``seat`` sees in episode ``column``."""
        left, right, eating, meals, idle = (values[seat][column] for values in self._lists)
        return View(label, len(self._lists[0]), _FORK[left], _FORK[right], eating > 0, meals, idle)

    def hungry(self, column: int) -> tuple[int, ...]:
        """Return who is not eating in episode ``column``; never empty, because neighbours share forks."""
        return tuple(seat for seat, left in enumerate(self._lists[2]) if left[column] == 0)


_FORK = ("mine", "free", "taken")


@dataclass(frozen=True, slots=True)
class State:
    """One episode at one moment."""

    scenario: Scenario  #: its scenario
    board: Board  #: the table this episode is a column of
    column: int  #: index of the column
    optimum: int  #: most meals possible, exact or an upper bound
    earned: Mapping[str, float]  #: the reward terms of the episode so far
    talks: int = 0  #: message rounds already done before the next action
    said: tuple[str, ...] = ()  #: last message of each philosopher
    past: tuple[tuple[str, ...], ...] = ()  #: earlier snapshots, oldest first, one text per philosopher
    #: Messages with an intent so far, and those of them that were followed by this action.
    announced: tuple[int, int] = (0, 0)
    cut: int = 0  #: messages that were longer than the limit

    @property
    def table(self) -> Table:
        return self.board.table


def lay_table(scenario: Scenario, sequential: bool, deadlock_ends: bool = True) -> Table:
    """Return the table of one scenario at time 0."""
    return make_table(
        scenario.plan,
        [scenario.priority],
        scenario.horizon,
        scenario.eating_time,
        [scenario.holdings],
        sequential,
        deadlock_ends,
    )


@lru_cache(maxsize=65536)
def best_meals(scenario: Scenario, sequential: bool) -> tuple[int, bool]:
    """Return the most meals possible in a scenario, and whether that is exact rather than an upper bound."""
    order = tuple(int(i) for i in np.argsort(scenario.priority)) if sequential else ()
    return most_meals(scenario.plan, scenario.horizon, scenario.eating_time, scenario.holdings, order)


def episode_details(scenario: Scenario, table: Table, column: int) -> dict[str, Any]:
    """Return the facts of a finished episode that reports show."""
    deadlocked = bool(table.deadlocked[column])
    optimum, exact = best_meals(scenario, table.sequential)
    return {
        "graph": scenario.graph,
        "philosophers": scenario.philosophers,
        "meals": table.meals[:, column].tolist(),
        "steps": int(table.time[column]),
        "time_to_deadlock": int(table.deadlock_time[column]) if deadlocked else None,
        "optimum": optimum,
        "optimum_exact": exact,
    }


def side_by_side(states: Sequence[State]) -> Table:
    """Return one table with the states' episodes as its columns, in their order."""
    tables: dict[int, Table] = {}
    columns: dict[int, list[int]] = {}
    places: dict[int, list[int]] = {}
    for place, state in enumerate(states):
        key = id(state.board)
        tables[key] = state.table
        columns.setdefault(key, []).append(state.column)
        places.setdefault(key, []).append(place)
    joined = concatenate([tables[key].select(columns[key]) for key in tables])
    order = np.argsort([place for key in tables for place in places[key]])
    return joined if len(tables) == 1 else joined.select(order)
