"""The most meals a perfectly coordinated table can have: exact by dynamic programming, or a bound beyond that.

This module implements the rules independently and never calls `rules.step`: it enumerates configurations (what each
philosopher holds, how long it still eats) and the configurations that can follow.  So it can judge the table's own
step function (the audit compares the two).  A contested fork needs no rule here: losing it is the same as waiting.

Exact for up to `EXACT_PHILOSOPHERS`; above that `most_meals` gives an upper bound from counting fork-steps: a meal
keeps its first fork for E + 2 steps and its second for E + 1 (E: eating time).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pipeline_lib.environments.philosophers.scenarios import Graph
from pipeline_lib.environments.philosophers.table import LEFT, RELEASE, RIGHT, WAIT

#: Largest table whose optimum is computed exactly.
EXACT_PHILOSOPHERS = 7

#: Digits of a configuration: nothing in hand, one fork in hand; ``EATING + r - 1`` eats for r more steps.
NOTHING, HAS_LEFT, HAS_RIGHT, EATING = range(4)

#: Joint choices expanded at once, which bounds memory.
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Plan:
    """All configurations of a table, what can follow each, and the most meals from each."""

    graph: Graph  #: the seating plan
    eating_time: int  #: steps a meal lasts, E
    order: tuple[int, ...]  #: who moves when in sequential mode (philosopher numbers); empty for simultaneous moves
    configurations: npt.NDArray[np.int8]  #: (S, N) int8 digits, see `NOTHING` and following
    #: (S + 1,) where each configuration's followers begin in ``followers``.  In sequential mode there is one such list
    #: per phase (whose move it is): (phases, S + 1).
    starts: tuple[npt.NDArray[np.intp], ...]
    followers: tuple[npt.NDArray[np.int32], ...]  #: configuration numbers; sequential: one array per phase
    meals: tuple[npt.NDArray[np.int8], ...]  #: meals that begin with each of those moves
    #: (T + 1, phases, S) int32, most meals with k steps left when phase p moves; simultaneous has one phase.
    values: npt.NDArray[np.int32]

    def number(self, digits: npt.NDArray[np.int8]) -> npt.NDArray[np.intp]:
        """Return the numbers of configurations given as (..., N) digits.

        Raises:
            ValueError: a configuration that no table can be in.
        """
        keys = _key(digits, self.eating_time)
        all_keys = _key(self.configurations, self.eating_time)
        places = np.searchsorted(all_keys, keys)
        if (all_keys[np.minimum(places, len(all_keys) - 1)] != keys).any():
            raise ValueError("no table can be in this configuration")
        return places

    def best_moves(self, number: int, phase: int, steps_left: int) -> npt.NDArray[np.int32]:
        """Return the configurations that may follow on a path with the most meals."""
        low, high = self.starts[phase][number], self.starts[phase][number + 1]
        followers = self.followers[phase][low:high]
        next_phase = (phase + 1) % len(self.starts)
        total = self.meals[phase][low:high] + self.values[steps_left - 1, next_phase, followers]
        return followers[total == total.max()]


def most_meals(
    graph: Graph,
    horizon: int,
    eating_time: int = 1,
    holdings: tuple[int, ...] | None = None,
    order: tuple[int, ...] = (),
) -> tuple[int, bool]:
    """Return the most meals that can begin within the horizon, and whether that is exact.

    Args:
        graph: the seating plan.
        horizon: steps of the episode (sequential: moves).
        eating_time: steps a meal lasts after the step in which it begins.
        holdings: what each philosopher holds at the start (0 nothing, 1 left fork, 2 right fork).
        order: who moves when, for sequential mode; empty for simultaneous moves.

    Returns:
        (meals, True) for up to `EXACT_PHILOSOPHERS`, else (an upper bound, False).  At least 1 is returned, so that
        shares of it are defined.
    """
    if graph.philosophers > EXACT_PHILOSOPHERS:
        return max(1, _bound(graph, horizon, eating_time, bool(order))), False
    plan = make_plan(graph, eating_time, horizon, order)
    start = np.array(holdings or (0,) * graph.philosophers, dtype=np.int8)
    return max(1, int(plan.values[horizon, 0, plan.number(start)])), True


def make_plan(graph: Graph, eating_time: int, horizon: int, order: tuple[int, ...] = ()) -> Plan:
    """Enumerate the configurations of a table and compute the most meals from each for up to ``horizon`` steps.

    Raises:
        ValueError: the table is larger than `EXACT_PHILOSOPHERS`.
    """
    # Horizons are rounded up so that tables that differ only in it share one plan.
    return _make_plan(graph, eating_time, -(-horizon // 32) * 32, order)


@lru_cache(maxsize=64)
def _make_plan(graph: Graph, eating_time: int, horizon: int, order: tuple[int, ...]) -> Plan:
    if graph.philosophers > EXACT_PHILOSOPHERS:
        raise ValueError(
            f"the exact optimum is computed for up to {EXACT_PHILOSOPHERS} philosophers, not {graph.philosophers}"
        )
    digits = _configurations(graph, eating_time)
    phases: list[tuple[int, ...]] = [(i,) for i in order] or [tuple(range(graph.philosophers))]
    moves = [_moves(graph, eating_time, digits, movers) for movers in phases]
    values = np.zeros((horizon + 1, len(phases), len(digits)), np.int32)
    for k in range(1, horizon + 1):
        for phase, (starts, followers, meals) in enumerate(moves):
            total = meals + values[k - 1, (phase + 1) % len(phases), followers]
            values[k, phase] = np.maximum.reduceat(total, starts[:-1])
        values[k, :, _deadlocked(graph, digits)] = 0
    starts_, followers_, meals_ = zip(*moves, strict=True)
    return Plan(graph, eating_time, order, digits, starts_, followers_, meals_, values)


def _key(digits: npt.NDArray[np.int8], eating_time: int) -> npt.NDArray[np.int64]:
    base = EATING + eating_time
    powers = np.array([base**i for i in range(digits.shape[-1])], dtype=np.int64)
    return digits.astype(np.int64) @ powers


def _occupancy(graph: Graph, digits: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Return how many hands each fork is in, (..., F)."""
    held = np.zeros((*digits.shape[:-1], graph.forks), np.int8)
    for i in range(graph.philosophers):
        held[..., graph.left[i]] += (digits[..., i] == HAS_LEFT) | (digits[..., i] >= EATING)
        held[..., graph.right[i]] += (digits[..., i] == HAS_RIGHT) | (digits[..., i] >= EATING)
    return held


