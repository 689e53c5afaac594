"""What a layer keeps under gradient checkpointing: the results of its matrix products and of its attention.

A layer is computed again in the backward pass, and its matrix products and attention are most of that work.  What they
return is small beside everything else that a layer would keep, so a fixed amount of it is kept, and only the rest of
the layer is computed again.  Values are the same either way.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager

from torch import Tensor

_here = threading.local()  # `record` or `replay` of the layer that is computed now


class KeptProducts:
    """The products of one model that are kept now.

    Attributes:
        most: bytes that may be kept.
        held: bytes that are.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return the contexts of a layer's first and second computation (``context_fn`` of torch's checkpoint)."""
        layer = _Layer(self)
        return _using(layer, False), _using(layer, True)


class _Layer:
    """The products of one layer, in the order in which they were computed."""

    def __init__(self, whole: KeptProducts) -> None:
        self._whole = whole
        self._kept: deque[tuple[tuple[Tensor, ...], int, int] | None] = deque()

    def record(self, product: tuple[Tensor, ...]) -> None:
        """Keep a product if there is room; its first tensor is what the layer goes on with."""
        size = sum(tensor.nbytes for tensor in product)
        if self._whole.held + size > self._whole.most:
            self._kept.append(None)
            return
        self._whole.held += size
        self._kept.append((tuple(tensor.detach() for tensor in product), product[0]._version, size))

    def replay(self) -> tuple[Tensor, ...] | None:
        """Return the next product; None if it was not kept, or if the layer changed it in place afterwards."""
        kept = self._kept.popleft()
        if kept is None:
            return None
        product, version, size = kept
        self._whole.held -= size
        return product if product[0]._version == version else None

    def __del__(self) -> None:
        """Count what was never used again as given back."""
        self._whole.held -= sum(kept[2] for kept in self._kept if kept is not None)


def recorded(product: tuple[Tensor, ...]) -> None:
    """Keep a product that was just computed, if the layer's first computation is under way."""
    layer, again = getattr(_here, "layer", (None, False))
    if layer is not None and not again:
        layer.record(product)


def replayed() -> tuple[Tensor, ...] | None:
    """Return the product that would be computed now, if it was kept in the layer's first computation."""
    layer, again = getattr(_here, "layer", (None, False))
    return layer.replay() if layer is not None and again else None


@contextlib.contextmanager
def _using(layer: _Layer, again: bool) -> Iterator[None]:
    before = getattr(_here, "layer", (None, False))
    _here.layer = (layer, again)
    try:
        yield
    finally:
        _here.layer = before
