"""Every action is executed with k different partners: between aligned (k = 1) and latin (k = G).

    cells  k classes of G cells; in each class every action of every agent occurs once, the first class is aligned
    value  Q_i(g) = mean of r over the k cells with c_i = g
    cost   k G executions per group

If a balanced array exists, the classes are taken from it, so that no two agents' actions meet twice; otherwise they are
cyclic shifts in every part of G.  Incomplete U-statistics: Blom 1976; Lee 1990.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.arrays import pairing_classes
from pipeline_lib.credit.plan import Plan, too_many


@dataclass(frozen=True, slots=True)
class Pairings(Plan):
    """Execute every action with a few partners.

    Attributes:
        per_action: cells per action (k), the sampled joint action included; > 1.
    """

    per_action: int = 2
    name: ClassVar[str] = "pairings"

    def refuse(self, agents: int, size: int) -> str:
        """Return a message if there are fewer pairings or too many cells, else an empty text."""
        if self.per_action > size:
            return f"per_action ({self.per_action}) is more than the {size} actions of a group"
        return too_many(self.per_action * size)

    def combine(self, agents: int, size: int) -> NDArray[np.int64]:
        """Return the first ``per_action`` classes, shape (per_action * size, agents)."""
        return pairing_classes(agents, size)[: self.per_action].reshape(-1, agents)
