"""Every combination of the sampled actions.

    cells  all of {0..G-1}^N              Q_i(g) = mean of r over the G^(N-1) cells with c_i = g
    cost   G^N executions per group

The gradient is an N-sample U-statistic over all cells; `aligned` uses its diagonal only, so the variance of `cross` is
never higher.  Main effects of the other agents cancel; interactions remain, divided by the number of partners.  Source:
the joint mode "cross" of MAGRPO (arXiv 2508.04652), as a mean: a sum over the cells, as in the public implementation,
would scale the gradient by G^(N-1).  Complete against incomplete U-statistics: Lee 1990.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.plan import Plan, too_many


@dataclass(frozen=True, slots=True)
class Cross(Plan):
    """Execute all combinations."""

    name: ClassVar[str] = "cross"

    def refuse(self, agents: int, size: int) -> str:
        """Return a message if the table is too large, else an empty text."""
        return too_many(size**agents)

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return all of {0..size-1}^agents."""
        return np.indices((size,) * agents, dtype=np.int64).reshape(agents, -1).T.copy()
