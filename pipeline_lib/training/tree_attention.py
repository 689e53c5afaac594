"""Attention over trees of tokens with gradients, on the CPU, for the models of transformers.

A pack (`pipeline_lib.training.packing`) holds a prompt once, with the actions behind it as branches; it is computed by
blocks (`pipeline_lib.policies.token_blocks`).  With four actions of 64 tokens on a prompt of 250 that is a third of the
products of a mask over all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from pipeline_lib.policies.kept_products import recorded, replayed
from pipeline_lib.policies.token_blocks import Block, attend, put, queries, seen
from pipeline_lib.policies.trained_model import is_large_here

#: The name of this attention in transformers.
NAME = "symposium_tree"


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
        """Return what `attend` does."""
        if (known := replayed()) is None:
            weights: list[Tensor] = []
            known = attend(query, key, value, blocks, scale, weights), *weights
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
            own = queries(given, block, share)
            _add(of_value, block, torch.bmm(weights.transpose(1, 2), own))
            of_weights = torch.bmm(own, seen(value, block).transpose(1, 2))
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            put(of_query, block, torch.bmm(of_scores, seen(key, block)), share)
            _add(of_key, block, torch.bmm(of_scores.transpose(1, 2), queries(query, block, share)))
        of_query, of_key = of_query.mul_(ctx.scale), of_key.mul_(ctx.scale)
        return of_query.transpose(1, 2), of_key.to(key.dtype), of_value.to(value.dtype), None, None


def _add(total: Tensor, block: Block, part: Tensor) -> None:
    """Add ``[kv heads, seen, size]`` to its places in ``[rows, kv heads, tokens, size]``."""
    place = 0
    for first, end in (*block.before, (block.first, block.end)):
        total[block.row, :, first:end] += part[:, place : place + end - first]
        place += end - first


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
