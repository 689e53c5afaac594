"""The fast path for agents that train adapters on one frozen base: one base in memory, one batch for all of them.

The matrices of the base are laid out for decoding once, and the trained models then hold views of them, so sampling
needs no copy of the base.  Adapters (LoRA, arXiv 2106.09685) stay apart: each row adds ``B (A x)`` of its own agent to
``W x``.  The ``A`` of all agents are one matrix, and so are the ``B``; a mask keeps each row to its own agent.

A product of ``B A`` and the base would be a second base for each agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from pipeline_lib.memory import LEFT_BESIDE_PACKED, PACKED_FROM, SMALL_MODEL, free_memory
from pipeline_lib.policies.lora import plain_model
from pipeline_lib.rollouts.base_weights import MATRICES, adapters_of, base_weights, linear
from pipeline_lib.rollouts.decoder import Attend, FusedDecoder, unsupported
from pipeline_lib.rollouts.decoder_weights import Weights
from pipeline_lib.rollouts.kernels import PackedKernels, base_kernels, halves, packed, rotate_halves
from pipeline_lib.rollouts.rollout_model import Ints, Prefill

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline_lib.policies.policy import Policy


def base_key(policy: Policy) -> int | None:
    """Return what policies on one frozen base have in common; None if the policy's base cannot be shared."""
    plain = plain_model(policy)
    # A small model's copy with merged adapters costs little and has fewer operations per token.
    frozen = all(not p.requires_grad for name, p in plain.named_parameters() if ".lora_" not in name)
    if not frozen or sum(p.numel() for p in plain.parameters()) <= SMALL_MODEL or unsupported(plain) is not None:
        return None
    return id(plain.get_input_embeddings().weight)


#: Number of rows (tokens) up to which a CPU computes adapters in float32.
FEW_ROWS = 32


@dataclass(slots=True)
class _Delta:
    """Adapters of all agents for one matrix: ``reduce`` is ``[columns, in]``, ``expand`` ``[columns, out]``."""

    reduce: Tensor
    expand: Tensor


