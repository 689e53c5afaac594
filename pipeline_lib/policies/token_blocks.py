"""Attention over a tree of tokens, which reads only what each token sees.

Sequences with common beginnings are one tree: every node sees its ancestors and itself.  The tokens of a stretch
without branches are one block: they attend to the stretches in front of them as a whole, and to each other causally.
A mask over all pairs of tokens hides most of them, and torch's fused kernel for the CPU computes them nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

#: Maximum number of tokens of a block: longer stretches are divided, since a block computes all pairs of its tokens.
BLOCK = 128


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive tokens of one row of a pass: ``first`` up to ``end``.

    Each sees the stretches ``before`` (first token, end) as a whole, and of its own block itself and what precedes it.
    """

    row: int
    first: int
    end: int
    before: tuple[tuple[int, int], ...]


def blocks_of(row: int, place: int, runs: Iterable[tuple[int, int, int]]) -> Iterator[Block]:
    """Yield the blocks of a tree of tokens.

    Args:
        row: the row of the pass in which it lies.
        place: of its first token there.
        runs: first token, end, and parent of the first (-1: none), in the tree's own numbers, parents first.
    """
    seen: list[tuple[int, int, tuple[tuple[int, int], ...]]] = []  # of each run: first, end, and what it sees
    for first, end, parent in runs:
        before: tuple[tuple[int, int], ...] = ()
        if parent >= 0:
            start, _, known = next(run for run in seen if run[0] <= parent < run[1])
            before = (*known, (start + place, parent + 1 + place))
        seen.append((first, end, before))
        for start in range(first, end, BLOCK):
            own = ((first + place, start + place),) if start > first else ()
            yield Block(row, start + place, min(end, start + BLOCK) + place, (*before, *own))


def attend(
    query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float, kept: list[Tensor] | None = None
) -> Tensor:
    """Return ``softmax(scale Q K') V`` over what each token sees, ``[rows, tokens, heads, size]``; 0 for padding.

    Args:
        query: ``[rows, heads, tokens, size]``.
        key: ``[rows, kv heads, tokens, size]``; ``heads`` is a multiple of ``kv heads``.
        value: like ``key``.
        blocks: of all rows; tokens of no block are padding.
        scale: by which products are multiplied.
        kept: gets the weights of each block, ``[kv heads, share * block, seen]``.
    """
    share = query.shape[1] // key.shape[1]
    rows, heads, tokens, _ = query.shape
    mixed = query.new_zeros(rows, tokens, heads, value.shape[-1])
    for block in blocks:
        own, visible = queries(query, block, share), seen(key, block).transpose(1, 2)
        scores = torch.baddbmm(own.new_zeros(1, 1, 1), own, visible, beta=0, alpha=scale)
        hidden = later(block.end - block.first)
        scores.unflatten(1, (share, -1))[..., block.first - block.end :].masked_fill_(hidden, float("-inf"))
        weights = scores.softmax(-1)
        put(mixed, block, torch.bmm(weights, seen(value, block)), share)
        if kept is not None:
            kept.append(weights)
    return mixed


@lru_cache(maxsize=BLOCK)
def later(size: int) -> Tensor:
    """Return ``[size, size]``: whether a token (column) comes after another (row)."""
    return torch.ones(size, size, dtype=torch.bool).triu_(1)


def queries(query: Tensor, block: Block, share: int) -> Tensor:
    """Return ``[kv heads, share * block, size]`` of ``[rows, heads, tokens, size]``."""
    return query[block.row, :, block.first : block.end].unflatten(0, (-1, share)).flatten(1, 2)


def seen(keys: Tensor, block: Block) -> Tensor:
    """Return what a block sees, in order, ``[kv heads, seen, size]``, of ``[rows, kv heads, tokens, size]``."""
    parts = [keys[block.row, :, first:end] for first, end in (*block.before, (block.first, block.end))]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def put(mixed: Tensor, block: Block, part: Tensor, share: int) -> None:
    """Write ``[kv heads, share * block, size]`` to its place in ``[rows, tokens, heads, size]``."""
    mixed[block.row, block.first : block.end] = part.unflatten(1, (share, -1)).flatten(0, 1).transpose(0, 1)
