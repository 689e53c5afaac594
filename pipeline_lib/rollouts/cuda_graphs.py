"""Decoding steps as CUDA graphs.

A step of a large model has about a thousand kernel launches, and Python issues them more slowly than the GPU runs them.
Every captured graph is compared with the plain step; if a capture or its check fails, plain steps are used from then
on, with one warning.  Rows and columns are rounded up to few sizes, so that few graphs are captured; the extra rows are
unused slots.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

#: Takes token ids ``[rows]``, positions ``[rows]`` and a number of columns; returns logits ``[rows, vocabulary]``.
Step = Callable[[Tensor, Tensor, int], Tensor]

_TOLERANCE = 0.05
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    tokens: Tensor
    positions: Tensor
    logits: Tensor


class StepGraphs:
    """Runs steps by captured graphs."""

    def __init__(self, step: Step) -> None:
        """Store the step; graphs are captured on first use."""
        self._step = step
        self._captured: dict[tuple[int, int], _Captured] = {}
        self._layout = 0
        self._pool: Any = None  # memory that all graphs share
        self._works = True

    def __call__(
        self, tokens: Tensor, positions: Tensor, columns: int, slots: int, longest: int, layout: int
    ) -> Tensor:
        """Return the logits of a step.

        Args:
            tokens: ``[active]`` token ids on the GPU.
            positions: ``[active]``.
            columns: number of cache positions that are needed.
            slots: number of slots in the cache.
            longest: number of positions per slot.
            layout: number of the cache's layout; graphs for another one are dropped, because they read and write where
                it was.
        """
        if not self._works:
            return self._step(tokens, positions, columns)
        active, rows, columns = len(tokens), round_up(len(tokens), slots), round_up(columns, longest, least=64)
        if layout != self._layout:
            self._captured.clear()
            self._pool = None  # torch frees a pool with the last graph that uses it, and then refuses its handle
            self._layout = layout
        key = (rows, columns)
        if key not in self._captured:
            found = self._capture(tokens, positions, rows, columns)
            if found is None:
                return self._step(tokens, positions, columns)
            self._captured[key] = found
        one = self._captured[key]
        one.tokens[:active] = tokens
        one.positions[:active] = positions
        one.positions[active:] = 0
        one.graph.replay()
        return one.logits[:active]

    def _capture(self, tokens: Tensor, positions: Tensor, rows: int, columns: int) -> _Captured | None:
        active = len(tokens)
        own_tokens, own_positions = tokens.new_zeros(rows), positions.new_zeros(rows)
        own_tokens[:active], own_positions[:active] = tokens, positions
        try:
            plain = self._step(own_tokens, own_positions, columns)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._step(own_tokens, own_positions, columns)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                logits = self._step(own_tokens, own_positions, columns)
            self._pool = graph.pool()
            graph.replay()
            off = float((logits[:active] - plain[:active]).abs().max())
            if off > _TOLERANCE:
                raise RuntimeError(f"logits of a captured step are off by {off:.3g}")
        except RuntimeError as error:
            logger.warning("CUDA graphs are not used for decoding: %s", error)
            self._works = False
            self._captured.clear()
            return None
        return _Captured(graph, own_tokens, own_positions, logits)


def round_up(number: int, most: int, least: int = 1) -> int:
    """Return the smallest sufficient size among powers of two and, from 16 on, 1.5 times these; at most ``most``."""
    size = least
    while size < number:
        size = size * 3 // 2 if size >= 16 and size & (size - 1) == 0 else 1 << size.bit_length()
    return min(size, most)