class SharedDecoder(FusedDecoder):
    """Decodes for several policies on one base; rows say whose they are."""

    def __init__(self, policies: Sequence[Policy], graphs: bool = True) -> None:
        """Lay out the base, of which the policies' models then hold views, and their adapters.

        Args:
            policies: their place in this sequence is their number; all have the same `base_key`.
            graphs: on CUDA, run steps by captured graphs.
        """
        plain = plain_model(policies[0])
        super().__init__(plain, plain.get_input_embeddings().weight.dtype, graphs)
        self._kernels = base_kernels(self.device, self.dtype, self.shape.eps)
        self._layers = list(plain.model.layers)
        self._base = self._weights = base_weights(plain)
        self._alone = len(policies) == 1
        self._adapter_dtype = torch.float32 if self.device.type == "cpu" else self.dtype
        self._deltas: list[dict[str, _Delta]] = []
        #: By matrix, ``[columns]``: the policy that each column of the adapters belongs to.
        self._column_owners: dict[str, Tensor] = {}
        self._make_deltas(policies)
        self._owners = torch.zeros(0, dtype=torch.int64, device=self.device)  # of the slots
        #: By matrix, ``[rows, columns]``: the columns that count for each row; without entries all do.
        self._masks: dict[str, Tensor] = {}

    def refresh_adapter(self, number: int, policy: Policy) -> None:
        """Copy the present weights of a policy's adapter."""
        self._weights = self._base  # packed matrices have the former ones in them
        adapters = adapters_of(plain_model(policy))
        for layer, deltas in enumerate(self._deltas):
            for matrix, delta in deltas.items():
                column, row = int((self._column_owners[matrix] < number).sum()), 0
                for path in MATRICES[matrix]:
                    end = row + len(linear(self._layers[layer], path).weight)
                    if adapter := adapters.get((layer, path)):
                        rank = len(adapter.reduce)
                        delta.reduce[column : column + rank].copy_(adapter.reduce.detach())
                        delta.expand[column : column + rank, row:end].copy_(adapter.expand.detach().t() * adapter.scale)
                        column += rank
                    row = end

    def prefill(self, prompts: Sequence[tuple[int, ...]], keep: bool, owners: Ints | None = None) -> Prefill:
        """Run prompts; ``owners``: ``[prompts]`` numbers of their policies."""
        numbers = torch.zeros(len(prompts), dtype=torch.int64) if owners is None else torch.from_numpy(owners)
        if len(set(numbers.tolist())) == 1:
            self._mask(numbers[:1])
            return super().prefill(prompts, keep)
        if (tree := self._tree(prompts, owners)) is None:
            self._mask(numbers.repeat_interleave(max(map(len, prompts))))
            return self._prefill_rows(prompts, keep)
        self._mask(numbers[torch.from_numpy(tree.owner)])
        return self._prefill_tree(tree, keep)

    def reserve(self, slots: int, length: int, drawn: int) -> None:
        """Reserve space in the cache."""
        super().reserve(slots, length, drawn)
        if isinstance(self._kernels, PackedKernels) and drawn >= PACKED_FROM:
            matrices = [getattr(layer, name) for layer in self._base.layers for name in MATRICES]
            expand = [delta.expand.to(self.dtype) for deltas in self._deltas for delta in deltas.values()]
            size = sum(matrix.nbytes for matrix in (*matrices, *expand, self._base.head))
            if size + max(size, LEFT_BESIDE_PACKED) < free_memory():
                self._weights = _pack(self._base, self._deltas)
        if len(self._owners) < slots:  # kept otherwise: captured graphs read it at its place
            self._owners = torch.zeros(slots, dtype=torch.int64, device=self.device)

    def free(self) -> None:
        """Give back what a call needs."""
        super().free()
        self._weights = self._base

    def step(self, tokens: Ints, positions: Ints, owners: Ints | None = None) -> Tensor:
        """Append one token per slot; ``owners``: ``[active]`` numbers of their policies."""
        if owners is not None:
            self._owners[: len(owners)].copy_(torch.from_numpy(owners))
        return super().step(tokens, positions)

    def _step(self, ids: Tensor, where: Tensor, length: int) -> Tensor:
        self._mask(self._owners[: len(ids)])
        return super()._step(ids, where, length)

    def _mask(self, owners: Tensor) -> None:
        """Set which columns count for the next rows; one owner holds for all rows."""
        if self._alone:
            return
        owners = owners.to(self.device)[:, None]
        self._masks = {
            name: (owners == columns).to(self._adapter_dtype) for name, columns in self._column_owners.items()
        }

    def _forward(self, ids: Tensor, rotations: Tensor, attend: Attend) -> Tensor:
        """Run all layers; see `FusedDecoder._forward`."""
        ops, rotated, weights = self._kernels, self.shape.heads + self.shape.kv_heads, self._loaded()
        turns = halves(rotations[:, None])
        hidden = functional.embedding(ids, weights.embedding)
        for number, layer in enumerate(weights.layers):
            deltas = self._deltas[number]
            normed = ops.normed(hidden, layer.attention_norm)
            qkv = self._product("qkv", deltas, normed, layer.qkv, layer.qkv_bias)
            states = qkv.view(len(ids), -1, self.shape.head_size)
            heads = states[:, :rotated]
            rotate_halves(heads if layer.heads_norm is None else ops.normed(heads, layer.heads_norm), *turns, heads)
            mixed = attend(number, states)
            hidden = self._product("out", deltas, mixed, layer.out, layer.out_bias, hidden)
            normed = ops.normed(hidden, layer.mlp_norm)
            mlp = self._product("gate_up", deltas, normed, layer.gate_up, layer.gate_up_bias)
            gate, up = mlp.chunk(2, dim=-1)
            inner = functional.silu(gate).mul_(up)
            hidden = self._product("down", deltas, inner, layer.down, layer.down_bias, hidden)
        return hidden

    def _product(
        self,
        matrix: str,
        deltas: dict[str, _Delta],
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Return the product with a matrix and its adapters, added to ``residual`` if there is one."""
        ops, delta = self._kernels, deltas.get(matrix)
        if delta is None:
            return ops.linear(x, weight, bias) if residual is None else ops.linear_add(x, weight, bias, residual)
        # On a CPU, products of few rows take oneDNN two to four times as long in bfloat16 as MKL in float32.
        few = self.device.type == "cpu" and len(x) <= FEW_ROWS
        kind = torch.float32 if few else x.dtype
        reduced = functional.linear(x.to(kind), delta.reduce.to(kind))
        if self._masks:
            reduced *= self._masks[matrix]
        if widened := weight.shape[1] > x.shape[1]:
            x = torch.cat([x, reduced.to(x.dtype)], -1)
        total = ops.linear(x, weight, bias) if residual is None else ops.linear_add(x, weight, bias, residual)
        if widened:
            return total
        expand = delta.expand.to(kind)
        return total.addmm_(reduced, expand) if kind == total.dtype else total.add_(reduced @ expand)

    def _make_deltas(self, policies: Sequence[Policy]) -> None:
        """Allocate the adapters' matrices, and fill them."""
        all_adapters = [adapters_of(plain_model(policy)) for policy in policies]
        for matrix, paths in MATRICES.items():
            owners = [
                number
                for number, adapters in enumerate(all_adapters)
                for path in paths
                if (0, path) in adapters
                for _ in adapters[0, path].reduce
            ]
            if owners:
                self._column_owners[matrix] = torch.tensor(owners, device=self.device)
        for layer in self._layers:
            deltas = {}
            for matrix, columns in self._column_owners.items():
                weights = [linear(layer, path).weight for path in MATRICES[matrix]]
                rows = (weights[0].shape[1], sum(map(len, weights)))
                deltas[matrix] = _Delta(
                    *(torch.zeros(len(columns), size, dtype=self._adapter_dtype, device=self.device) for size in rows)
                )
            self._deltas.append(deltas)
        for number, policy in enumerate(policies):
            self.refresh_adapter(number, policy)


def _pack(base: Weights, deltas: Sequence[dict[str, _Delta]]) -> Weights:
    """Return the same weights with packed matrices (`kernels.packed`).

    To the right of each are its adapters' ``expand``: one product with ``[x, A x]`` has both in it.
    """

    def wide(weight: Tensor, delta: _Delta | None) -> Tensor:
        return weight if delta is None else torch.cat([weight, delta.expand.t().to(weight.dtype)], 1)

    layers = tuple(
        replace(layer, **{name: packed(wide(getattr(layer, name), own.get(name))) for name in MATRICES})
        for layer, own in zip(base.layers, deltas, strict=True)
    )
    return replace(base, layers=layers, head=packed(base.head))
