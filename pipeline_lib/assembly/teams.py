"""The untrained team of an environment, and how it is sampled from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pipeline_lib.policies.base import check_base
from pipeline_lib.policies.compute_type import compute_type
from pipeline_lib.policies.load import load_team
from pipeline_lib.rollouts.engine import Sampling

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


def sampling_of(params: Params) -> Sampling:
    """Return the sampling distribution of the ``rollouts`` section, and what differs for single agents."""
    rollouts = params.rollouts
    agents = sorted(params.policy.agents.items())
    own = tuple((name, agent.temperature) for name, agent in agents if agent.temperature is not None)
    return Sampling(rollouts.temperature, rollouts.top_p, rollouts.top_k, rollouts.max_new_tokens, own)


def compute_dtype(params: Params, base: Path) -> torch.dtype:
    """Return the dtype of the update's forward pass for a base; trained weights are always float32."""
    if params.policy.kind == "pretrained":
        return compute_type(params.policy, check_base(params.policy, base))
    return torch.float32
