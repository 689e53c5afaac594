"""The ``policy`` settings of a single agent: the team's, with the changes of ``policy.agents``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline_lib.policies.policy import PolicyError

if TYPE_CHECKING:
    from pipeline_lib.settings.policy import AgentPolicy
    from pipeline_lib.settings.policy import Policy as PolicySettings


def section_of(settings: PolicySettings, agent: str) -> PolicySettings:
    """Return the section for one agent, with its own values and without those of others."""
    shared = settings.model_dump(exclude={"agents"})
    own = settings.agents[agent].model_dump(exclude_none=True, include=set(shared)) if agent in settings.agents else {}
    return type(settings).model_validate(shared | own)


def is_frozen(agent: AgentPolicy) -> bool:
    """Return whether an agent is not trained."""
    return not agent.trained or agent.server is not None


def check_agents(settings: PolicySettings, agents: Sequence[str]) -> None:
    """Check that the team has all agents in ``policy.agents``; a team of one agent ignores them.

    Raises:
        PolicyError: an agent is unknown.
    """
    if len(agents) > 1 and (unknown := [name for name in settings.agents if name not in agents]):
        raise PolicyError(f"policy.agents.{unknown[0]}: the team has no such agent; it has {', '.join(agents)}")
