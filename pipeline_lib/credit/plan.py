"""The interface of a plan: the cells that are executed, and the table by which each agent's actions are compared.

The reducer of all plans except `column` is `row_means`: the value of an action is the mean of its row.

With the cells C of a group and their rewards r, the value of action g of agent i is

    Q_i(g) = mean of r_c over the cells c in C with c_i = g

an estimate of E[r | agent i does g], averaged over the other agents' actions.  Minus the mean over g it is the row mean
minus the grand mean of MAGRPO's cross mode (arXiv 2508.04652), and the aristocrat utility of Wolpert & Tumer (2001)
over the sampled partners.  Lost cells are left out of their rows.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


def row_means(cells: NDArray[np.int64], rewards: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return Q_i(g), shape (agents, 1, G), or NaN if every cell of a row is lost.

    ``cells`` has shape (cells, agents), ``rewards`` (cells,), NaN where lost; ``size`` is the number of actions per
    agent (G).
    """
    known = ~np.isnan(rewards)
    found = []
    for actions in cells[known].T:
        counts = np.bincount(actions, minlength=size)
        sums = np.bincount(actions, rewards[known], minlength=size)
        found.append(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
    return np.stack(found)[:, None, :]


#: Maximum number of cells per group; each one is an execution.
MAX_CELLS = 4096

#: Stands in a cell for an agent whose action is replaced by one that contributes nothing (`Environment.stub`).
NOTHING = -1


class Plan(ABC):
    """Which combinations of a group's actions are executed.

    Equal plans (immutable dataclasses) have equal cells.  The actions of an agent are independent draws from one
    distribution, so the cells need not be drawn anew for every group.
    """

    name: ClassVar[str]  #: its kind in the settings
    #: Whether agents act one after the other, and several joint actions share the actions of earlier agents (`block`).
    #: Otherwise the agents act without seeing each other.
    nested: ClassVar[bool] = False

    def refuse(self, agents: int, size: int) -> str:
        """Return why the plan is impossible for this number of agents with ``size`` actions each; empty if possible."""
        return ""

    def block(self, place: int, agents: int, size: int) -> int:
        """Return how many consecutive joint actions share one action of the agent at ``place`` in the acting order."""
        return 1

    def cells(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the cells to execute, the sampled joint actions (g, ..., g) among them.

        They have the shape (cells, agents) for the ``agents`` > 0 that act in this state with ``size`` > 0 actions each
        (G): int64 in [0, size) or `NOTHING`, rows distinct; row c holds the number of each agent's action.  With one
        agent or one action, every plan is `Aligned`.  ValueError: see `refuse`.
        """
        return _cells(self, agents, size)

    @abstractmethod
    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the cells for more than one agent and more than one action; see `cells`."""

    def compare(self, cells: NDArray[np.int64], rewards: NDArray[np.float64], size: int) -> NDArray[np.float64]:
        """Return the value of every action in each of its comparisons (the reducer); arguments as in `row_means`.

        Returns:
            Shape (agents, 1, G) if all actions of an agent are compared with each other.  Shape (agents, G, G) if each
                has its own comparison: [i, g] holds the values with which action g of agent i is compared.  NaN:
                unknown.
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
    """Return a message if there are more cells than `MAX_CELLS`, else an empty text."""
    if cells <= MAX_CELLS:
        return ""
    return f"{cells} executions per group, more than {MAX_CELLS}; choose latin or pairings, or a smaller group_size"
