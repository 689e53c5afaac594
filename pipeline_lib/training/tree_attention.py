"""Attention over trees of tokens on the CPU, which reads only what each token sees.

A pack (`pipeline_lib.training.packing`) holds a prompt once, with the actions behind it as branches.  A mask over all
pairs of its tokens hides most of them, and torch's fused kernel computes them nevertheless.  Here the tokens of a
stretch are one block: they attend to the stretches in front of them as a whole, and to each other causally.  With four
actions of 64 tokens on a prompt of 250 that is a third of the products.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from pipeline_lib.policies.kept_products import recorded, replayed
from pipeline_lib.policies.trained_model import is_large_here

#: The name of this attention in transformers.
NAME = "symposium_tree"
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


def attend_to_blocks(model: PreTrainedModel) -> None:
    """Let a large model on the CPU that has torch's fused attention use blocks where a mask names them."""
    if is_large_here(model) and getattr(model.config, "_attn_implementation", None) == "sdpa":
        model.set_attn_implementation(NAME)


def with_blocks(mask: Tensor, blocks: Sequence[Block] | None) -> Tensor:
    """Name the blocks of a mask, ``[rows, 1, tokens, tokens]``; attention that does not know them reads the mask."""
    mask.blocks = blocks  # type: ignore[attr-defined]
    return mask


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **given: Any
) -> tuple[Tensor, None]:
    """Compute attention as transformers asks for it: by blocks, or by torch's kernel where there are none."""
    blocks = getattr(attention_mask, "blocks", None)
    if not blocks or given.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **given)
    scale = given.get("scaling") or query.shape[-1] ** -0.5
    with torch.autocast(query.device.type, enabled=False):
        return TreeAttention.apply(query.to(value.dtype), key.to(value.dtype), value, blocks, scale), None


class TreeAttention(torch.autograd.Function):
    """``softmax(scale Q K') V`` over what each token sees."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float) -> Tensor:
        """Return ``[rows, tokens, heads, size]``, 0 for tokens of no block (padding).

        Args:
            ctx: torch's.
            query: ``[rows, heads, tokens, size]``.
            key: ``[rows, kv heads, tokens, size]``; ``heads`` is a multiple of ``kv heads``.
            value: like ``key``.
            blocks: of all rows.
            scale: by which products are multiplied.
        """
        if (known := replayed()) is None:
            known = _attend(query, key, value, blocks, scale)
            recorded(known)
        mixed, *kept = known
        ctx.save_for_backward(query, key, value, *kept)
        ctx.blocks, ctx.scale = blocks, scale
        return mixed

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of queries, keys and values; sums over blocks are float32."""
        query, key, value, *kept = ctx.saved_tensors
        share = query.shape[1] // key.shape[1]
        given = gradient.transpose(1, 2)
        of_query = torch.zeros_like(query.transpose(1, 2), memory_format=torch.contiguous_format)
        of_key, of_value = (torch.zeros(x.shape, device=x.device) for x in (key, value))
        for block, weights in zip(ctx.blocks, kept, strict=True):
            own = _queries(given, block, share)
            _add(of_value, block, torch.bmm(weights.transpose(1, 2), own))
            of_weights = torch.bmm(own, _seen(value, block).transpose(1, 2))
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            _put(of_query, block, torch.bmm(of_scores, _seen(key, block)), share)
            _add(of_key, block, torch.bmm(of_scores.transpose(1, 2), _queries(query, block, share)))
        of_query, of_key = of_query.mul_(ctx.scale), of_key.mul_(ctx.scale)
        return of_query.transpose(1, 2), of_key.to(key.dtype), of_value.to(value.dtype), None, None


def _attend(query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float) -> tuple[Tensor, ...]:
    """Return what `TreeAttention` returns, and the weights of each block, ``[kv heads, share * block, seen]``."""
    share = query.shape[1] // key.shape[1]
    rows, heads, tokens, _ = query.shape
    mixed = query.new_zeros(rows, tokens, heads, value.shape[-1])
    kept = []
    for block in blocks:
        own, seen = _queries(query, block, share), _seen(key, block).transpose(1, 2)
        scores = torch.baddbmm(own.new_zeros(1, 1, 1), own, seen, beta=0, alpha=scale)
        hidden = later(block.end - block.first)
        scores.unflatten(1, (share, -1))[..., block.first - block.end :].masked_fill_(hidden, float("-inf"))
        weights = scores.softmax(-1)
        _put(mixed, block, torch.bmm(weights, _seen(value, block)), share)
        kept.append(weights)
    return mixed, *kept


@lru_cache(maxsize=BLOCK)
def later(size: int) -> Tensor:
    """Return ``[size, size]``: whether a token (column) comes after another (row)."""
    return torch.ones(size, size, dtype=torch.bool).triu_(1)


def _queries(query: Tensor, block: Block, share: int) -> Tensor:
    """Return ``[kv heads, share * block, size]`` of ``[rows, heads, tokens, size]``."""
    return query[block.row, :, block.first : block.end].unflatten(0, (-1, share)).flatten(1, 2)


def _seen(keys: Tensor, block: Block) -> Tensor:
    """Return what a block sees, in order, ``[kv heads, seen, size]``, of ``[rows, kv heads, tokens, size]``."""
    return torch.cat([keys[block.row, :, first:end] for first, end in (*block.before, (block.first, block.end))], 1)


def _put(mixed: Tensor, block: Block, part: Tensor, share: int) -> None:
    """Write ``[kv heads, share * block, size]`` to its place in ``[rows, tokens, heads, size]``."""
    mixed[block.row, block.first : block.end] = part.unflatten(1, (share, -1)).flatten(0, 1).transpose(0, 1)


def _add(total: Tensor, block: Block, part: Tensor) -> None:
    """Add ``[kv heads, seen, size]`` to its places in ``[rows, kv heads, tokens, size]``."""
    place = 0
    for first, end in (*block.before, (block.first, block.end)):
        total[block.row, :, first:end] += part[:, place : place + end - first]
        place += end - first


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
