"""FSDP2: weights, gradients and optimiser moments of a policy are split among all processes.

A sharded copy of the policy's model is trained.  The policy keeps its whole model for engine, checkpoints and digests;
after every step the trained weights (with an adapter, only the adapter) are copied into it.  The whole model may be in
main memory.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pipeline_lib.training.parallel import Processes, full, like

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.training.logprobs import TokenScorer


class ShardedCopy:
    """The sharded copy of one policy's model, wrapped in its scorer."""

    def __init__(self, policy: Policy, scorer: TokenScorer, processes: Processes) -> None:
        """Copy the scorer with its model, move the copy to this process's device, and shard it, layer by layer."""
        self.policy = policy
        self.scorer = copy.deepcopy(scorer).to(processes.device)
        mesh = init_device_mesh(processes.device.partition(":")[0], (processes.world,))
        model: Any = self.scorer.model
        names = set(getattr(model, "_no_split_modules", None) or ())
        for module in [m for m in self.scorer.modules() if type(m).__name__ in names]:
            fully_shard(module, mesh=mesh)
        fully_shard(self.scorer, mesh=mesh)

    def trainable(self) -> dict[str, nn.Parameter]:
        """Return the sharded parameters that are trained, by their names in the policy's model."""
        return {name: p for name, p in self.scorer.model.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def copy_back(self) -> None:
        """Copy the trained weights, gathered from all processes, into the policy's model."""
        whole = dict(self.policy.trainable())
        for name, parameter in self.trainable().items():
            whole[name].copy_(full(parameter))

    @torch.no_grad()
    def copy_in(self) -> None:
        """Copy the policy's trained weights into the sharded copy, after a checkpoint was restored."""
        whole = dict(self.policy.trainable())
        for name, parameter in self.trainable().items():
            parameter.copy_(like(whole[name].detach(), parameter))
