"""Memory that is used again: on a CPU new memory takes longer than most operations on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

#: Parts of one tensor begin at multiples of so many numbers.
ALIGNED = 32


class Buffers:
    """Tensors by name, with any content.  One that is asked for in a larger shape moves."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}
        self._views: dict[tuple[object, ...], Tensor] = {}  # by name and shape

    def __call__(self, name: str, shape: Sequence[int], kind: torch.dtype) -> Tensor:
        """Return the tensor of a name, which always has the same type."""
        view = self._views.get((name, *shape))
        if view is None:
            held, count = self._held.get(name), math.prod(shape)
            if held is None or len(held) < count:
                held = self._held[name] = torch.empty(count, dtype=kind)
                self._views.clear()
            view = self._views[name, *shape] = held[:count].view(shape)
        return view

    def __iter__(self) -> Iterator[Tensor]:
        """Yield what is held."""
        return iter(self._held.values())

    def clear(self) -> None:
        """Give all of it back."""
        self._held.clear()
        self._views.clear()


def aligned(shape: Sequence[int]) -> int:
    """Return how many numbers a part of a tensor takes, with what is left free behind it."""
    return -(-math.prod(shape) // ALIGNED) * ALIGNED


def pieces(space: Tensor, shapes: Iterable[Sequence[int]]) -> Iterator[Tensor]:
    """Yield consecutive parts of a tensor ``[numbers]``."""
    place = 0
    for shape in shapes:
        yield space[place : place + math.prod(shape)].view(shape)
        place += aligned(shape)
