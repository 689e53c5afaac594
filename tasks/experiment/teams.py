"""The untrained team of an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline_lib.policies.load import load_team
from tasks.experiment.arms import BASE

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Team
    from pipeline_lib.settings import Params


def base_team(params: Params, environment: Any, problems: Any) -> Team:
    """Load the untrained team of an environment.

    Args:
        params: the settings.
        environment: the environment the team acts in; it knows the agents' names.
        problems: at least one problem; the agents of the one with most agents are loaded.
    """
    agents = max((environment.agents(problem) for problem in problems), key=len)
    return load_team(params.policy, BASE, agents)
