"""The fast path: a forward pass for the Llama family (Llama, Qwen2, Qwen3) with a static key/value cache.

Its logits equal those of transformers' forward pass up to rounding, in fp32 and bf16, on CPU and CUDA.  Keys and values
are written and read in place.  Nothing depends on padding: prompts are padded on the right, and a mask by length hides
the positions after them.

Not supported: sliding windows, rotary embeddings that depend on the length, quantised weights (`unsupported`); such
models use `generic_model`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from pipeline_lib.policies.token_blocks import BLOCK
from pipeline_lib.policies.token_blocks import attend as attend_in_blocks
from pipeline_lib.policies.trained_model import is_large_here
from pipeline_lib.rollouts.cuda_graphs import StepGraphs
from pipeline_lib.rollouts.decoder_weights import Shape, Weights, fuse, rotations, unsupported
from pipeline_lib.rollouts.kernels import PLAIN_TOKENS, causal_attention, kernels_for, plain_attention, rotate
from pipeline_lib.rollouts.prefix_tree import PrefixTree
from pipeline_lib.rollouts.rollout_model import Ints, Prefill, RolloutModel
from pipeline_lib.rollouts.shared_prompts import KeptPrompts, SharedPrompts
from pipeline_lib.rollouts.slot_cache import SlotCache

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


def _kept(cells: Tensor | None, lengths: Iterable[int]) -> KeptPrompts | None:
    return None if cells is None else KeptPrompts(cells, np.array(list(lengths)))


__all__ = ["FusedDecoder", "unsupported"]

#: If kernels are compiled for each size, the number of rows is a multiple of this, and of more where there are many.
ROWS_GRAIN = 8
#: A block of a large model's tree takes as long as so many further tokens.
BLOCK_TOKENS = 8
Attend = Callable[[int, "Tensor"], "Tensor"]


class FusedDecoder(RolloutModel):
    """Rollout copy of a Llama-family model with fused weights and a static cache."""

    refills = True

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype, graphs: bool = True) -> None:
        """Make an empty copy with the shapes of ``model``; `refresh` fills it.

        Args:
            model: the plain model.
            dtype: type of the copy's weights.
            graphs: on CUDA, run steps by captured graphs.
        """
        self.shape = Shape.of(model.config)
        self.context, self.vocabulary = self.shape.context, self.shape.vocabulary
        self.device, self.dtype = model.device, dtype
        self._kernels = kernels_for(self.device, dtype, self.shape.eps, (self.shape.width, self.shape.head_size))
        self._rotations = rotations(model, self.device)
        self._cache = SlotCache(self.shape, self.device, dtype)
        self._prompts = SharedPrompts() if self.device.type == "cpu" and not self._cache.turned else None
        self._large = is_large_here(model)
        self.bytes_per_token = self._cache.bytes_per_token
        self._weights: Weights | None = None
        self._graphs = StepGraphs(self._step) if graphs and self.device.type == "cuda" else None

    def refresh(self, state: Mapping[str, Tensor]) -> None:
        """Fuse the weights of ``state`` (a plain model's ``state_dict``)."""
        ops = self._kernels
        self._weights = fuse(state, self.shape, self.device, self.dtype, ops.fold, ops.by_column, self._weights)

    def prefill(self, prompts: Sequence[tuple[int, ...]], keep: bool, owners: Ints | None = None) -> Prefill:
        """Run prompts: as one tree if that is faster, else in separate rows."""
        tree = self._tree(prompts)
        return self._prefill_rows(prompts, keep) if tree is None else self._prefill_tree(tree, keep)

    def _tree(self, prompts: Sequence[tuple[int, ...]], policies: Ints | None = None) -> PrefixTree | None:
        """Return the tree of prompts; None if rows are faster.

        A large model takes long for every token, and so for padding.  Many short prompts without a common beginning
        would be as many blocks.
        """
        if not self._large:
            return PrefixTree.small(prompts, PLAIN_TOKENS) if policies is None else None
        tree, longest = PrefixTree.of(prompts, policies), max(map(len, prompts))
        nodes = len(tree.ids)
        in_rows = nodes > PLAIN_TOKENS and nodes + BLOCK_TOKENS * len(tree.blocks()) >= len(prompts) * longest
        return None if in_rows and longest <= BLOCK else tree

    def _prefill_rows(self, prompts: Sequence[tuple[int, ...]], keep: bool) -> Prefill:
        """Run right-padded prompts; causal attention hides the padding."""
        shape, given, needed = self.shape, len(prompts), max(len(p) for p in prompts)
        count, longest = self._rows(given), self._rows(needed, self.context)
        ids = np.zeros((count, longest), dtype=np.int64)
        for row, prompt in zip(ids, prompts, strict=False):
            row[: len(prompt)] = prompt
        last = np.arange(count) * longest
        last[:given] += [len(p) - 1 for p in prompts]
        kept_shape = (shape.depth, 2, given, shape.kv_heads, needed, shape.head_size)
        kept = torch.empty(kept_shape, dtype=self.dtype, device=self.device) if keep else None

        def attend(layer: int, states: Tensor) -> Tensor:
            states = states.view(count, longest, -1, shape.head_size).transpose(1, 2)  # [prompts, heads, tokens, size]
            query, key, value = states.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
            if kept is not None:
                kept[layer, 0], kept[layer, 1] = key[:given, :, :needed], value[:given, :, :needed]
            return causal_attention(query, key, value).transpose(1, 2).reshape(count * longest, -1)

        tokens = torch.from_numpy(ids.ravel()).to(self.device)
        hidden = self._forward(tokens, self._rotations[:longest].repeat(count, 1), attend)
        logits = self._logits(hidden[torch.from_numpy(last).to(self.device)])
        return Prefill(logits[:given], _kept(kept, map(len, prompts)))

    def _prefill_tree(self, tree: PrefixTree, keep: bool) -> Prefill:
        """Run every shared prefix once: each node of the tree attends to its ancestors and itself."""
        shape, given, needed = self.shape, *tree.paths.shape
        count = self._rows(len(tree.ids))
        ids, depth = (np.pad(array, (0, count - len(tree.ids))) for array in (tree.ids, tree.depth))
        blocks = tree.blocks() if count > PLAIN_TOKENS else None
        hidden = None if blocks else torch.from_numpy(~tree.seen(count)).to(self.device)
        paths, last, where = (torch.from_numpy(x).to(self.device) for x in (tree.paths.ravel(), tree.last, depth))
        kept_shape = (shape.depth, 2, given, shape.kv_heads, needed, shape.head_size)
        kept = torch.empty(kept_shape, dtype=self.dtype, device=self.device) if keep else None

        def attend(layer: int, states: Tensor) -> Tensor:
            states = states.view(count, -1, shape.head_size)
            if kept is not None:
                cells = states[:, shape.heads :].index_select(0, paths)
                kept[layer] = cells.view(given, needed, 2, shape.kv_heads, -1).permute(2, 0, 3, 1, 4)
            query, key, value = states.transpose(0, 1)[None].split([shape.heads, shape.kv_heads, shape.kv_heads], 1)
            if blocks:
                return attend_in_blocks(query, key, value, blocks, shape.head_size**-0.5).view(count, -1)
            assert hidden is not None
            return plain_attention(query, key, value, hidden)[0].transpose(0, 1).reshape(count, -1)

        tokens = torch.from_numpy(ids).to(self.device)
        logits = self._logits(
            self._forward(tokens, self._rotations.index_select(0, where), attend).index_select(0, last)
        )
        return Prefill(logits, _kept(kept, (tree.depth[tree.last] + 1).tolist()))

    def reserve(self, slots: int, length: int, drawn: int) -> None:
        self._cache.reserve(self._rows(slots), drawn if self._prompts else length)
        if self._prompts:
            self._prompts.clear(slots)

    def free(self) -> None:
        """Give back a large cache on the CPU."""
        if self._cache.is_large:
            self._cache.free()
        if self._prompts:
            self._prompts.clear(0)

    def place(self, prefill: Prefill, rows: Ints, slots: Ints) -> None:
        if self._prompts:
            self._prompts.place(prefill.cache, rows, slots)
        else:
            self._cache.place(prefill.cache.cells, rows, slots)

    def move(self, sources: Ints, targets: Ints, count: int) -> None:
        self._cache.move(sources, targets)
        if self._prompts:
            self._prompts.move(sources, targets, count)

    def step(self, tokens: Ints, positions: Ints, owners: Ints | None = None) -> Tensor:
        """Append one token per slot; every slot attends over its own length."""
        cache, active = self._cache, len(tokens)
        places = positions - self._prompts.lengths[:active] if self._prompts else positions
        needed = int(places.max()) + 1
        cache.lengthen(needed, active)
        if spare := self._rows(active, cache.slots) - active:  # unused slots
            tokens, positions = np.pad(tokens, (0, spare)), np.pad(positions, (0, spare))
        ids, where = torch.from_numpy(tokens).to(self.device), torch.from_numpy(positions).to(self.device)
        if self._graphs is not None:
            return self._graphs(ids, where, needed, cache.slots, cache.longest, cache.layout)
        return self._step(ids, where, cache.length(needed))[:active]

    def _rows(self, needed: int, most: int = sys.maxsize) -> int:
        """Round a number of rows up to one of few sizes, by an eighth at most.

        oneDNN compiles a kernel for each new size (`KEPT_KERNELS`), which takes as long as a step or two.
        """
        if not self._kernels.compiles:
            return needed
        grain = ROWS_GRAIN
        while 8 * grain < needed:
            grain *= 2
        return min(-(-needed // grain) * grain, most)

    def _step(self, ids: Tensor, where: Tensor, length: int) -> Tensor:
        """Run a step on the device, attending over the first ``length`` positions of the slots."""
        shape, cache, active, share = self.shape, self._cache, len(ids), self.shape.heads // self.shape.kv_heads
        scale, rows = shape.head_size**-0.5, (active, shape.kv_heads)
        inside = where - torch.from_numpy(self._prompts.lengths[:active]) if self._prompts else where
        places, mask = cache.places(inside), cache.mask(inside, length)

        def attend(layer: int, states: Tensor) -> Tensor:
            cache.write(layer, places, states[:, shape.heads :])
            keys, values = cache.read(layer, active, length)
            query = states[:, : shape.heads].reshape(-1, share, shape.head_size)
            if self._prompts:  # the heads that share keys are the tokens of one query
                query, keys, values, hidden = (
                    part.unflatten(0, rows) for part in (query, keys.transpose(1, 2), values, mask)
                )
                return self._prompts.attend(layer, query, keys, values, hidden).reshape(active, -1)
            weights = torch.baddbmm(mask, query, keys, alpha=scale)  # [rows * kv heads, share, length]
            weights = weights.softmax(-1, dtype=torch.float32).to(self.dtype)
            return torch.bmm(weights, values).view(active, -1)

        return self._logits(self._forward(ids, self._rotations.index_select(0, where), attend))

    def _forward(self, ids: Tensor, rotations: Tensor, attend: Attend) -> Tensor:
        """Run all layers on ``[tokens]`` and return ``[tokens, width]``.

        Args:
            ids: token ids.
            rotations: ``[tokens, head size / 2]`` complex64, by which each token's queries and keys are rotated (RoPE).
            attend: attention; takes the layer's number and ``[tokens, heads + 2 kv heads, head size]``.
        """
        ops, rotated, rotations = self._kernels, self.shape.heads + self.shape.kv_heads, rotations[:, None]
        weights = self._loaded()
        hidden = functional.embedding(ids, weights.embedding)
        for number, layer in enumerate(weights.layers):
            qkv = ops.linear(ops.normed(hidden, layer.attention_norm), layer.qkv, layer.qkv_bias)
            states = qkv.view(len(ids), -1, self.shape.head_size)
            heads = states[:, :rotated]
            normed = heads if layer.heads_norm is None else ops.normed(heads, layer.heads_norm)
            rotate(normed, rotations, heads)
            hidden = ops.linear_add(attend(number, states), layer.out, layer.out_bias, hidden)
            mlp = ops.linear(ops.normed(hidden, layer.mlp_norm), layer.gate_up, layer.gate_up_bias)
            gate, up = mlp.chunk(2, dim=-1)
            hidden = ops.linear_add(functional.silu(gate).mul_(up), layer.down, layer.down_bias, hidden)
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        """Return ``[tokens, vocabulary]`` fp32."""
        weights = self._loaded()
        return self._kernels.linear(self._kernels.normed(hidden, weights.norm), weights.head, None).float()

    def _loaded(self) -> Weights:
        assert self._weights is not None, "refresh comes first"
        return self._weights
