"""Decide whether a reward may be trained on: its present form must have passed the audit, or be overridden."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline_lib.audit.result import Status
from pipeline_lib.audit.reward_identity import describe_reward, reward_digest
from pipeline_lib.settings import SettingsError


def permit(audit: Mapping[str, Any], section: Any, override: str, where: str) -> bool:
    """Return whether training needs the override, which the run must then record.

    Args:
        audit: result of the audit as JSON (`AuditResult.to_json`).
        section: the ``environment`` section of the training run.
        override: the reason to train although the audit failed; empty for none.
        where: path of the audit's result, for messages.

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
