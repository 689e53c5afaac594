"""The table: thousands of episodes of dining philosophers as arrays; `rules` moves them together.

Arrays put the batch last, (N, B) and (F, B), so that one philosopher of all episodes is contiguous.  A `Table` is a
value that is never changed.  All episodes of a table share one graph and one mode; random properties (who has
priority, what is held at the start) come with the scenario, so a table draws no random numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_lib.environments.philosophers.seating import Graph

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]

#: Codes of actions in arrays; INVALID is text that names no action.
WAIT, LEFT, RIGHT, RELEASE, INVALID = range(5)
ACTIONS = ("WAIT", "GRAB_LEFT", "GRAB_RIGHT", "RELEASE")

#: A stretch of this many rounds without a meal, in which at least as many forks changed hands, is a livelock.
LIVELOCK_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of events so far, per episode; every array has shape (B,) and type int32.

    Attributes:
        taken: forks taken.
        failed: attempts that changed nothing: a fork that was not free, was lost to a neighbour or was already in
            hand, and RELEASE with nothing in hand.
        released: number of forks that were released by an action.
        waits: deliberate waits of hungry philosophers.
        invalid: unparseable actions of hungry philosophers.
        decisions: actions that could count: those of the hungry (in sequential mode, when it is their move).
        deadlocks: number of deadlocks (at most 1 if a deadlock ends the episode).
        stretch: steps since the last meal.
        stretch_moves: forks taken or released since the last meal.
        livelock: 1 once a stretch was a livelock.
    """

    taken: Ints
    failed: Ints
    released: Ints
    waits: Ints
    invalid: Ints
    decisions: Ints
    deadlocks: Ints
    stretch: Ints
    stretch_moves: Ints
    livelock: Ints


@dataclass(frozen=True, slots=True)
class Table:
    """A batch of B episodes at one moment.

    Attributes:
        graph: the seating plan of all of them.
        sequential: one philosopher moves per step.
        deadlock_ends: deadlock ends an episode; else all forks are released and the episode goes on.
        priority: (N, B) int8, a permutation of 0..N-1 per episode; 0 wins contested forks and moves first.
        eating_time: (B,) int32, steps a meal lasts after the step in which it began, at least 1.
        horizon: (B,) int32, steps (sequential: moves) of an episode, at least 1.
        left: (N, B) bool, the left fork is in hand; right: the same for the right one.
        eating: (N, B) int8, steps until the meal ends; 0 is hungry.
        meals: (N, B) int32, meals begun.
        idle: (N, B) int8, own moves since something last changed for this philosopher, at most 100.
        time: (B,) int32, steps done.
        deadlock_time: (B,) int32, the value of ``time`` when deadlock was first seen; -1 if it was not.
        counts: counts of events so far.
    """

    graph: Graph
    sequential: bool
    deadlock_ends: bool
    priority: Bytes
    eating_time: Ints
    horizon: Ints
    left: Bools
    right: Bools
    eating: Bytes
    meals: Ints
    idle: Bytes
    time: Ints
    deadlock_time: Ints
    counts: Counts

    @property
    def batch(self) -> int:
        """Return B."""
        return int(self.time.shape[0])

    @property
    def deadlocked(self) -> Bools:
        """Return whether a deadlock was seen, shape (B,)."""
        return self.deadlock_time >= 0

    @property
    def done(self) -> Bools:
        """Return which episodes are over, shape (B,): at the horizon, or at a deadlock that ends them."""
        over = self.time >= self.horizon
        return over | self.deadlocked if self.deadlock_ends else over

    def taken(self) -> Bools:
        """Return which forks are taken, shape (F, B)."""
        return forks_taken(self.graph, all_hands(self.left, self.right))

    def mover(self) -> Ints:
        """Return who moves next in sequential mode, shape (B,)."""
        turn = (self.time % self.graph.philosophers).astype(np.int8)
        return np.argmax(self.priority == turn, axis=0).astype(np.int32)

    def select(self, rows: Sequence[int] | npt.NDArray[np.intp]) -> Table:
        """Return a table of some of the episodes, in the order given; a row may be named more than once."""
        index = np.asarray(rows, dtype=np.intp)
        return _map(self, lambda array: array[..., index])


