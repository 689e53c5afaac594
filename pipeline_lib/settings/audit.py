"""``audit``: before training, test whether the best policy under the reward does the task."""

from pydantic import Field

from pipeline_lib.settings.base import Section


class AuditSettings(Section):
    """How much is sampled for the audit, and what happens after it fails."""

    problems: int = Field(32, ge=1, description="training problems on which the audit plays teams")
    group_size: int = Field(8, ge=2, description="joint actions per problem in the preflight of the base policy")
    seed: int = Field(0, ge=0, description="seed of the audit's random draws")
    override: str = Field(
        "",
        description="reason to train although the audit failed, recorded in the run; if empty, training does not start",
    )
