"""Several processes train one team, one per GPU, started by ``accelerate launch`` or ``torchrun``.

Sampling is divided by problem, the update by micro-batch.  In between, every process gets the experience of all and
builds the same batch.  Gradients are summed, so the result is that of one process, up to the order of additions.

Weights are held in one of two ways: ``replicated``, all weights in every process (as DDP does; gradients are summed
once, after the last micro-batch, whose number may differ between processes), or ``sharded``, for models whose
gradients and optimiser moments do not fit into one GPU.  Then FSDP2 splits weights, gradients and moments among all
processes, and a sharded copy of the policy's model is trained.  The policy keeps its whole model for engine,
checkpoints and digests; after every step the trained weights (with an adapter, only the adapter) are copied into it.
The whole model may be in main memory.

If a process fails, the launcher ends the others; the same command continues from the last checkpoint, which the first
process lends to machines that do not have it.  Between steps, all processes stop if one of them was asked to.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import psutil
import torch
import torch.distributed as dist
from accelerate import PartialState
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

from pipeline_lib.storage import file_digests, new_folder

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.training.logprobs import TokenScorer


T = TypeVar("T")

#: Gradients are summed in pieces of this many numbers.
BUCKET = 2**24

_PIECE = 2**26  # bytes of a file that travel at once
# When all have come; one that is cut off in just that moment ends the others within a minute.
CONNECT = datetime.timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes that train together."""

    rank: int = 0  #: number of this process, from 0; process 0 writes files and reports
    world: int = 1  #: number of processes
    device: str = "cpu"  #: device of tensors for communication

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

    @contextlib.contextmanager
    def lent(self, folder: Path) -> Iterator[None]:
        """Have a folder of the first process on every machine while the block lasts.

        Every process must enter it; the first one of a machine writes, where the folder is missing or another one.
        """
        if self.world == 1:
            yield
            return
        held = self.gather(file_digests(folder) if folder.is_dir() else {})
        lacks = int(os.environ.get("LOCAL_RANK", "0")) == 0 and held[self.rank] != held[0]
        if self.any(lacks):
            self._write(folder, held[0], lacks)
        yield
        self.gather(None)  # another process of this machine may be reading
        if lacks:
            shutil.rmtree(folder)

    def _write(self, folder: Path, names: Iterable[str], lacks: bool) -> None:
        with new_folder(folder) if lacks else contextlib.nullcontext() as target:
            for name in names:
                if target is not None:
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                with contextlib.ExitStack() as opened:
                    source = opened.enter_context((folder / name).open("rb")) if self.first else None
                    sink = opened.enter_context((target / name).open("wb")) if target is not None else None
                    while piece := self._from_first(source.read(_PIECE) if source is not None else b""):
                        if sink is not None:
                            sink.write(piece)
        self.gather(None)  # before it is there, nobody of that machine may read it

    def _from_first(self, piece: bytes) -> bytes:
        """Return the bytes that the first process gives."""
        length = torch.tensor([len(piece)], device=self.device)
        dist.broadcast(length, 0)
        content = torch.empty(int(length), dtype=torch.uint8)
        if piece:
            content.copy_(torch.frombuffer(bytearray(piece), dtype=torch.uint8))
        content = content.to(self.device)
        if int(length):
            dist.broadcast(content, 0)
        return content.cpu().numpy().tobytes()

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

    Raises:
        RuntimeError: another process did not come within half an hour, or cannot be reached.
        OSError: the name of the first process's machine has no address, or no way leads there.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return ALONE
    if "GLOO_SOCKET_IFNAME" not in os.environ and (interface := _interface()):
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    # Machines may be started by hand; once all have come, connecting takes seconds.  Both use one store.
    store, *_ = next(dist.rendezvous("env://"))
    state = PartialState(cpu=not torch.cuda.is_available(), timeout=CONNECT)
    del store
    return Processes(state.process_index, state.num_processes, str(state.device))


def _interface() -> str:
    """Return the network interface on the way to the first process, or "" if it has no name.

    By default gloo tells others the address of this machine's name, which on Debian is one that only it can reach.
    """
    first, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    family, kind, *_, address = socket.getaddrinfo(first, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as way:
        way.connect(address)  # sends nothing
        own = way.getsockname()[0]
    found = (name for name, held in psutil.net_if_addrs().items() if own in (one.address for one in held))
    return next(found, "")


def full(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole tensor of one that may be sharded; every process must call it."""
    together: Any = getattr(tensor, "full_tensor", None)
    return together() if together is not None else tensor


def like(whole: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """Return ``whole`` on the device and with the sharding of ``example``; every process passes the same values."""
    sharded: Any = example
    if not hasattr(sharded, "placements"):
        return whole.to(example.device)
    return distribute_tensor(whole.to(example.device), sharded.device_mesh, sharded.placements)


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
