"""How well estimated advantages agree with true ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: The sign of a true advantage closer to 0 than this does not count.
CLEAR = 0.05


@dataclass(frozen=True, slots=True)
class Agreement:
    """Estimated and true advantages of one agent's actions in one state."""

    correlation: float | None  #: Pearson's; 0 if the estimates are all equal, None if the true advantages are
    #: Share of the actions with a clear true advantage (`CLEAR`) whose estimate has the same sign; None without such
    #: actions.
    sign: float | None
    error: float  #: mean squared difference


def agreement(estimated: Floats, true: Floats) -> Agreement:
    """Compare estimates with the truth; both of the same shape, finite and not empty."""
    correlation = sign = None
    if true.std() > 1e-9:
        correlation = float(np.corrcoef(estimated.ravel(), true.ravel())[0, 1]) if estimated.std() > 1e-12 else 0.0
    if (clear := np.abs(true) > CLEAR).any():
        sign = float(np.mean(np.sign(estimated[clear]) == np.sign(true[clear])))
    return Agreement(correlation, sign, float(np.mean((estimated - true) ** 2)))
