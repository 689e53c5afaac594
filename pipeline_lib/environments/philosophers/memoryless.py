"""All deterministic policies without memory; there are few enough to try all of them.

Such a policy sees its two forks, each held, free or taken, and chooses an action: a table of nine entries.  Choices
without effect (taking what is not free, releasing nothing) are fixed to WAIT, which leaves 432 tables.  Two of them,
one for even and one for odd seats, make 186,624 teams; playing them all takes seconds.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from pipeline_lib.environments.philosophers.rules import step
from pipeline_lib.environments.philosophers.table import LEFT, RELEASE, RIGHT, WAIT, Table, concatenate

#: What can be seen of one fork.
MINE, FREE, TAKEN = range(3)

#: Number of things a philosopher can see of its two forks.
CLASSES = 9


def seen(table: Table) -> npt.NDArray[np.intp]:
    """Return the class of what each philosopher sees, (N, B): three times the left fork's state plus the right's."""
    taken = table.taken()
    left = np.where(table.left, MINE, FREE + taken[table.graph.left_index])
    right = np.where(table.right, MINE, FREE + taken[table.graph.right_index])
    return (3 * left + right).astype(np.intp)


@lru_cache(maxsize=1)
def all_tables() -> npt.NDArray[np.int8]:
    """Return the 432 effective tables, (432, 9): an action code for every class of `seen`."""
    choices: list[tuple[int, ...]] = []
    for left, right in itertools.product((MINE, FREE, TAKEN), repeat=2):
        options = [WAIT]
        if left == FREE:
            options.append(LEFT)
        if right == FREE:
            options.append(RIGHT)
        if (left == MINE) != (right == MINE):
            options.append(RELEASE)
        choices.append(tuple(options))
    return np.array(list(itertools.product(*choices)), dtype=np.int8)


def play_teams(table: Table, numbers: npt.NDArray[np.intp]) -> Table:
    """Play teams of memoryless policies to the end.

    Args:
        table: B tables at time 0.
        numbers: (N, B), the row of `all_tables` that each philosopher follows.
    """
    rows = all_tables().ravel()
    offsets = numbers * CLASSES
    places = np.arange(table.batch)
    finished: list[Table] = []
    where: list[npt.NDArray[np.intp]] = []
    while not (done := table.done).all():
        if done.mean() > 0.3:  # most pairs deadlock early; there is no point in carrying them along
            over, live = np.flatnonzero(done), np.flatnonzero(~done)
            finished.append(table.select(over))
            where.append(places[over])
            table, places, offsets = table.select(live), places[live], offsets[:, live]
        table = step(table, rows[offsets + seen(table)])
    order = np.argsort(np.concatenate([*where, places]))
    return concatenate([*finished, table]).select(order)
