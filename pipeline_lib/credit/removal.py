"""Compare every joint action with what the team gets without one agent's part: difference rewards.

    cells  (g, .., g), and (g, .., nothing at i, .., g) for all agents i
    value  D_i(g) = r(g, .., g) - r(g, .., nothing at i, .., g)
    cost   G (N + 1) executions per group

Nothing is `Environment.stub`: an empty text, or an action that contributes nothing.  Unbiased: what is subtracted does
not depend on the action of agent i.  Effects of the other agents that do not depend on agent i cancel.  The variance
may be higher than that of `aligned`, namely if the team earns nothing without an agent at some times only.  Source:
difference rewards, Wolpert & Tumer 2001.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.plan import NOTHING, Plan, aligned_cells, too_many


@dataclass(frozen=True, slots=True)
class Removal(Plan):
    """Execute the joint actions as sampled, and each without one agent."""

    name: ClassVar[str] = "removal"

    def refuse(self, agents: int, size: int) -> str:
        """Return a message if there are too many cells, else an empty text."""
        return too_many(size * (agents + 1))

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the sampled joint actions, then those without the first agent, without the second, ..."""
        found = [aligned_cells(agents, size)]
        for agent in range(agents):
            without = aligned_cells(agents, size)
            without[:, agent] = NOTHING
            found.append(without)
        return np.concatenate(found)

    def compare(self, cells: NDArray[np.int64], rewards: NDArray[np.float64], size: int) -> NDArray[np.float64]:
        """Return D_i(g), shape (agents, 1, G)."""
        agents = cells.shape[1]
        whole = rewards[:size]
        if agents == 1:
            return whole[None, None, :]
        return (whole - rewards[size:].reshape(agents, size))[:, None, :]
