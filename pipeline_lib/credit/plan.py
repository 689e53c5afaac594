"""The interface of a plan: the cells that are executed, and the table by which each agent's actions are compared."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.rows import row_means

#: More cells per group than this are refused: every one is an execution.
MOST_CELLS = 4096


class Plan(ABC):
    """Which combinations of a group's actions are executed.

    A plan is a value: equal plans (dataclasses without state) name equal cells.  The actions of an agent are draws from
    one distribution, so which of them meet is fixed once and for all; to draw it anew in every group would change
    nothing.

    Attributes:
        name: what settings call it.
    """

    name: ClassVar[str]

    def refuse(self, agents: int, size: int) -> str:
        """Return why the plan does not exist for ``agents`` agents with ``size`` actions each; empty if it does."""
        return ""

    def cells(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the cells to execute, the sampled joint actions (g, ..., g) among them.

        Args:
            agents: number of agents that act in this state, > 0.
            size: actions per agent (G), > 0.

        Returns:
            Shape (cells, agents), values in [0, size), no row twice; row c holds the number of each agent's action.
            With one agent or one action there is nothing to combine, and every plan is `Aligned`.

        Raises:
            ValueError: see `refuse`.
        """
        return _cells(self, agents, size)

    @abstractmethod
    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the cells for more than one agent and more than one action; see `cells`."""

    def compare(self, cells: NDArray[np.int64], rewards: NDArray[np.float64], size: int) -> NDArray[np.float64]:
        """Return the worth of every action in every comparison that is made of it (the reducer).

        Args:
            cells: shape (cells, agents), as `cells` returned them.
            rewards: shape (cells,), NaN where the infrastructure failed.
            size: actions per agent (G).

        Returns:
            Shape (agents, 1, G) when all actions of an agent are compared in one row; shape (agents, G, G) when entry
            [i, g] holds the actions that action g of agent i, and only that one, is compared with.  NaN is unknown.
        """
        return row_means(cells, rewards, size)


@functools.lru_cache(maxsize=256)
def _cells(plan: Plan, agents: int, size: int) -> NDArray[np.int64]:
    if agents == 1 or size == 1:
        found = aligned_cells(agents, size)
    elif reason := plan.refuse(agents, size):
        raise ValueError(f"credit plan {plan.name}: {reason}")
    else:
        found = plan.combine(agents, size)
    found.setflags(write=False)
    return found


def aligned_cells(agents: int, size: int) -> NDArray[np.int64]:
    """Return the joint actions as they are sampled: the g-th actions of all agents; shape (size, agents)."""
    return np.repeat(np.arange(size, dtype=np.int64)[:, None], agents, axis=1)


def too_many(cells: int) -> str:
    """Return why so many cells are refused; empty if they are few enough."""
    if cells <= MOST_CELLS:
        return ""
    return f"{cells} executions per group, more than {MOST_CELLS}; choose latin or pairings, or a smaller group_size"
