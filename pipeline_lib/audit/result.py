"""The result of an audit: checks, each with a status, a sentence and numbers.

The identity of a reward: a description, and a digest that changes whenever the reward changes.

Training compares the digest in the audit's result with that of its own reward, because an audit of another reward does
not apply.

Decide whether a reward may be trained on: its present form must have passed the audit, or be overridden.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

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
