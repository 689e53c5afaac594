"""Keys and values of all slots of a `decoder.FusedDecoder`.

On the CPU slots are no longer than needed (to a grain): batched products of contiguous matrices are up to three times
as fast as those of slices.  Two blocks of memory take turns when slots are lengthened, because fresh memory costs page
faults.  On other devices slots get their full length at once and are sliced.

A position that was never written holds zeros or leftovers, never NaN, so that a hidden position (probability 0) adds
nothing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pipeline_lib.rollouts.decoder_weights import Shape
from pipeline_lib.rollouts.rollout_model import Ints

#: On the CPU, slots are lengthened by this many tokens at a time.
CPU_GRAIN = 16
#: Elsewhere, slots have a multiple of this many tokens, so that calls of about the same size use the same memory.
DEVICE_GRAIN = 128


class SlotCache:
    """``[layers, 2 (keys, values), slots, kv heads, length, head size]``.

    Attributes:
        slots: number of slots.
        longest: most tokens in a slot.
    """

    def __init__(self, shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
        """Make an empty cache; `reserve` gives it room."""
        self._shape, self._device, self._dtype = shape, device, dtype
        self._blocks = [torch.zeros(0, dtype=dtype, device=device) for _ in range(2)]
        self.slots = self.longest = 0
        self._heads = torch.arange(shape.kv_heads, device=device)
        self._halves = torch.arange(2, device=device)[:, None]

    def reserve(self, slots: int, length: int) -> None:
        """Make room for ``slots`` sequences of up to ``length`` tokens; forgets what slots held."""
        self.slots, self.longest = slots, length
        if self._device.type != "cpu":
            self.longest = -(-length // DEVICE_GRAIN) * DEVICE_GRAIN
        self._allocate(1 if self._device.type == "cpu" else self.longest)

    def _allocate(self, length: int) -> None:
        length = min(-(-length // CPU_GRAIN) * CPU_GRAIN, self.longest)
        shape = (self._shape.depth, 2, self.slots, self._shape.kv_heads, length, self._shape.head_size)
        size = math.prod(shape)
        if self._device.type == "cpu":
            self._blocks.reverse()
        if len(self._blocks[0]) < size:
            self._blocks[0] = torch.zeros(size, dtype=self._dtype, device=self._device)
        self._all = self._blocks[0][:size].view(shape)
        self._vectors = list(self._all.view(self._shape.depth, -1, self._shape.head_size))
        self._keys, self._values = (list(half.flatten(1, 2)) for half in self._all.unbind(1))

    def lengthen(self, length: int, used: int) -> None:
        """Make slots hold ``length`` tokens, keeping what the first ``used`` slots hold."""
        old = self._all
        if length > old.shape[4]:
            self._allocate(length)
            self._all[:, :, :used, :, : old.shape[4]] = old[:, :, :used]
            self._all[:, :, :used, :, old.shape[4] :] = 0

    def place(self, kept: Tensor, rows: Ints, slots: Ints) -> None:
        """Copy rows of ``[layers, 2, prompts, kv heads, length, head size]`` into slots."""
        self.lengthen(kept.shape[4], self.slots)
        source, target = (torch.from_numpy(x).to(self._device) for x in (rows, slots))
        self._all[..., : kept.shape[4], :].index_copy_(2, target, kept.index_select(2, source))

    def move(self, sources: Ints, targets: Ints) -> None:
        """Copy whole slots; sources and targets are disjoint."""
        if len(sources):
            source, target = (torch.from_numpy(x).to(self._device) for x in (sources, targets))
            self._all.index_copy_(2, target, self._all.index_select(2, source))

    @property
    def address(self) -> int:
        """Return where in memory the cache begins."""
        return self._blocks[0].data_ptr()

    def length(self, needed: int) -> int:
        """Return how many positions to attend over when the longest sequence has ``needed``."""
        return int(self._all.shape[4]) if self._device.type == "cpu" else needed

    def places(self, positions: Tensor) -> Tensor:
        """Return where the new vectors of slots 0.. go, for `write`: ``[active * 2 * kv heads]``."""
        slots = torch.arange(len(positions), device=self._device)[:, None, None]
        heads = (self._halves * self.slots + slots) * self._shape.kv_heads + self._heads
        return (heads * self._all.shape[4] + positions[:, None, None]).view(-1)

    def write(self, layer: int, places: Tensor, vectors: Tensor) -> None:
        """Store ``[active * 2 * kv heads, head size]``: by slot, keys before values, by head."""
        self._vectors[layer].index_copy_(0, places, vectors)

    def read(self, layer: int, active: int, length: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of slots 0..active-1: ``[active * kv heads, length, head size]`` each."""
        rows = active * self._shape.kv_heads
        return self._keys[layer][:rows, :length], self._values[layer][:rows, :length]
