"""The paper's plan: the g-th actions of all agents form one joint action, and all share its advantage.

    cells  (g, g, ..., g)                 Q_i(g) = r(g, ..., g) for every agent i
    cost   G executions per group

The noise from the other agents' actions stays in every advantage.  Source: MAGRPO, arXiv 2508.04652.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.plan import Plan, aligned_cells


@dataclass(frozen=True, slots=True)
class Aligned(Plan):
    """Execute the joint actions as sampled."""

    name: ClassVar[str] = "aligned"

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return (g, ..., g) for every g."""
        return aligned_cells(agents, size)