def make_table(
    graph: Graph,
    priority: npt.ArrayLike,
    horizon: npt.ArrayLike,
    eating_time: npt.ArrayLike = 1,
    holdings: npt.ArrayLike | None = None,
    sequential: bool = False,
    deadlock_ends: bool = True,
) -> Table:
    """Lay a table for B episodes at time 0.

    Args:
        graph: the seating plan.
        priority: (B, N), a permutation of 0..N-1 per episode.
        horizon: (B,) or a number, steps of an episode.
        eating_time: (B,) or a number, steps a meal lasts.
        holdings: (B, N), what each philosopher holds at the start: 0 nothing, 1 the left fork, 2 the right fork.
        sequential: one philosopher moves per step.
        deadlock_ends: deadlock ends an episode.

    Raises:
        ValueError: an array of a wrong shape, a priority that is no permutation, a horizon or eating time below 1,
            or a fork held by two.
    """
    order = np.atleast_2d(np.asarray(priority, dtype=np.int8))
    batch, n = order.shape
    if n != graph.philosophers or not np.array_equal(np.sort(order, axis=1), np.tile(np.arange(n), (batch, 1))):
        raise ValueError(f"priority: every episode needs a permutation of 0..{graph.philosophers - 1}")
    held = np.zeros((batch, n), np.int8) if holdings is None else np.atleast_2d(np.asarray(holdings, dtype=np.int8))
    if held.shape != (batch, n) or held.min() < 0 or held.max() > 2:
        raise ValueError(f"holdings: need shape {(batch, n)} with values 0 (nothing), 1 (left fork), 2 (right fork)")
    left, right = (held.T == 1), (held.T == 2)
    if exclusive_violations(graph, left, right).any():
        raise ValueError("holdings: a fork is in two hands")
    steps = np.broadcast_to(np.asarray(horizon, dtype=np.int32), (batch,)).copy()
    meal = np.broadcast_to(np.asarray(eating_time, dtype=np.int32), (batch,)).copy()
    if steps.min() < 1:
        raise ValueError(f"horizon: got {int(steps.min())}; an episode has at least 1 step")
    if meal.min() < 1 or meal.max() > 100:
        raise ValueError(f"eating_time: got {int(meal.min())}..{int(meal.max())}; accepted: 1 to 100")

    def zeros() -> Ints:
        return np.zeros(batch, np.int32)

    return Table(
        graph=graph,
        sequential=sequential,
        deadlock_ends=deadlock_ends,
        priority=np.ascontiguousarray(order.T),
        eating_time=meal,
        horizon=steps,
        left=np.ascontiguousarray(left),
        right=np.ascontiguousarray(right),
        eating=np.zeros((n, batch), np.int8),
        meals=np.zeros((n, batch), np.int32),
        idle=np.zeros((n, batch), np.int8),
        time=zeros(),
        deadlock_time=np.full(batch, -1, np.int32),
        counts=Counts(*(zeros() for _ in dataclasses.fields(Counts))),
    )


def concatenate(tables: Sequence[Table]) -> Table:
    """Put the episodes of several tables of one graph and one mode side by side."""
    first = tables[0]
    if len(tables) == 1:
        return first
    if any(
        (t.graph, t.sequential, t.deadlock_ends) != (first.graph, first.sequential, first.deadlock_ends) for t in tables
    ):
        raise ValueError("only tables of one graph and one mode can be put side by side")
    parts = [_arrays(table) for table in tables]
    joined = iter([np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True)])
    return _map(first, lambda _: next(joined))


def all_hands(left: Bools, right: Bools) -> Bools:
    """Return all hands as rows, (2 N + 1, B); the last row is the hand that does not exist and holds nothing."""
    return np.concatenate([left, right, np.zeros((1, left.shape[1]), np.bool_)])


def forks_taken(graph: Graph, hands: Bools) -> Bools:
    """Return which forks are in a hand, (F, B), from `all_hands`."""
    taken = hands[graph.hands[:, 0]]
    for column in range(1, graph.hands.shape[1]):
        taken = taken | hands[graph.hands[:, column]]
    return taken


def exclusive_violations(graph: Graph, left: Bools, right: Bools) -> Bools:
    """Return the forks that are in more than one hand, (F, B); by the rules there is never one."""
    return all_hands(left, right)[graph.hands].sum(axis=1) > 1


def _arrays(table: Table) -> list[npt.NDArray[Any]]:
    found: list[npt.NDArray[Any]] = []

    def keep(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        found.append(array)
        return array

    _map(table, keep)
    return found


def _map(table: Table, function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Table:
    """Return the table with ``function`` applied to each of its arrays, always in the same order."""
    changes: dict[str, Any] = {
        field.name: function(getattr(table, field.name))
        for field in dataclasses.fields(Table)
        if isinstance(getattr(table, field.name), np.ndarray)
    }
    counts = {field.name: function(getattr(table.counts, field.name)) for field in dataclasses.fields(Counts)}
    return dataclasses.replace(table, **changes, counts=Counts(**counts))
