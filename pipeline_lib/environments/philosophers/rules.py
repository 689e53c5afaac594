"""The rules: how a table moves by one step.

They are those of DPBench (arXiv 2602.13255), with its faults corrected:

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

import numpy as np
import numpy.typing as npt

from pipeline_lib.environments.philosophers.table import (
    INVALID,
    LEFT,
    LIVELOCK_ROUNDS,
    RELEASE,
    RIGHT,
    WAIT,
    Bools,
    Counts,
    Table,
    all_hands,
    forks_taken,
)


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
