"""Several processes train one team, one per GPU, started by ``accelerate launch`` or ``torchrun``.

Sampling is divided by problem, the update by micro-batch.  In between, every process gets the experience of all and
builds the same batch.  Gradients are summed, so the result is that of one process, up to the order of additions.

Weights are held in one of two ways: ``replicated``, all weights in every process (as DDP does; gradients are summed
once, after the last micro-batch, whose number may differ between processes), or ``sharded`` (FSDP2, see `sharding`),
for models whose gradients and optimiser moments do not fit into one GPU.

If a process fails, the launcher ends the others; the same command continues from the last checkpoint.  Between steps,
all processes stop if one of them was asked to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from accelerate import PartialState

T = TypeVar("T")

#: Gradients are summed in pieces of this many numbers.
BUCKET = 2**24


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes that train together.

    Attributes:
        rank: number of this process, from 0; process 0 writes files and reports.
        world: number of processes.
        device: device of tensors for communication.
    """

    rank: int = 0
    world: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Return whether this is the process that writes and reports."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """Return this process's part: every ``world``-th item, from the ``rank``-th."""
        return list(items[self.rank :: self.world])

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, in order of rank."""
        if self.world == 1:
            return [value]
        values: list[T | None] = [None] * self.world
        dist.all_gather_object(values, value)
        return cast("list[T]", values)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        return any(self.gather(flag))

    def sum(self, tensors: Iterable[torch.Tensor]) -> None:
        """Replace tensors by their sums over all processes."""
        if self.world == 1:
            return
        waiting: list[torch.Tensor] = []
        for tensor in tensors:
            waiting.append(tensor)
            if sum(t.numel() for t in waiting) >= BUCKET:
                self._sum_bucket(waiting)
                waiting = []
        if waiting:
            self._sum_bucket(waiting)

    def _sum_bucket(self, tensors: list[torch.Tensor]) -> None:
        flat = torch.cat([tensor.detach().reshape(-1).to(self.device) for tensor in tensors])
        dist.all_reduce(flat)
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.detach().copy_(part.view_as(tensor))


ALONE = Processes()
"""A single process."""


def join_processes() -> Processes:
    """Connect with the other processes of the launcher, if any, and return all processes.

    Call it before models are loaded: it chooses this process's GPU.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ALONE
    state = PartialState(cpu=not torch.cuda.is_available())
    return Processes(state.process_index, state.num_processes, str(state.device))
