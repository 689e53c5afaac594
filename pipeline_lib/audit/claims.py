"""The rule that decides whether the best policy under a reward does the task; every search of the audit uses it.

The candidates are policies with a reward and an outcome (the share of the task that they do).  Training may end with
any policy that earns as much as the best one, within noise, so the one of them that does least of the task counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline_lib.audit.result import Status

Floats = npt.NDArray[np.float64]

#: Less than the first share of what another policy does is not doing the task (FAIL); less than the second is doubtful.
UNDONE, DOUBTFUL = 0.5, 0.8

#: Shares of what can be earned for which a team need not do anything of the task: more than the first is refused (two
#: thirds of the pay are for something else, and noise hides the rest), more than the second is doubtful.
MOSTLY_FORM, HALF_FORM = 2 / 3, 0.5

#: Training does not see a difference smaller than this share of what the best policy earns beyond doing nothing.
UNSEEN = 0.02


def form(share: float) -> Status:
    """Return what a share of the pay says that is earned without doing anything of the task."""
    return Status.FAIL if share > MOSTLY_FORM else Status.WARN if share > HALF_FORM else Status.PASS


@dataclass(frozen=True, slots=True)
class Favourite:
    """What a reward likes best, ties broken against it.

    Attributes:
        index: which candidate.
        reward: what it earns.
        share: its outcome relative to the greatest outcome of any candidate, in [0, 1]; 0 if no candidate has any.
        best: the greatest reward of any candidate.
        most: the greatest outcome of any candidate.
    """

    index: int
    reward: float
    share: float
    best: float
    most: float

    @property
    def status(self) -> Status:
        """Return FAIL below `UNDONE`, WARN below `DOUBTFUL`, else PASS."""
        return Status.FAIL if self.share < UNDONE else Status.WARN if self.share < DOUBTFUL else Status.PASS


def favourite(rewards: npt.ArrayLike, outcomes: npt.ArrayLike, errors: npt.ArrayLike = 0.0) -> Favourite:
    """Find what the reward likes best among some candidates.

    Args:
        rewards: (C,) mean reward of each; NaN and infinities count as the least.
        outcomes: (C,) share of the task that each does, at least 0.
        errors: (C,) or one number, standard errors of the rewards.

    Returns:
        Of all candidates whose reward is within `UNSEEN` or two standard errors of the difference from the greatest
        one, the candidate with the least outcome.
    """
    earned, done = np.asarray(rewards, np.float64), np.asarray(outcomes, np.float64)
    earned = np.where(np.isfinite(earned), earned, -np.inf)
    noise = np.broadcast_to(np.asarray(errors, np.float64), earned.shape)
    top = int(np.argmax(earned))
    most = float(done.max())
    idle = earned[done <= 0.01 * most]
    idle = idle[np.isfinite(idle)]
    gain = float(earned[top] - idle.max()) if len(idle) else 0.0
    seen = np.maximum(UNSEEN * gain, 2 * np.hypot(noise, noise[top])) + 1e-9 * max(1.0, abs(float(earned[top])))
    ties = np.flatnonzero(earned >= earned[top] - seen)
    index = int(ties[np.lexsort((-earned[ties], done[ties]))[0]])
    share = float(done[index] / most) if most > 0 else 0.0
    return Favourite(index, float(earned[index]), share, float(earned[top]), most)
