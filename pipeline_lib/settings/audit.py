"""``audit``: does the best policy under the reward do the task?  Asked before any training."""

from __future__ import annotations

from pydantic import Field

from pipeline_lib.settings.base import Section


class AuditSettings(Section):
    """How much is sampled for the audit, and what happens after it fails."""

    problems: int = Field(32, ge=1, description="training problems that the audit tries teams on")
    group_size: int = Field(8, ge=2, description="joint actions per problem in the preflight of the base policy")
    seed: int = Field(0, ge=0, description="seed of the audit's draws")
    override: str = Field(
        "", description="reason to train although the audit failed, recorded in the run; empty: training refuses"
    )
