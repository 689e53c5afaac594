"""From settings to the sampling distribution, and to the data type of the update."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_lib.rollouts.engine import Sampling

if TYPE_CHECKING:
    import torch

    from pipeline_lib.settings import Params


def sampling_of(params: Params) -> Sampling:
    """Return the sampling distribution of the ``rollouts`` section, and what differs for single agents."""
    rollouts = params.rollouts
    agents = sorted(params.policy.agents.items())
    own = tuple((name, agent.temperature) for name, agent in agents if agent.temperature is not None)
    return Sampling(rollouts.temperature, rollouts.top_p, rollouts.top_k, rollouts.max_new_tokens, own)


def compute_dtype(params: Params) -> torch.dtype:
    """Return the dtype of the update's forward pass; trained weights are always float32."""
    import torch

    if params.policy.kind == "pretrained" and params.policy.dtype == "bfloat16":
        return torch.bfloat16
    return torch.float32
