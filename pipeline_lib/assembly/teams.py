"""The untrained team of an environment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.policies.load import load_team

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Team
    from pipeline_lib.settings import Params


def base_team(params: Params, base: Path, environment: Any, problems: Sequence[Any], seed: int = 0) -> Team:
    """Load the untrained team of an environment.

    Args:
        params: the settings.
        base: folder of the base policy (`build_base`).
        environment: the environment the team acts in; it knows the agents' names, and whether there is a critic.
        problems: at least one problem; the agents of the one with most agents are loaded.
        seed: of the training run that begins with this team, which draws the first weights of adapters; an untrained
            team answers the same for any.

    Raises:
        PolicyError: as `load_team`.
    """
    agents = max((environment.agents(problem) for problem in problems), key=len)
    return load_team(params.policy, base, agents, seed, bases=environment.has_critic)
