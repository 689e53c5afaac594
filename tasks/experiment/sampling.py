"""From settings to the distribution actions are drawn from and the type the update computes in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline_lib.rollouts.engine import Sampling

if TYPE_CHECKING:
    import torch

    from pipeline_lib.settings import Params


def sampling_of(params: Params) -> Sampling:
    """Return the sampling distribution of the ``rollouts`` section."""
    rollouts = params.rollouts
    return Sampling(rollouts.temperature, rollouts.top_p, rollouts.top_k, rollouts.max_new_tokens)


def compute_dtype(params: Params) -> torch.dtype:
    """Return the type of the update's forward pass; trained weights are float32 whatever it is."""
    import torch

    if params.policy.kind == "pretrained" and params.policy.dtype == "bfloat16":
        return torch.bfloat16
    return torch.float32
