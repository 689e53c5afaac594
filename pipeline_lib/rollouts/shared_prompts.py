"""Attention of slots to their prompts, whose keys and values are read once for all slots that continue a prompt.

Actions of a group have the prompt in common, and most of what a step's attention reads are the prompts.  So a slot
holds drawn tokens only; its prompt stays where prefill put it.  All slots of a prompt attend to it as the tokens of
one query.

For bfloat16 on the CPU.  There are two ways, equal up to rounding: one softmax over the products with prompt and drawn
tokens; or torch's fused attention over each, put together by the logarithms of their sums of weights (as in
arXiv 2402.05099).  The fused kernel takes no longer on Intel's processors only, where small products of bfloat16 copy
every slice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline_lib.processor import on_intel
from pipeline_lib.rollouts.rollout_model import Ints


@dataclass(frozen=True, slots=True)
class KeptPrompts:
    """Keys and values of prompts that went through the model together."""

    cells: Tensor  #: ``[layers, 2 (keys, values), prompts, kv heads, longest, head size]``
    lengths: Ints  #: ``[prompts]`` number of tokens


@dataclass(slots=True)
class _Part:
    """Prompts of one prefill, and the slots that continue them."""

    prompts: KeptPrompts
    hidden: Tensor | None  #: ``[prompts, 1, 1, longest]``: 0, and -inf behind the end; None if all end there
    numbers: Tensor  #: ``[prompts * most]`` slots by prompt; prompts with fewer than ``most`` repeat slot 0
    most: int  #: slots of one prompt


class SharedPrompts:
    """The prompts of slots 0..: which prefill, and which of its prompts, each slot continues."""

    def __init__(self) -> None:
        self.clear(0)

    def clear(self, slots: int) -> None:
        """Forget all prompts; there are ``slots`` slots from now on."""
        self._prefills: list[KeptPrompts] = []
        self._prefill_of = np.zeros(slots, dtype=np.int64)
        self._row_of = np.zeros(slots, dtype=np.int64)
        self.lengths = np.zeros(slots, dtype=np.int64)  # of each slot's prompt
        self._parts: list[_Part] | None = None
        self._back = torch.zeros(0, dtype=torch.int64)

    def place(self, prompts: KeptPrompts, rows: Ints, slots: Ints) -> None:
        """Let ``slots`` continue prompts ``rows`` (same length)."""
        known = [number for number, one in enumerate(self._prefills) if one.cells is prompts.cells]
        if not known:
            self._prefills.append(prompts)
        self._prefill_of[slots] = known[0] if known else len(self._prefills) - 1
        self._row_of[slots] = rows
        self.lengths[slots] = prompts.lengths[rows]
        self._parts = None

    def move(self, sources: Ints, targets: Ints, count: int) -> None:
        """Let ``targets`` continue the prompts of ``sources``; then slots 0..count-1 are in use."""
        for table in (self._prefill_of, self._row_of, self.lengths):
            table[targets] = table[sources]
        if len(targets) or self._parts is None or len(self._back) != count:
            self._parts = None

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
        """Return each slot's attention over its prompt and its drawn tokens, ``[active, kv heads, share, head size]``.

        Args:
            layer: number of the layer.
            query: ``[active, kv heads, share, head size]``.
            keys: of the drawn tokens, ``[active, kv heads, length, head size]``.
            values: like ``keys``.
            hidden: ``[active, kv heads, 1, length]``: 0 for tokens that are seen, else -inf.
        """
        if self._parts is None or len(self._back) != len(query):
            self._arrange(len(query))
        if on_intel():
            return together(self._attend_to_prompts(layer, query), attention(query, keys, values, hidden))
        return self._attend_at_once(layer, query, keys, values, hidden)

    def _attend_at_once(self, layer: int, query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
        """Attend with one softmax over prompt and drawn tokens."""
        assert self._parts is not None
        query = query * query.shape[-1] ** -0.5
        drawn = (query @ keys.transpose(2, 3)).add_(hidden)
        mixed, weights = [], []
        for part in self._parts:
            (prompts, kv_heads, length, size), by_prompt = part.prompts.cells.shape[2:], (-1, part.most)
            rows = query.index_select(0, part.numbers).unflatten(0, by_prompt).transpose(1, 2).flatten(2, 3)
            key, value = part.prompts.cells[layer]
            scores = query.new_empty(prompts, kv_heads, part.most, query.shape[2], length + drawn.shape[3])
            products = (rows @ key.transpose(2, 3)).view(*scores.shape[:-1], length)
            if part.hidden is None:
                scores[..., :length] = products
            else:
                torch.add(products, part.hidden[:, :, None], out=scores[..., :length])
            scores[..., length:] = drawn.index_select(0, part.numbers).unflatten(0, by_prompt).transpose(1, 2)
            found = scores.softmax(-1)
            over_prompt = found[..., :length].flatten(2, 3) @ value
            mixed.append(over_prompt.view(*scores.shape[:-1], size).transpose(1, 2).flatten(0, 1))
            weights.append(found[..., length:].transpose(1, 2).flatten(0, 1))
        over_prompts, own = (x[0] if len(x) == 1 else torch.cat(x) for x in (mixed, weights))
        return (own.index_select(0, self._back) @ values).add_(over_prompts.index_select(0, self._back))

    def _attend_to_prompts(self, layer: int, query: Tensor) -> tuple[Tensor, Tensor]:
        """Return each slot's attention over its prompt, and the logarithm of its sum of weights.

        Returns:
            ``[active, kv heads, share, head size]``, and float32 ``[active, kv heads, share]``.
        """
        assert self._parts is not None
        mixed, totals = [], []
        for part in self._parts:
            by_prompt = (-1, part.most)
            rows = query.index_select(0, part.numbers).unflatten(0, by_prompt).transpose(1, 2)
            keys, values = part.prompts.cells[layer]
            found, total = attention(rows.flatten(2, 3), keys, values, part.hidden)
            share = (part.most, query.shape[2])
            mixed.append(found.unflatten(2, share).transpose(1, 2).flatten(0, 1))
            totals.append(total.unflatten(2, share).transpose(1, 2).flatten(0, 1))
        return torch.cat(mixed).index_select(0, self._back), torch.cat(totals).index_select(0, self._back)

    def _arrange(self, active: int) -> None:
        """Find the slots of each prompt, and forget prompts that no slot continues."""
        parts, back, start = [], np.zeros(active, dtype=np.int64), 0
        kept: list[KeptPrompts] = []
        for number, prompts in enumerate(self._prefills):
            slots = np.flatnonzero(self._prefill_of[:active] == number)
            if not len(slots):
                continue
            live, rows = np.unique(self._row_of[slots], return_inverse=True)
            if 2 * len(live) <= len(prompts.lengths):  # the rest is not worth its memory
                cells = prompts.cells.index_select(2, torch.from_numpy(live))
                prompts = KeptPrompts(cells, prompts.lengths[live])
            else:
                rows = self._row_of[slots]
            self._row_of[slots], self._prefill_of[slots] = rows, len(kept)
            kept.append(prompts)
            counts = np.bincount(rows, minlength=len(prompts.lengths))
            most = int(counts.max())
            order = np.argsort(rows, kind="stable")
            places = rows[order] * most + np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows[order]]
            numbers = np.zeros(len(prompts.lengths) * most, dtype=np.int64)
            numbers[places] = slots[order]
            back[slots[order]] = start + places
            start += len(numbers)
            parts.append(_Part(prompts, _hidden(prompts), torch.from_numpy(numbers), most))
        self._prefills, self._parts, self._back = kept, parts, torch.from_numpy(back)


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute attention with torch's fused kernel for the CPU.

    Args:
        query: ``[rows, kv heads, tokens, head size]``.
        key: ``[rows, kv heads, length, head size]``.
        value: like ``key``.
        mask: ``[rows, 1 or kv heads, 1, length]``, added to the products; None for zeros.

    Returns:
        Like ``query``; and the logarithm of each token's sum of weights, float32 ``[rows, kv heads, tokens]``.
    """
    mixed, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, attn_mask=mask)
    return mixed, total


def together(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> Tensor:
    """Return attention over two parts from what `attention` returns for each."""
    share = torch.sigmoid(first[1] - second[1]).unsqueeze(-1)
    return torch.lerp(second[0].float(), first[0].float(), share).to(first[0].dtype)


def _hidden(prompts: KeptPrompts) -> Tensor | None:
    longest = prompts.cells.shape[4]
    behind = torch.from_numpy(np.arange(longest) >= prompts.lengths[:, None])[:, None, None]
    if not behind.any():
        return None
    return torch.zeros(behind.shape, dtype=prompts.cells.dtype).masked_fill_(behind, float("-inf"))
