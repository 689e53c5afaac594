"""What a team is made from and where it acts: one object for training, audit, evaluation and play."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.play import Player
from pipeline_lib.policies.base import check_base
from pipeline_lib.policies.computing import compute_type
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.policy import Team
from pipeline_lib.protocols import Protocol
from pipeline_lib.rollouts.engine import Engine, Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import Params


@dataclass(frozen=True, slots=True)
class Setup:
    """What a team is made from, and where it acts."""

    params: Params  #: the settings
    section: Any  #: the environment that the team acts in: the configured one, or its single-agent form
    protocol: Protocol  #: how the team answers
    problems: Path  #: folder of the prepared problems
    base: Path  #: folder of the base policy (`build_base`)

    def environment(self) -> Environment[Any, Any]:
        """Return the environment; the caller closes it."""
        return make_environment(self.section, self.params.sandbox)

    def engine(self) -> Engine:
        """Return an engine without a team; the caller closes it."""
        return make_engine(self.params.rollouts, self.params.policy)

    def team(self, environment: Environment[Any, Any], problems: Sequence[Any], seed: int = 0) -> Team:
        """Load the untrained team; arguments and errors as of `base_team`."""
        return base_team(self.params, self.base, environment, problems, seed)

    def player(
        self, environment: Environment[Any, Any], team: Team, engine: Engine, protocol: Protocol | None = None
    ) -> Player:
        """Return what plays a team, by the protocol of the settings unless another one is given."""
        return Player(environment, team, engine, sampling_of(self.params), protocol or self.protocol)


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
    temperatures = tuple((name, agent.temperature) for name, agent in agents if agent.temperature is not None)
    return Sampling(rollouts.temperature, rollouts.top_p, rollouts.top_k, rollouts.max_new_tokens, temperatures)


def compute_dtype(params: Params, base: Path) -> torch.dtype:
    """Return the dtype of the update's forward pass for a base; trained weights are always float32."""
    if params.policy.kind == "pretrained":
        return compute_type(params.policy, check_base(params.policy, base))
    return torch.float32
