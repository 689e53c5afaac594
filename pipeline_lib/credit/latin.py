"""A subset of all combinations in which every pair of agents is balanced: a Latin square, or an orthogonal array.

    cells  G^2, so that every pair of agents has each of its G x G pairs of actions exactly once
    value  Q_i(g) = mean of r over the G cells with c_i = g
    cost   G^2 executions per group, for any number of agents

In a row every action of every other agent occurs once, so their main effects cancel exactly, as in `cross`;
interactions among three agents do not.  For two agents it is `cross`.  Such an array (orthogonal, strength 2) that
contains the sampled joint actions is constructed for N agents if no prime power in G is below N, and for three agents
from G = 3 on; cyclic shifts alone would not be enough (they fail at G = 4, N = 3).  Sources: Rao 1947; for composite G
MacNeish 1922.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.arrays import idempotent_square, pairing_classes, prime_powers
from pipeline_lib.credit.plan import Plan, too_many

#: Group sizes that an error message may suggest.
_NEAR = range(2, 65)


@dataclass(frozen=True, slots=True)
class Latin(Plan):
    """Execute a balanced subset of all combinations."""

    name: ClassVar[str] = "latin"

    def refuse(self, agents: int, size: int) -> str:
        """Return a message with possible group sizes if there is no such array, else an empty text."""
        if _can_be_made(agents, size):
            return too_many(size * size)
        sizes = [other for other in _NEAR if _can_be_made(agents, other)]
        near = sorted(sizes, key=lambda other: abs(other - size))[:3]
        return (
            f"no balanced array is known here for {agents} agents with {size} actions each; choose group_size "
            f"{', '.join(map(str, sorted(near)))}, or the plan pairings"
        )

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the array, shape (size**2, agents)."""
        if agents <= min(prime_powers(size)):
            return pairing_classes(agents, size).reshape(-1, agents)
        square = idempotent_square(size)
        first, second = np.indices((size, size), dtype=np.int64)
        return np.stack([first, second, square], axis=-1).reshape(-1, 3)


def _can_be_made(agents: int, size: int) -> bool:
    return agents <= min(prime_powers(size)) or (agents == 3 and size > 2)
