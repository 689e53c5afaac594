"""The reducer of all plans except `column`: the value of an action is the mean of its row.

With the cells C of a group and their rewards r, the value of action g of agent i is

    Q_i(g) = mean of r_c over the cells c in C with c_i = g

an estimate of E[r | agent i does g], averaged over the other agents' actions.  Minus the mean over g it is the row mean
minus the grand mean of MAGRPO's cross mode (arXiv 2508.04652), and the aristocrat utility of Wolpert & Tumer (2001)
over the sampled partners.  Lost cells are left out of their rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def row_means(cells: NDArray[np.int64], rewards: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return Q_i(g), or NaN if every cell of a row is lost.

    Args:
        cells: shape (cells, agents).
        rewards: shape (cells,), NaN where lost.
        size: actions per agent (G).

    Returns:
        Shape (agents, 1, G).
    """
    known = ~np.isnan(rewards)
    found = []
    for actions in cells[known].T:
        counts = np.bincount(actions, minlength=size)
        sums = np.bincount(actions, rewards[known], minlength=size)
        found.append(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
    return np.stack(found)[:, None, :]
