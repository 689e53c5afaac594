"""The rule that decides whether the best policy under a reward does the task; every search of the audit uses it.

Candidates are policies with a reward and an outcome (the share of the task that they do).  Training may end with any
policy whose reward equals the best one's within noise, so of these the one with the lowest outcome counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline_lib.audit.result import Status

Floats = npt.NDArray[np.float64]

#: Outcome relative to the best outcome: up to the first share the task is not done (FAIL), below the second WARN.
UNDONE, DOUBTFUL = 0.5, 0.8

#: Share of the maximum reward that a team gets without doing anything of the task: above the first FAIL (the rest is
#: hidden by noise), above the second WARN.
MOSTLY_FORM, HALF_FORM = 2 / 3, 0.5

#: Reward differences below this share of the best policy's gain over doing nothing count as ties.
UNSEEN = 0.02


def form(share: float) -> Status:
    """Return the status of a reward that pays this share of its maximum without anything of the task being done."""
    return Status.FAIL if share > MOSTLY_FORM else Status.WARN if share > HALF_FORM else Status.PASS


@dataclass(frozen=True, slots=True)
class BestPolicy:
    """The candidate with the best reward; of ties, the one with the lowest outcome.

    Attributes:
        index: index of the candidate.
        reward: its reward.
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
        """Return FAIL up to `UNDONE`, WARN below `DOUBTFUL`, else PASS."""
        return Status.FAIL if self.share <= UNDONE + 1e-9 else Status.WARN if self.share < DOUBTFUL else Status.PASS


def best_policy(rewards: npt.ArrayLike, outcomes: npt.ArrayLike, errors: npt.ArrayLike = 0.0) -> BestPolicy:
    """Return the candidate with the best reward; of ties, the one with the lowest outcome.

    Args:
        rewards: (C,) mean reward of each; NaN and infinities count as the lowest reward.
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
    return BestPolicy(index, float(earned[index]), share, float(earned[top]), most)
