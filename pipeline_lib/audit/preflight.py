"""The base policy under the reward: is there a signal, and does it point towards the wanted outcome?

Whether training collapses depends on the base policy: a reward with a degenerate maximum may harm one and not another.
So the real base policy plays some groups before training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline_lib.audit.result import Check, Status

if TYPE_CHECKING:
    from pipeline_lib.play.experience import Experience

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Played:
    """Episodes of the base policy; arrays of shape (groups, G), NaN where an episode got no reward."""

    rewards: Floats  #: reward of each whole episode
    metrics: dict[str, Floats]  #: the last turn's metrics by name

    @classmethod
    def of(cls, experience: Experience, group_size: int) -> Played:
        """Return the episodes of groups of ``group_size``; metrics are those of the last turn that has any."""
        rewards: list[float] = []
        last: list[Mapping[str, float]] = []
        for episode in experience.episodes():
            total = 0.0
            for decision in episode:
                total += float("nan") if decision.reward is None else decision.reward
            rewards.append(total)
            last.append(next((decision.metrics for decision in reversed(episode) if decision.metrics), {}))
        names = sorted({name for row in last for name in row})
        shape = (-1, group_size)
        metrics = {name: np.array([row.get(name, np.nan) for row in last]).reshape(shape) for name in names}
        return cls(np.array(rewards).reshape(shape), metrics)


def preflight(played: Played, wanted: str, words: str, idle: Sequence[str]) -> list[Check]:
    """Check what the base policy would learn.

    Args:
        played: episodes of the base policy.
        wanted: the metric that the reward should increase.
        words: that metric in words.
        idle: metrics that measure doing nothing; a reward for these leads to collapse.

    Returns:
        ``base_signal``: FAIL if no group has any variance of reward, WARN if few have; ``base_alignment``: FAIL if
        reward falls with what is wanted, WARN if they hardly go together; ``base_<metric>`` for each idle metric: FAIL
        if reward rises with it while what is wanted does not.
    """
    if np.isnan(played.rewards).all():
        sentence = f"All {played.rewards.size} episodes of the base policy were lost: none got a reward."
        mend = "find out why the sandbox or the environment failed, and run the audit again."
        return [Check("base_signal", Status.FAIL, sentence, {"groups": len(played.rewards)}, mend)]
    checks = [_signal(played), _alignment(played, wanted, words)]
    return checks + [_idleness(played, wanted, words, name) for name in idle if name in played.metrics]


def within(first: Floats, second: Floats) -> float | None:
    """Return the correlation of two quantities within groups (group means removed), or None if one never varies."""
    usable = ~(np.isnan(first) | np.isnan(second))
    a, b = _centred(first, usable), _centred(second, usable)
    spread = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum() / spread) if spread > 1e-12 else None


def _centred(values: Floats, usable: npt.NDArray[np.bool_]) -> Floats:
    known = np.where(usable, values, 0.0)
    means = known.sum(axis=1) / np.maximum(usable.sum(axis=1), 1)
    return np.where(usable, values - means[:, None], 0.0)


def _signal(played: Played) -> Check:
    spread = np.array([np.ptp(row[~np.isnan(row)]) if (~np.isnan(row)).any() else 0.0 for row in played.rewards])
    flat = float((spread <= 1e-9).mean())
    numbers = {"flat_share": flat, "groups": len(spread), "mean_reward": float(np.nanmean(played.rewards))}
    if flat == 1.0:
        return Check(
            "base_signal",
            Status.FAIL,
            f"All {len(spread)} groups of the base policy earn the same: no gradient.",
            numbers,
            "start from a base that does some of the task, or pay for steps towards it.",
        )
    status = Status.WARN if flat > 0.8 else Status.PASS
    return Check(
        "base_signal",
        status,
        f"{flat:.0%} of the base policy's groups have no variance of reward, so nothing can be learned from them.",
        numbers,
    )


def _alignment(played: Played, wanted: str, words: str) -> Check:
    if wanted not in played.metrics:
        return Check("base_alignment", Status.WARN, f"The base policy's episodes say nothing of {words}.")
    found = within(played.rewards, played.metrics[wanted])
    mean = float(np.nanmean(played.metrics[wanted]))
    numbers = {"correlation": found, "mean": mean}
    if found is None:
        return Check(
            "base_alignment",
            Status.WARN,
            f"Within its groups the base policy never differs in {words} (mean {mean:.2f}), or always earns the same.",
            numbers,
        )
    noise = 2 / np.sqrt(played.rewards.size)
    if found < -noise:
        status, verb = Status.FAIL, "falls"
    else:
        status, verb = (Status.WARN, "hardly rises") if found < 0.2 else (Status.PASS, "rises")
    sentence = f"Within the base policy's groups reward {verb} with {words} (correlation {found:.2f})."
    mend = f"pay more for {words}, less for what the base policy does instead." if status is Status.FAIL else ""
    return Check("base_alignment", status, sentence, numbers, mend)


def _idleness(played: Played, wanted: str, words: str, idle: str) -> Check:
    paid = within(played.rewards, played.metrics[idle])
    costs = within(played.metrics[wanted], played.metrics[idle])
    numbers = {"reward": paid, wanted: costs}
    noise = 2 / np.sqrt(played.rewards.size)
    if paid is not None and paid > max(noise, 0.1) and (costs is None or costs < noise):
        return Check(
            f"base_{idle}",
            Status.FAIL,
            f"The base policy earns more the higher its {idle} (correlation {paid:.2f}), and {words} gains nothing "
            "from it: training starts towards doing nothing.",
            numbers,
            f"do not pay for {idle}.",
        )
    return Check(f"base_{idle}", Status.PASS, f"The base policy is not paid for its {idle}.", numbers)
