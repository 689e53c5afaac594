"""The result of an audit: checks with a status, a sentence and numbers, and the ladder of teams of known value.

Training compares the digest in the audit's result with that of its own reward, because an audit of another reward does
not apply: the present form of a reward must have passed the audit, or be overridden.

A reward should rank the teams of the ladder in the order of their value.  `best_policy` decides whether the best policy
under a reward does the task; every search of the audit uses it.  Candidates are policies with a reward and an outcome
(the share of the task that they do).  Training may end with any policy whose reward equals the best one's within noise,
so of these the one with the lowest outcome counts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline_lib.environment_api.registry import find
from pipeline_lib.identity.code import named_code
from pipeline_lib.settings import SettingsError
from pipeline_lib.storage import digest


class Status(StrEnum):
    """Status of a check, or of all checks together."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"


_ORDER = (Status.PASS, Status.WARN, Status.FAIL)


def worst(statuses: Sequence[Status]) -> Status:
    """Return the worst of some statuses; PASS for none."""
    return max(statuses, key=_ORDER.index, default=Status.PASS)


@dataclass(frozen=True, slots=True)
class Check:
    """One question and its answer."""

    name: str  #: short and stable, for example ``ladder``
    status: Status  #: PASS, WARN or FAIL
    sentence: str  #: the answer in words, with the offending policy if there is one
    numbers: Mapping[str, Any] = field(default_factory=dict)  #: JSON-like facts behind the answer
    mend: str = ""  #: how to correct the reward; empty if nothing is wrong


@dataclass(frozen=True, slots=True)
class Rung:
    """A scripted team on the ladder."""

    name: str  #: its behaviour, for example ``wait``
    role: str  #: ``degenerate`` (must not pay), ``working`` (must pay) or ``other`` (shown for comparison)
    episodes: int  #: episodes played that got a reward
    reward: float  #: mean reward of an episode
    error: float  #: standard error of that mean; 0 for a single episode
    outcome: float  #: mean of the wanted metric (share of tests passed, meals relative to the optimum)
    terms: Mapping[str, float] = field(default_factory=dict)  #: mean of every reward term
    metrics: Mapping[str, float] = field(default_factory=dict)  #: means of further quantities


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The audit of one reward in one environment."""

    status: Status  #: the worst status of any check
    environment: str  #: kind of environment
    reward: str  #: kind, class and settings of the reward, in words
    summary: str  #: the result in one sentence
    checks: tuple[Check, ...]  #: all checks, in the order in which they were run
    ladder: tuple[Rung, ...]  #: the scripted teams, best reward first
    #: Digests of settings, of the reward (its source and settings, see `reward_identity`) and of the problems, and the
    #: seed.
    identity: Mapping[str, Any]
    seconds: float  #: wall time of the audit

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AuditResult:
        """Rebuild a result from `to_json`; unknown or missing keys raise TypeError, unknown statuses ValueError."""
        values: dict[str, Any] = dict(value)
        values["status"] = Status(values["status"])
        values["checks"] = tuple(Check(**{**check, "status": Status(check["status"])}) for check in values["checks"])
        values["ladder"] = tuple(Rung(**rung) for rung in values["ladder"])
        return cls(**values)


def conclude(checks: Sequence[Check], reward: str) -> tuple[Status, str]:
    """Return the status of all checks together, and a summary that quotes the first check with the worst status."""
    status = worst([check.status for check in checks])
    failed = [check for check in checks if check.status is Status.FAIL]
    warned = [check for check in checks if check.status is Status.WARN]
    if failed:
        first = failed[0]
        mend = f" To fix it: {first.mend}" if first.mend else ""
        return status, f"{len(failed)} of {len(checks)} checks fail for the reward {reward}. {first.sentence}{mend}"
    if warned:
        return status, f"No check fails, {len(warned)} of {len(checks)} warn. {warned[0].sentence}"
    return status, f"All {len(checks)} checks pass: of the policies that were tried, the best paid does the task."


def describe_reward(section: Any) -> str:
    """Return an environment's reward in words, for example ``philosophers / terms (weights: {'meals': 1.0})``."""
    settings = _reward(section).model_dump(mode="json")
    kind = settings.pop("kind")
    options = ", ".join(f"{name}: {value}" for name, value in settings.items() if value is not None)
    return f"'{section.kind} / {kind}'" + (f" ({options})" if options else "")


def reward_digest(section: Any) -> str:
    """Return the digest (64 hexadecimal digits) of an environment's reward: its settings, and the source it runs.

    The source is the module of the reward's class with all project code that it imports; comments and docstrings do not
    count.  The digest is the same for all arms of an experiment.
    """
    path = find(section.kind).reward_code(section)
    return digest({"settings": _reward(section).model_dump(mode="json"), "source": named_code(path).files})


def _reward(section: Any) -> Any:
    """Return the settings of the reward: the part ``reward`` if there is one, else the whole section."""
    return getattr(section, "reward", section)


def permit(audit: Mapping[str, Any], section: Any, override: str, where: str) -> bool:
    """Return whether training needs the override, which the run must then record.

    ``audit`` is the audit's result as JSON, kept at the path ``where``; ``section`` the ``environment`` section of the
    training run; ``override`` the reason to train although the audit failed, or empty.

    Raises:
        SettingsError: the audit is of another reward, or it failed and there is no override.
    """
    if audit.get("identity", {}).get("reward") != reward_digest(section):
        raise SettingsError(
            f"{where}: the reward was edited after the audit: run the audit stage again (`dvc repro` does). "
            f"The audit judged {audit.get('reward', 'another one')}; training was "
            f"to use {describe_reward(section)}, and the settings or the source differ"
        )
    if audit["status"] != Status.FAIL:
        return False
    if not override:
        raise SettingsError(
            f"{where}: the reward audit failed: {audit['summary']} Change the reward, or, to train anyway, give the "
            "reason in audit.override, which the run will record"
        )
    return True


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
    spread = 0.0 if len(values) < 2 else float(values.std(ddof=1)) if np.isfinite(values).all() else float("nan")
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
        ``best``: whether the team that earns most does the task, see `best_policy`; ``ladder``: FAIL if a
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
