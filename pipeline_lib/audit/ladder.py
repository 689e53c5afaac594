"""The ladder: teams whose value is known beforehand; the reward should rank them in that order.

The rule that decides whether the best policy under a reward does the task; every search of the audit uses it.

Candidates are policies with a reward and an outcome (the share of the task that they do).  Training may end with any
policy whose reward equals the best one's within noise, so of these the one with the lowest outcome counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline_lib.audit.result import Check, Rung, Status

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
    """The candidate with the best reward; of ties, the one with the lowest outcome."""

    index: int  #: index of the candidate
    reward: float  #: its reward
    share: float  #: its outcome relative to the greatest outcome of any candidate, in [0, 1]; 0 if no candidate has any
    best: float  #: the greatest reward of any candidate
    most: float  #: the greatest outcome of any candidate

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


def make_rung(
    name: str,
    role: str,
    rewards: Sequence[float],
    outcomes: Sequence[float],
    terms: Sequence[Mapping[str, float]],
    metrics: Sequence[Mapping[str, float]] = (),
) -> Rung:
    """Average the episodes of one team: reward, value of the wanted metric, reward terms, further metrics."""
    values = np.asarray(rewards, dtype=np.float64)
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return Rung(
        name=name,
        role=role,
        episodes=len(values),
        reward=float(values.mean()),
        error=spread / float(np.sqrt(len(values))),
        outcome=float(np.mean(outcomes)),
        terms=_means(terms),
        metrics=_means(metrics),
    )


def bounded(rewards: Sequence[float], bounds: tuple[float, float]) -> Check:
    """Check that rewards are finite and within the declared bounds, FAIL if not; other checks rely on the bounds."""
    values, (least, greatest) = np.asarray(rewards, dtype=np.float64), bounds
    slack = 1e-9 * max(1.0, abs(least), abs(greatest))
    if not np.isfinite(values).all():
        sentence = f"{(~np.isfinite(values)).sum()} of {len(values)} rewards are not finite numbers."
        return Check("bounds", Status.FAIL, sentence, {}, "return finite terms for every episode.")
    low, high = float(values.min()), float(values.max())
    numbers = {"least": low, "greatest": high, "bounds": list(bounds)}
    if low < least - slack or high > greatest + slack:
        sentence = f"Rewards lie between {low:.3f} and {high:.3f}, outside the bounds {least:.3f} to {greatest:.3f}."
        return Check("bounds", Status.FAIL, sentence, numbers, "correct the reward's bounds.")
    return Check("bounds", Status.PASS, f"All rewards lie within {least:.3f} to {greatest:.3f}.", numbers)


def compare(rungs: Sequence[Rung], wanted: str) -> list[Check]:
    """Check the order of the ladder.

    Args:
        rungs: all teams, some of them degenerate and some working.
        wanted: what `Rung.outcome` is, in words, for example "tests passed".

    Returns:
        ``best``: whether the team that earns most does the task, see `ladder.best_policy`; ``ladder``: FAIL if a
        degenerate team earns as much as half of the working ones or more, WARN if as much as one; ``order``: WARN if
        rewards and outcomes rank the teams differently.
    """
    return [_best(rungs, wanted), _separation(rungs), _order(rungs, wanted)]


def _best(rungs: Sequence[Rung], wanted: str) -> Check:
    found = best_policy([r.reward for r in rungs], [r.outcome for r in rungs], [r.error for r in rungs])
    team = rungs[found.index]
    numbers = {"best": team.name, "reward": team.reward, "outcome": team.outcome, "best_outcome": found.most}
    if found.share >= 0.999 or found.most == 0:
        sentence = f"The most rewarded team, '{team.name}', has {wanted} {team.outcome:.2f}."
        return Check("best", Status.PASS if found.most else Status.WARN, sentence, numbers)
    return Check(
        "best",
        found.status,
        f"'{team.name}' earns {'most' if team.reward >= found.best else 'as much as any team'} ({team.reward:.3f}) "
        f"with {wanted} {team.outcome:.2f}, where another team reaches {found.most:.2f}.",
        numbers,
        f"pay for {wanted} up to its maximum, so that '{team.name}' earns less than the team that reaches it.",
    )


def _separation(rungs: Sequence[Rung]) -> Check:
    degenerate = [r for r in rungs if r.role == "degenerate"]
    working = [r for r in rungs if r.role == "working"]
    if not degenerate or not working:
        return Check(
            "ladder", Status.WARN, "Nothing can be compared: no degenerate team or no working team could be played."
        )
    top = max(degenerate, key=lambda r: r.reward)
    low = min(working, key=lambda r: r.reward)
    beaten = [r.name for r in working if top.reward >= r.reward - 1e-9]
    numbers = {
        "degenerate": top.name,
        "degenerate_reward": top.reward,
        "working": low.name,
        "working_reward": low.reward,
        "beaten": beaten,
    }
    if not beaten:
        return Check(
            "ladder",
            Status.PASS,
            f"No degenerate team earns as much as a working one: at most {top.reward:.3f} ('{top.name}'), at least "
            f"{low.reward:.3f} ('{low.name}').",
            numbers,
        )
    return Check(
        "ladder",
        Status.FAIL if 2 * len(beaten) >= len(working) else Status.WARN,
        f"'{top.name}' earns {top.reward:.3f}, {'more than' if top.reward > low.reward else 'as much as'} the working "
        f"team '{low.name}' ({low.reward:.3f}); it beats {len(beaten)} of {len(working)} working teams.",
        numbers,
        f"take away what '{top.name}' is paid for without doing the task, or pay more for the task.",
    )


def _order(rungs: Sequence[Rung], wanted: str) -> Check:
    tau = kendall_tau([r.reward for r in rungs], [r.outcome for r in rungs])
    if math.isnan(tau):
        return Check(
            "order", Status.WARN, f"All teams earn the same, or all have the same {wanted}: no order to check."
        )
    status = Status.PASS if tau >= 0.5 else Status.WARN
    agree = "agree" if status is Status.PASS else "disagree"
    return Check(
        "order",
        status,
        f"Reward and {wanted} {agree} on the order of the {len(rungs)} teams (Kendall's tau {tau:.2f}).",
        {"tau": tau},
    )


def kendall_tau(left: Sequence[float], right: Sequence[float]) -> float:
    """Return how far two lists agree on an order, in [-1, 1] (Kendall's tau-b); NaN if either has one value only."""
    signs = [np.sign(np.subtract.outer(values, values)) for values in (left, right)]
    pairs = [float(np.abs(sign).sum()) for sign in signs]
    return float((signs[0] * signs[1]).sum()) / math.sqrt(pairs[0] * pairs[1]) if all(pairs) else math.nan


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = {name for row in rows for name in row}
    return {name: float(np.mean([row[name] for row in rows if name in row])) for name in sorted(names)}
