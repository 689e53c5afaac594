"""Alternatives from a fixed context, for agents that act one after the other and read each other.

    sampled  agent 1 has f_1 actions; below each, agent 2 has f_2 that read it; and so on.  G = f_1 f_2 ... f_N
    value    Q_i(a) = mean of the returns of all joint actions that contain a
    compared with the other alternatives for the same context, not with answers to other texts
    cost     G executions per group, and f_1 + f_1 f_2 + ... + G actions instead of N G

With `aligned` each agent has G actions, but those of a later agent answer G different texts; an action that answers a
good text is credited for that text.  Here the context is fixed, so the noise of what came before cancels.  Later agents
continue with their current policies, hence unbiased given the context.  Source: C3, arXiv 2603.06859.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.plan import Plan, aligned_cells


@dataclass(frozen=True, slots=True)
class Replay(Plan):
    """Sample several alternatives of each agent below each action of the agents before it.

    Attributes:
        fan_out: alternatives per context, by the agent's place in the acting order; each > 1.
    """

    fan_out: tuple[int, ...] = (2, 4)
    name: ClassVar[str] = "replay"
    nested: ClassVar[bool] = True

    def refuse(self, agents: int, size: int) -> str:
        """Return a message if the alternatives do not make up the group, else an empty text."""
        if len(self.fan_out) != agents:
            return f"fan_out {list(self.fan_out)} must have one number for each of {agents} agents"
        if math.prod(self.fan_out) != size:
            return f"the product of fan_out {list(self.fan_out)} must be group_size ({size})"
        return ""

    def block(self, place: int, agents: int, size: int) -> int:
        """Return how many consecutive joint actions share an action of the agent at ``place``."""
        if agents == 1:
            return 1
        if reason := self.refuse(agents, size):
            raise ValueError(f"credit plan {self.name}: {reason}")
        return math.prod(self.fan_out[place + 1 :])

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the joint actions as they are sampled; nothing else is executed."""
        return aligned_cells(agents, size)

    def compare(self, cells: NDArray[np.int64], rewards: NDArray[np.float64], size: int) -> NDArray[np.float64]:
        """Return shape (agents, G, G): [i, g] holds the values of the alternatives for the context of (i, g).

        Each alternative stands there once: that of g itself at g, the others at their first joint action.
        """
        agents = cells.shape[1]
        found = np.full((agents, size, size), np.nan)
        for agent in range(agents):
            block = self.block(agent, agents, size)
            context = block * (self.fan_out[agent] if agents > 1 else size)
            blocks = rewards.reshape(-1, block)
            known = ~np.isnan(blocks)
            sums = np.where(known, blocks, 0.0).sum(axis=1)
            values = np.where(known.any(axis=1), sums / np.maximum(known.sum(axis=1), 1), np.nan)
            for g in range(size):
                first = g - g % context
                siblings = np.arange(first, first + context, block)
                siblings[(g - first) // block] = g
                found[agent, g, siblings] = values[siblings // block]
        return found