def _configurations(graph: Graph, eating_time: int) -> npt.NDArray[np.int8]:
    """Return all assignments in which no fork is in two hands, (S, N), sorted by key."""
    digits = np.zeros((1, 0), np.int8)
    choices = np.arange(EATING + eating_time, dtype=np.int8)
    for _ in range(graph.philosophers):
        digits = np.concatenate([np.repeat(digits, len(choices), 0), np.tile(choices, len(digits))[:, None]], 1)
        padded = np.zeros((len(digits), graph.philosophers), np.int8)
        padded[:, : digits.shape[1]] = digits
        digits = digits[(_occupancy(graph, padded) <= 1).all(axis=-1)]
    return digits[np.argsort(_key(digits, eating_time))]


def _deadlocked(graph: Graph, digits: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    stuck: npt.NDArray[np.bool_] = (digits < EATING).all(axis=-1) & (_occupancy(graph, digits) == 1).all(axis=-1)
    return stuck


def _moves(
    graph: Graph, eating_time: int, digits: npt.NDArray[np.int8], movers: tuple[int, ...]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int32], npt.NDArray[np.int8]]:
    """Return, for every configuration, what can follow when ``movers`` move: starts, followers, meals begun."""
    fresh = EATING + eating_time - 1
    # after[digit] lists the digits that one move can lead to, repeated to the same length.
    after = np.array(
        [[NOTHING, HAS_LEFT, HAS_RIGHT], [HAS_LEFT, NOTHING, fresh], [HAS_RIGHT, NOTHING, fresh]]
        + [[NOTHING if d == EATING else d - 1] * 3 for d in range(EATING, EATING + eating_time)],
        dtype=np.int8,
    )
    joint = np.array(list(itertools.product(range(3), repeat=len(movers))), dtype=np.intp)
    all_keys = _key(digits, eating_time)
    origins: list[npt.NDArray[np.int64]] = []
    targets: list[npt.NDArray[np.int64]] = []
    chunk = max(1, _CHUNK // len(joint))
    for low in range(0, len(digits), chunk):
        now = digits[low : low + chunk]
        following = np.repeat(now[:, None, :], len(joint), axis=1)  # (chunk, J, N)
        during = following.copy()  # what is in hand while others reach for forks
        for column, i in enumerate(movers):
            chosen = after[now[:, i]][:, joint[:, column]]
            following[..., i] = chosen
            # Forks of a meal that ends are free only after all have chosen.
            during[..., i] = np.where(now[:, i, None] >= EATING, now[:, i, None], chosen)
        fits = (_occupancy(graph, during) <= 1).all(axis=-1)
        origin, choice = np.nonzero(fits)
        origins.append(origin + low)
        targets.append(np.searchsorted(all_keys, _key(following[origin, choice], eating_time)))
    pairs = np.unique(np.concatenate(origins) * len(digits) + np.concatenate(targets))
    origin, target = pairs // len(digits), pairs % len(digits)
    eats_before, eats_after = digits[origin] >= EATING, digits[target] >= EATING
    meals = (eats_after & ~eats_before).sum(axis=1).astype(np.int8)
    starts = np.searchsorted(origin, np.arange(len(digits) + 1))
    return starts, target.astype(np.int32), meals


def actions_between(before: npt.NDArray[np.int8], after: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Return the actions, (N,), that lead from one configuration to a following one."""
    actions = np.full(before.shape, WAIT, np.int8)
    actions[(before == NOTHING) & (after == HAS_LEFT)] = LEFT
    actions[(before == NOTHING) & (after == HAS_RIGHT)] = RIGHT
    actions[(before == HAS_LEFT) & (after >= EATING)] = RIGHT
    actions[(before == HAS_RIGHT) & (after >= EATING)] = LEFT
    actions[((before == HAS_LEFT) | (before == HAS_RIGHT)) & (after == NOTHING)] = RELEASE
    return actions


def _bound(graph: Graph, horizon: int, eating_time: int, sequential: bool) -> int:
    """Return an upper bound of the meals that can begin within the horizon.

    Simultaneous: every meal keeps two forks for 2 E + 3 fork-steps, of which at most E per fork may lie beyond the
    horizon.  Sequential: every meal needs two moves that take a fork, and its eater's next E moves are spent eating.
    """
    if sequential:
        return -(-horizon // 2)
    return (graph.forks * (horizon + eating_time)) // (2 * eating_time + 3)
