"""From settings to how a team answers: the protocol, the distribution actions are drawn from; and the update's type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_lib.protocols import Protocol, make_protocol
from pipeline_lib.rollouts.engine import Sampling
from tasks.experiment.arms import TEAM

if TYPE_CHECKING:
    import torch

    from pipeline_lib.settings import Params


def sampling_of(params: Params) -> Sampling:
    """Return the sampling distribution of the ``rollouts`` section."""
    rollouts = params.rollouts
    return Sampling(rollouts.temperature, rollouts.top_p, rollouts.top_k, rollouts.max_new_tokens)


def protocol_of(params: Params, arm: str) -> Protocol:
    """Return how the teams of an arm answer; a single agent has nobody to read."""
    return make_protocol(params.rollouts.protocol if arm == TEAM else "decentralised")


def compute_dtype(params: Params) -> torch.dtype:
    """Return the type of the update's forward pass; trained weights are float32 whatever it is."""
    import torch

    if params.policy.kind == "pretrained" and params.policy.dtype == "bfloat16":
        return torch.bfloat16
    return torch.float32
