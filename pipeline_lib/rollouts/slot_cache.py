"""Keys and values of all slots of a `decoder.FusedDecoder`.

On the CPU slots are only as long as needed (rounded up), and keys of float32 are stored transposed,
``[head size, length]``: batched products of small contiguous matrices without transposition are up to four times as
fast.  Products of bfloat16 take them either way.
Lengthening alternates between two blocks of memory, because new memory costs page faults.  Large caches, and those on
other devices, get their full length at once and are sliced, so that there is one block.

An unused position holds zeros or old values, never NaN, so that a hidden position (probability 0) adds nothing.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline_lib.rollouts.decoder_weights import Shape
from pipeline_lib.rollouts.rollout_model import Ints

#: On the CPU, slots are lengthened by this many tokens at a time.
CPU_GRAIN = 16
#: On the CPU, a cache of more bytes gets its full length at once, and is freed between calls.
LARGE_BYTES = 64 * 2**20
#: Elsewhere, slots have a multiple of this many tokens, so that calls of about the same size use the same memory.
DEVICE_GRAIN = 128


def turned(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether keys are stored transposed."""
    return device.type == "cpu" and dtype == torch.float32


class SlotCache:
    """``[layers, 2 (keys, values), slots, kv heads, length, head size]``; transposed keys end with the length.

    Attributes:
        slots: number of slots.
        longest: maximum number of tokens in a slot.
        capacity: number of tokens for which slots have memory now.
        turned: keys are stored transposed.
        layout: changes with the places in memory of everything that a step reads and writes here.
    """

    def __init__(self, shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
        """Create an empty cache; call `reserve` next."""
        self._shape, self._device, self._dtype = shape, device, dtype
        self._on_cpu = device.type == "cpu"
        self.turned = turned(device, dtype)
        self._whole = not self._on_cpu
        self.slots = self.longest = self.layout = 0
        self.free()

    def free(self) -> None:
        """Give the memory back; call `reserve` before the next use."""
        self._blocks = [torch.zeros(0, dtype=self._dtype, device=self._device) for _ in range(2)]
        self._all = self._keys = self._values = self._blocks[0]
        self._layer_keys: list[Tensor] = []
        self._layer_values: list[Tensor] = []
        self._value_vectors: list[Tensor] = []
        self._key_numbers: list[Tensor] = []
        self._vectors: list[Tensor] = []
        self._bytes: npt.NDArray[np.uint8] | None = None
        self.capacity = 0

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of keys and values of one token in all layers."""
        shape = self._shape
        return 2 * shape.depth * shape.kv_heads * shape.head_size * torch.finfo(self._dtype).bits // 8

    @property
    def is_large(self) -> bool:
        """Return whether the cache is worth freeing between calls."""
        return self._on_cpu and self._whole

    def reserve(self, slots: int, length: int) -> None:
        """Reserve space for ``slots`` sequences of up to ``length`` tokens; clears all slots.

        On a GPU a layout with room enough stays, because captured steps (`cuda_graphs`) hold for one layout only.
        """
        if not self._on_cpu:
            if slots <= self.slots and length <= self.longest:
                return
            length = -(-length // DEVICE_GRAIN) * DEVICE_GRAIN
        self.slots, self.longest = slots, length
        self.layout += 1
        # The mask of a slot is a slice of this: as many zeros as it has tokens, then -inf.
        self._ramp = torch.zeros(2 * self.longest, dtype=self._dtype, device=self._device)
        self._ramp[self.longest :] = float("-inf")
        self._whole = not self._on_cpu or slots * self.longest * self.bytes_per_token > LARGE_BYTES
        if self._whole:
            self.free()  # before the new one is made
        self._allocate(self.longest if self._whole else 1)

    def _allocate(self, length: int) -> None:
        shape = self._shape
        length = self.longest if self._whole else min(-(-length // CPU_GRAIN) * CPU_GRAIN, self.longest)
        sizes = (shape.depth, 2, self.slots, shape.kv_heads * length * shape.head_size)
        size = math.prod(sizes)
        if not self._whole:
            self._blocks.reverse()
        if len(self._blocks[0]) < size:
            self._blocks[0] = torch.zeros(size, dtype=self._dtype, device=self._device)
        self.capacity = length
        self._all = self._blocks[0][:size].view(sizes)
        self._bytes = self._all.view(torch.uint8).numpy() if self._on_cpu else None
        cells = self._all.view(shape.depth, 2, self.slots, shape.kv_heads, length, shape.head_size)
        self._keys, self._values = cells.unbind(1)
        if self.turned:  # viewed as [layers, slots, kv heads, length, head size]
            turned = (shape.depth, self.slots, shape.kv_heads, shape.head_size, length)
            self._keys = self._all[:, 0].view(turned).transpose(-1, -2)
        self._layer_values = list(self._values.flatten(1, 2))
        self._layer_keys = list(self._keys.transpose(-1, -2).flatten(1, 2))  # [slots * kv heads, head size, length]
        heads = torch.arange(self.slots * shape.kv_heads, device=self._device).view(self.slots, 1, -1)
        if self.turned:
            self._value_vectors = [values.view(-1, shape.head_size) for values in self._layer_values]
            self._key_numbers = [keys.view(-1) for keys in self._layer_keys]
            self._value_starts = heads[:, 0] * length
            self._key_starts = torch.arange(heads.numel() * shape.head_size).view(self.slots, -1) * length
        else:
            self._vectors = list(self._all.view(shape.depth, -1, shape.head_size))
            self._starts = torch.cat([heads, heads + heads.numel()], dim=1).flatten(1) * length

    def lengthen(self, length: int, used: int) -> None:
        """Lengthen slots to ``length`` tokens, keeping the content of the first ``used`` slots."""
        if length <= self.capacity:
            return
        before, halves = self.capacity, (self._keys, self._values)
        self._allocate(length)
        for new, old in zip((self._keys, self._values), halves, strict=True):
            new[:, :used, :, :before] = old[:, :used]
            new[:, :used, :, before:] = 0

    def place(self, kept: Tensor, rows: Ints, slots: Ints) -> None:
        """Copy rows of ``[layers, 2, prompts, kv heads, length, head size]`` into slots."""
        length = kept.shape[4]
        self.lengthen(length, self.slots)
        source, target = (torch.from_numpy(x).to(self._device) for x in (rows, slots))
        for half, cells in enumerate((self._keys, self._values)):
            cells[:, :, :, :length].index_copy_(1, target, kept[:, half].index_select(1, source))

    def move(self, sources: Ints, targets: Ints) -> None:
        """Copy whole slots; sources and targets are disjoint."""
        if self._bytes is not None:  # NumPy's copies of long stretches take a third of the time
            self._bytes[:, :, targets] = self._bytes[:, :, sources]
        elif len(sources):
            source, target = (torch.from_numpy(x).to(self._device) for x in (sources, targets))
            self._all.index_copy_(2, target, self._all.index_select(2, source))

    def length(self, needed: int) -> int:
        """Return how many positions to attend over when the longest sequence has ``needed``."""
        return needed if self._whole else self.capacity

    def mask(self, positions: Tensor, length: int) -> Tensor:
        """Return ``[active * kv heads, 1, length]``: 0 where slots 0.. see, -inf behind their ``positions``."""
        seen = self._ramp.unfold(0, length, 1).index_select(0, (self.longest - 1) - positions)
        return seen.repeat_interleave(self._shape.kv_heads, 0).unsqueeze(1)

    def places(self, positions: Tensor) -> tuple[Tensor, ...]:
        """Return the indices at which `write` stores the new vectors of slots 0.."""
        active, where = len(positions), positions[:, None]
        starts = (self._key_starts, self._value_starts) if self.turned else (self._starts,)
        return tuple((start[:active] + where).view(-1) for start in starts)

    def write(self, layer: int, places: tuple[Tensor, ...], vectors: Tensor) -> None:
        """Store ``[active, 2 * kv heads, head size]``: keys before values."""
        if self.turned:
            keys, values = vectors.chunk(2, dim=1)
            self._key_numbers[layer].index_copy_(0, places[0], keys.reshape(-1))
            self._value_vectors[layer].index_copy_(0, places[1], values.reshape(-1, values.shape[2]))
        else:
            self._vectors[layer].index_copy_(0, places[0], vectors.reshape(-1, vectors.shape[2]))

    def read(self, layer: int, active: int, length: int) -> tuple[Tensor, Tensor]:
        """Return keys ``[active * kv heads, head size, length]`` and values ``[.., length, head size]`` of slots 0.."""
        rows = active * self._shape.kv_heads
        return self._layer_keys[layer][:rows, :, :length], self._layer_values[layer][:rows, :length]
