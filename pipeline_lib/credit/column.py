"""Compare all actions of one agent while the others' are fixed, as COMA and C3 do, but with executed rewards.

    cells  (g, .., k at i, .., g) for all agents i and actions g, k
    value  in the column of g, action k of agent i has value r(g, .., k at i, .., g); only action g gets an advantage
    cost   G + N G (G - 1) executions per group (G^2 for two agents)

Unbiased.  The main effects of the other agents cancel.  Interactions remain in full, because each action is executed
with one set of partners only; `cross` averages them.  For two agents it executes the same cells as `cross`, with more
noise; it is here for comparison.  Sources: COMA, arXiv 1705.08926; C3, arXiv 2603.06859.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.plan import Plan, aligned_cells, too_many
from pipeline_lib.credit.rows import row_means


@dataclass(frozen=True, slots=True)
class Column(Plan):
    """Vary one agent's action at a time."""

    name: ClassVar[str] = "column"

    def refuse(self, agents: int, size: int) -> str:
        """Return a message if there are too many cells, else an empty text."""
        return too_many(size + agents * size * (size - 1))

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the columns of all agents through every sampled joint action, each cell once."""
        found = []
        for agent in range(agents):
            column = np.repeat(aligned_cells(agents, size), size, axis=0)
            column[:, agent] = np.tile(np.arange(size), size)
            found.append(column)
        return np.unique(np.concatenate(found), axis=0)

    def compare(self, cells: NDArray[np.int64], rewards: NDArray[np.float64], size: int) -> NDArray[np.float64]:
        """Return shape (agents, G, G): entry [i, g, k] is the reward of k at agent i among g of all others."""
        agents = cells.shape[1]
        if agents == 1:
            return row_means(cells, rewards, size)
        found = np.full((agents, size, size), np.nan)
        for agent in range(agents):
            others = np.delete(cells, agent, axis=1)
            held = (others == others[:, :1]).all(axis=1)
            found[agent, others[held, 0], cells[held, agent]] = rewards[held]
        return found
