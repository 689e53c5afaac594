"""The table, thousands of episodes of dining philosophers as arrays, and the rules by which they move together.

Arrays put the batch last, (N, B) and (F, B), so that one philosopher of all episodes is contiguous.  A `Table` is a
value that is never changed.  All episodes of a table share one graph and one mode; random properties (who has
priority, what is held at the start) come with the scenario, so a table draws no random numbers.

The rules are those of DPBench (arXiv 2602.13255), with its faults corrected:

* All are hungry or eating.  Each philosopher has one action per step: take the left fork, take the right fork,
  put down whatever it holds, or wait.  An action that cannot be done is a failed attempt and changes nothing.
* Simultaneous step: first forks are put down, then free forks are asked for, and a fork that several want goes to
  the one whose priority number is smallest.  A hungry philosopher with both forks starts to eat, and its meal counts
  at once.  It eats for ``eating_time`` further steps; at the end of the last one it puts both forks down and is
  hungry again.  While it eats its action counts for nothing, RELEASE included: otherwise a neighbour could take, in
  the same step, a fork that the eater's own end of meal then wipes from the table (DPBench's phantom fork).
* Sequential mode: one philosopher moves per step, in order of priority, and each move takes one step of time.
* Deadlock: nobody eats and no fork is free.  On a ring that is everybody hungry with one fork in hand.  It is flagged
  in both modes (DPBench loses the flag in sequential mode), and by default it ends the episode.
* Unparseable text is its own action: it moves like a wait and is counted apart.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_lib.environments.philosophers.scenarios import Graph

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
    """Counts of events so far, per episode; every array has shape (B,) and type int32."""

    taken: Ints  #: forks taken
    #: Attempts that changed nothing: a fork that was not free, was lost to a neighbour or was already in hand, and
    #: RELEASE with nothing in hand.
    failed: Ints
    released: Ints  #: number of forks that were released by an action
    waits: Ints  #: deliberate waits of hungry philosophers
    invalid: Ints  #: unparseable actions of hungry philosophers
    decisions: Ints  #: actions that could count: those of the hungry (in sequential mode, when it is their move)
    deadlocks: Ints  #: number of deadlocks (at most 1 if a deadlock ends the episode)
    stretch: Ints  #: steps since the last meal
    stretch_moves: Ints  #: forks taken or released since the last meal
    livelock: Ints  #: 1 once a stretch was a livelock


@dataclass(frozen=True, slots=True)
class Table:
    """A batch of B episodes at one moment."""

    graph: Graph  #: the seating plan of all of them
    sequential: bool  #: one philosopher moves per step
    deadlock_ends: bool  #: deadlock ends an episode; else all forks are released and the episode goes on
    priority: Bytes  #: (N, B) int8, a permutation of 0..N-1 per episode; 0 wins contested forks and moves first
    eating_time: Ints  #: (B,) int32, steps a meal lasts after the step in which it began, at least 1
    horizon: Ints  #: (B,) int32, steps (sequential: moves) of an episode, at least 1
    left: Bools  #: (N, B) bool, the left fork is in hand; right: the same for the right one
    right: Bools
    eating: Bytes  #: (N, B) int8, steps until the meal ends; 0 is hungry
    meals: Ints  #: (N, B) int32, meals begun
    idle: Bytes  #: (N, B) int8, own moves since something last changed for this philosopher, at most 100
    time: Ints  #: (B,) int32, steps done
    deadlock_time: Ints  #: (B,) int32, the value of ``time`` when deadlock was first seen; -1 if it was not
    counts: Counts  #: counts of events so far

    @property
    def batch(self) -> int:
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
    arrays: list[npt.NDArray[Any]] = []

    def keep(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        arrays.append(array)
        return array

    _map(table, keep)
    return arrays


def _map(table: Table, function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Table:
    """Return the table with ``function`` applied to each of its arrays, always in the same order."""
    changes: dict[str, Any] = {
        field.name: function(getattr(table, field.name))
        for field in dataclasses.fields(Table)
        if isinstance(getattr(table, field.name), np.ndarray)
    }
    counts = {field.name: function(getattr(table.counts, field.name)) for field in dataclasses.fields(Counts)}
    return dataclasses.replace(table, **changes, counts=Counts(**counts))


def step(table: Table, actions: npt.NDArray[np.int8]) -> Table:
    """Move every episode that is not over by one step.

    Args:
        table: the table before; it is not changed.
        actions: (N, B) action codes.  In sequential mode only the mover's counts.

    Returns:
        The table after; episodes that were over are as they were.
    """
    graph, counts = table.graph, table.counts
    live = ~table.done
    acts = np.broadcast_to(live, actions.shape)
    if table.sequential:
        acts = acts & (table.priority == (table.time % graph.philosophers).astype(np.int8))
    hungry = table.eating == 0
    can = acts & hungry

    drop = can & (actions == RELEASE) & (table.left | table.right)
    left, right = table.left & ~drop, table.right & ~drop
    ask_left, ask_right = can & (actions == LEFT), can & (actions == RIGHT)
    got_left, got_right = _grant(table, left, right, ask_left, ask_right)
    left |= got_left
    right |= got_right

    begins = can & left & right
    ends = acts & (table.eating == 1)
    left &= ~ends
    right &= ~ends
    eating = np.where(acts & ~hungry, table.eating - 1, table.eating).astype(np.int8)
    np.copyto(eating, table.eating_time.astype(np.int8), where=begins)

    stuck = live & ~eating.any(axis=0) & forks_taken(graph, all_hands(left, right)).all(axis=0)
    if not table.deadlock_ends:
        left &= ~stuck
        right &= ~stuck
    time = table.time + live
    changed = got_left | got_right | drop | begins | ends
    idle = np.where(changed, 0, np.minimum(table.idle + acts, 100)).astype(np.int8)

    ate = begins.any(axis=0)
    gained = (got_left | got_right).sum(axis=0, dtype=np.int32)
    dropped = drop.sum(axis=0, dtype=np.int32)
    asked = (can & (actions >= LEFT) & (actions <= RELEASE)).sum(axis=0, dtype=np.int32)
    stretch = np.where(ate, 0, counts.stretch + live).astype(np.int32)
    stretch_moves = np.where(ate, 0, counts.stretch_moves + gained + dropped).astype(np.int32)
    rounds = LIVELOCK_ROUNDS * (graph.philosophers if table.sequential else 1)
    return Table(
        graph=graph,
        sequential=table.sequential,
        deadlock_ends=table.deadlock_ends,
        priority=table.priority,
        eating_time=table.eating_time,
        horizon=table.horizon,
        left=left,
        right=right,
        eating=eating,
        meals=table.meals + begins,
        idle=idle,
        time=time,
        deadlock_time=np.where(stuck & (table.deadlock_time < 0), time, table.deadlock_time),
        counts=Counts(
            taken=counts.taken + gained,
            failed=counts.failed + (asked - gained - dropped),
            released=counts.released + dropped,
            waits=counts.waits + (can & (actions == WAIT)).sum(axis=0, dtype=np.int32),
            invalid=counts.invalid + (can & (actions == INVALID)).sum(axis=0, dtype=np.int32),
            decisions=counts.decisions + can.sum(axis=0, dtype=np.int32),
            deadlocks=counts.deadlocks + stuck,
            stretch=stretch,
            stretch_moves=stretch_moves,
            livelock=counts.livelock | ((stretch >= rounds) & (stretch_moves >= LIVELOCK_ROUNDS)),
        ),
    )


def _grant(table: Table, left: Bools, right: Bools, ask_left: Bools, ask_right: Bools) -> tuple[Bools, Bools]:
    """Return who gets the wanted fork, if it is free; a contested fork goes to the smallest priority."""
    graph = table.graph
    n = graph.philosophers
    free = ~forks_taken(graph, all_hands(left, right))
    ask_left, ask_right = ask_left & free[graph.left_index], ask_right & free[graph.right_index]
    none = np.int8(127)
    rank = np.empty((2 * n + 1, table.batch), np.int8)
    np.copyto(rank[:n], np.where(ask_left, table.priority, none))
    np.copyto(rank[n : 2 * n], np.where(ask_right, table.priority, none))
    rank[2 * n] = none
    best = rank[graph.hands[:, 0]]
    for column in range(1, graph.hands.shape[1]):
        best = np.minimum(best, rank[graph.hands[:, column]])
    # Priorities differ between philosophers, so equality with the best one names the winner.
    return (
        ask_left & (table.priority == best[graph.left_index]),
        ask_right & (table.priority == best[graph.right_index]),
    )
