"""Decides whether a reward may be trained on: it must have been audited as it is, and have passed or be overridden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline_lib.audit.audited import describe_reward, reward_digest
from pipeline_lib.audit.result import Status
from pipeline_lib.settings import SettingsError


def is_about(audit: Mapping[str, Any], section: Any) -> bool:
    """Return whether an audit (`AuditResult.to_json`) is about the reward of an environment as it is now."""
    return bool(audit.get("identity", {}).get("reward") == reward_digest(section))


def permit(audit: Mapping[str, Any], section: Any, override: str, where: str) -> bool:
    """Return whether training rests on an override, which the run must record.

    Args:
        audit: what the audit said, as JSON.
        section: the environment that training would use.
        override: the reason given for training although the audit failed; empty: none.
        where: where the audit's answer lies, for messages.

    Raises:
        SettingsError: the audit is about another reward, or failed and there is no reason to train all the same.
    """
    if not is_about(audit, section):
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
