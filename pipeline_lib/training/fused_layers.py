"""The layers of a Llama-family model below adapters, forward and backward, with buffers that are used again.

The base is frozen, so the backward pass needs the gradients of hidden states and of adapters only.  A graph of
gradients would make new tensors of megabytes in every operation, and on a CPU new memory takes longer than most of
these operations; gradient checkpointing would run all of it twice.  Here one function computes all layers, and another
one their gradients, with the matrices as the decoder joins them.  It keeps what is costly to compute again, up to a
bound; norms and activations are computed again, and so are whole layers beyond the bound.

Sums are float32 where torch's own backward pass has them in the type of the base: the gradient of the residual stream,
and those of keys and values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipeline_lib.memory import KEPT_PRODUCTS, give_back_memory
from pipeline_lib.policies.adapted_linear import AdaptedLinear
from pipeline_lib.policies.lora import plain_model
from pipeline_lib.policies.token_blocks import Block
from pipeline_lib.policies.trained_model import is_large_here
from pipeline_lib.rollouts.base_weights import MATRICES, Adapter, adapters_of, base_weights, linear
from pipeline_lib.rollouts.decoder_weights import Shape, Weights, unsupported
from pipeline_lib.training.buffered_attention import BufferedAttention
from pipeline_lib.training.buffers import Buffers, aligned, pieces
from pipeline_lib.training.tree_attention import NAME

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy

#: Tokens are padded to a multiple of this number, since oneDNN compiles kernels for each number.
TOKENS = 32


@dataclass(slots=True)
class Workspace:
    """The memory of passes; policies on one base use the same, since they are updated one after the other."""

    space: Tensor | None = None  #: where a pass keeps what its backward pass needs, between passes
    buffer: Buffers = field(default_factory=Buffers)


def fused_layers(policy: Policy, workspaces: dict[int, Workspace]) -> FusedLayers | None:
    """Return the layers of a policy's model; None where they are computed as transformers does.

    That is on a GPU, for small models, for models of other architectures, and where more than adapters is trained.
    ``workspaces`` has those of other policies by their base, and gets this one's.
    """
    plain = plain_model(policy)
    frozen = all(not p.requires_grad for name, p in plain.named_parameters() if ".lora_" not in name)
    if not frozen or not is_large_here(policy.model) or unsupported(plain) is not None:
        return None
    if plain.config._attn_implementation not in ("sdpa", NAME):  # as a person asked
        return None
    adapted = [module for layer in plain.model.layers for module in layer.modules() if hasattr(module, "lora_A")]
    if any(not isinstance(module, AdaptedLinear) or len(module.active_adapters) != 1 for module in adapted):
        return None
    checkpoints = bool(getattr(policy.model, "is_gradient_checkpointing", False))
    workspace = workspaces.setdefault(id(plain.get_input_embeddings().weight), Workspace())
    return FusedLayers(plain, KEPT_PRODUCTS if checkpoints else None, workspace)


@dataclass(frozen=True, slots=True)
class _Joined:
    """The adapters of one matrix: ``reduce`` is ``[columns, in]``, ``expand`` ``[columns, out]``, scaled.

    ``scales`` is ``[columns, 1]`` float32.
    """

    reduce: Tensor
    expand: Tensor
    scales: Tensor


@dataclass(frozen=True, slots=True)
class _Part:
    """Where an adapter lies in `_Joined`: its rows of ``reduce``, and its columns of ``expand``."""

    adapter: Adapter
    rows: slice
    columns: slice


@dataclass(frozen=True, slots=True)
class _Norm:
    """``x``, ``[tokens, width]``, times ``factor``, ``[tokens, 1]``, times ``weight``, ``[width]``."""

    x: Tensor
    factor: Tensor
    weight: Tensor


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the backward pass of a layer needs; by tokens, unless another shape stands here.

    Of the last layer ``mixed``, ``middle``, ``mlp`` and what is reduced of them are those of `_Run.rows` alone.
    """

    raw: Tensor | None  #: queries and keys below their norms (Qwen3), ``[heads + kv heads, tokens, size]``
    heads: Tensor  #: ``[heads + 2 kv heads, tokens, size]``: queries (turned and scaled), keys (turned), values
    weights: list[Tensor]  #: of attention, by stretch ``[kv heads, share * stretch, seen]``
    mixed: Tensor  #: attention's result
    middle: Tensor  #: hidden states between attention and MLP
    mlp: Tensor  #: products with gate and up, side by side
    reduced: dict[str, Tensor]  #: by matrix, products with its adapters' ``reduce``


@dataclass(slots=True)
class _Run:
    """One forward pass, until its gradient is computed."""

    attention: BufferedAttention
    turns: tuple[Tensor, Tensor]  #: cosines and sines, float32 ``[tokens, half of size]``
    rows: Tensor  #: the tokens whose result is wanted; some may stand there twice, one of them without gradient
    joined: list[dict[str, _Joined]]  #: by layer, by matrix
    hidden: Tensor  #: ``[layers, tokens, width]``: what went into each layer
    factors: Tensor  #: of the norms before attention and MLP (`_factor`), float32 ``[layers, 2, tokens, 1]``
    kept: list[_Kept]  #: of the first layers
    space: Tensor | None  #: where all of this lies


class FusedLayers:
    """All layers of one model; their matrices are joined, and the model holds views of them."""

    def __init__(self, plain: Any, most: int | None, workspace: Workspace) -> None:
        """Join the matrices.

        Args:
            plain: the model below the adapter's wrapper.
            most: bytes that may be kept of all layers, beyond what goes into each; None: as many as there are.
            workspace: memory, which no other layers use before `free`.
        """
        self._shape = Shape.of(plain.config)
        self._most = most
        self._weights: Weights = base_weights(plain)
        self._rotary: Any = plain.model.rotary_emb
        self._norm: nn.Module = plain.model.norm
        self._adapted: list[AdaptedLinear] = [m for m in plain.model.layers.modules() if isinstance(m, AdaptedLinear)]
        adapters = adapters_of(plain)
        self._parts = [
            {matrix: _parts(layer, number, paths, adapters) for matrix, paths in MATRICES.items()}
            for number, layer in enumerate(plain.model.layers)
        ]
        self._parameters = [
            weight
            for part in itertools.chain.from_iterable(parts for layer in self._parts for parts in layer.values())
            for weight in (part.adapter.reduce, part.adapter.expand)
        ]
        self._workspace = workspace
        self._buffer = workspace.buffer
        #: Within `unchanged`, the adapters of the present weights, by layer and matrix, once they are known.
        self._unchanged: list[dict[str, _Joined]] | None = None

    @property
    def usable(self) -> bool:
        """Return whether the adapters count now, and computation is in the type of the base."""
        kind = self._weights.embedding.dtype
        cast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else kind
        return cast == kind and not any(module.disable_adapters or module.merged for module in self._adapted)

    def __call__(self, ids: Tensor, places: Tensor, blocks: Sequence[Block], wanted: Tensor) -> Tensor:
        """Return the hidden states behind the last norm of the tokens that are wanted, ``[wanted, width]``.

        Args:
            ids: ``[rows, tokens]`` int64.
            places: ``[rows, tokens]``, of each token in its own sequence.
            blocks: what each token sees; tokens of no block (padding) see nothing.
            wanted: int64, places in the flattened rows; the same one may be wanted often.
        """
        more = (0, -ids.numel() % TOKENS)
        embedded = functional.embedding(functional.pad(ids.flatten(), more), self._weights.embedding)
        angles = functional.pad(places.flatten(), more)[:, None].float() * self._rotary.inv_freq.float()
        turns = angles.cos() * self._rotary.attention_scaling, angles.sin() * self._rotary.attention_scaling
        attention = BufferedAttention(self._shape, self._kind, blocks, ids.shape[1], len(embedded))
        rows, own = wanted.unique(return_inverse=True)
        rows = functional.pad(rows, (0, -len(rows) % TOKENS))
        found: Tensor = _Function.apply(
            self, embedded, turns, attention, rows, torch.is_grad_enabled(), *self._parameters
        )
        normed: Tensor = self._norm(found)
        return normed.index_select(0, own)

    def free(self) -> None:
        """Give back all buffers."""
        self._workspace.space = None
        self._buffer.clear()
        give_back_memory()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Join the adapters' weights once for all passes within, in which they do not change."""
        self._unchanged = []
        try:
            yield
        finally:
            self._unchanged = None

    def forward(
        self, embedded: Tensor, turns: tuple[Tensor, Tensor], attention: BufferedAttention, rows: Tensor, keep: bool
    ) -> tuple[Tensor, _Run]:
        """Return the result of the last layer, ``[rows, width]``, and what `backward` needs (if ``keep``)."""
        joined = self._unchanged or [
            {name: _joined(parts, getattr(weights, name)) for name, parts in layer.items() if parts}
            for layer, weights in zip(self._parts, self._weights.layers, strict=True)
        ]
        if self._unchanged is not None:
            self._unchanged = joined
        run = self._prepare(embedded, turns, attention, rows, joined, keep)
        out = embedded.new_empty(len(rows), self._shape.width)
        for number in range(self._shape.depth):
            hidden = run.hidden[number if keep else 0]
            last = number + 1 == self._shape.depth
            target = out if last else run.hidden[number + 1 if keep else 0]
            self._layer(number, hidden, run, target)
        return out, run

    def backward(self, run: _Run, gradient: Tensor) -> list[Tensor]:
        """Return the gradients of the adapters' weights, in the order of the parameters."""
        if run.space is None:
            raise RuntimeError("the gradient of these layers was computed before, and nothing is kept of them")
        found: list[list[Tensor]] = []
        run.attention.lay_out(self._buffer)  # passes in between may have moved the buffers
        total = self._buffer("gradient", gradient.shape, torch.float32).copy_(gradient)
        for number in reversed(range(self._shape.depth)):
            hidden = run.hidden[number]
            if number >= len(run.kept):
                self._layer(number, hidden, run, None)
            total, of_adapters = self._layer_back(number, hidden, run, total)
            found.append(of_adapters)
        self._workspace.space, run.space = run.space, None
        return [tensor for layer in reversed(found) for tensor in layer]

    def _layer(self, number: int, hidden: Tensor, run: _Run, out: Tensor | None) -> None:
        """Compute one layer; without ``out`` only what its backward pass needs."""
        layer, joined, kept = self._weights.layers[number], run.joined[number], self._kept(number, run)
        before_attention, before_mlp = self._norms(number, hidden, run, kept)
        states = self._buffer("states", (len(hidden), len(layer.qkv)), hidden.dtype)
        self._product("qkv", self._normed(before_attention), layer.qkv, layer.qkv_bias, joined, kept, states)
        self._turn(states, layer.heads_norm, run.turns, kept)
        if number + 1 < self._shape.depth:
            run.attention.attend(kept.heads, kept.weights, kept.mixed)
            kept.middle.copy_(hidden)
        else:
            mixed = self._buffer("mixed", (len(hidden), kept.mixed.shape[1]), hidden.dtype)
            run.attention.attend(kept.heads, kept.weights, mixed)
            torch.index_select(mixed, 0, run.rows, out=kept.mixed)
            torch.index_select(hidden, 0, run.rows, out=kept.middle)
        self._product("out", kept.mixed, layer.out, layer.out_bias, joined, kept, kept.middle, add=True)
        self._product("gate_up", self._normed(before_mlp), layer.gate_up, layer.gate_up_bias, joined, kept, kept.mlp)
        inner = self._inner(kept.mlp)
        if out is not None:
            out.copy_(kept.middle)
            self._product("down", inner, layer.down, layer.down_bias, joined, kept, out, add=True)
        elif "down" in joined:
            torch.mm(inner, joined["down"].reduce.t(), out=kept.reduced["down"])

    def _layer_back(self, number: int, hidden: Tensor, run: _Run, total: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the gradient of ``hidden``, and those of the adapters' weights.

        Args:
            number: of the layer.
            hidden: what went into it.
            run: the pass.
            total: gradient of its result, float32, which is overwritten.
        """
        layer, kept = self._weights.layers[number], self._kept(number, run)
        before_attention, before_mlp = self._norms(number, hidden, run, kept)
        found: dict[str, list[Tensor]] = {}

        def back(matrix: str, weight: Tensor, given: Tensor, x: Tensor | _Norm, of_x: Tensor | None = None) -> Tensor:
            if of_x is None:
                of_x = self._buffer("of " + matrix, (len(given), weight.shape[1]), given.dtype)
            found[matrix] = self._product_back(number, matrix, weight, given, x, run, kept, of_x)
            return of_x

        given = self._buffer("given", total.shape, hidden.dtype).copy_(total)
        of_inner = back("down", layer.down, given, self._inner(kept.mlp))
        of_mlp = self._inner_back(kept.mlp, of_inner)
        self._add_norm_back(before_mlp, back("gate_up", layer.gate_up, of_mlp, before_mlp), total)
        given.copy_(total)
        if number + 1 < self._shape.depth:
            back("out", layer.out, given, kept.mixed, run.attention.of_mixed)
        else:
            run.attention.of_mixed.zero_().index_add_(0, run.rows, back("out", layer.out, given, kept.mixed))
            of_rows, total = total, self._buffer("gradient of all", hidden.shape, torch.float32).zero_()
            total.index_add_(0, run.rows, of_rows)
        of_heads = run.attention.back(kept.heads, kept.weights)
        of_states = self._turn_back(of_heads, layer.heads_norm, run.turns, kept)
        self._add_norm_back(before_attention, back("qkv", layer.qkv, of_states, before_attention), total)
        return total, [tensor for matrix in MATRICES for tensor in found[matrix]]

    def _norms(self, number: int, hidden: Tensor, run: _Run, kept: _Kept) -> tuple[_Norm, _Norm]:
        """Return the norms of a layer, before attention and before the MLP."""
        layer, (attention, mlp) = self._weights.layers[number], run.factors[number]
        assert layer.attention_norm is not None and layer.mlp_norm is not None  # the base's norms are apart
        mlp = mlp[: len(kept.middle)]
        return _Norm(hidden, attention, layer.attention_norm), _Norm(kept.middle, mlp, layer.mlp_norm)

    def _product(
        self,
        matrix: str,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        joined: dict[str, _Joined],
        kept: _Kept,
        out: Tensor,
        add: bool = False,
    ) -> None:
        """Write ``W x + b + scale B A x`` to ``out``, or add it."""
        if add:
            out.addmm_(x, weight.t())
        else:
            torch.mm(x, weight.t(), out=out)
        if bias is not None:
            out.add_(bias)
        if matrix in joined:
            reduced = torch.mm(x, joined[matrix].reduce.t(), out=kept.reduced[matrix])
            out.addmm_(reduced, joined[matrix].expand)

    def _product_back(
        self,
        number: int,
        matrix: str,
        weight: Tensor,
        given: Tensor,
        x: Tensor | _Norm,
        run: _Run,
        kept: _Kept,
        out: Tensor,
    ) -> list[Tensor]:
        """Write the gradient of what was multiplied, ``x`` or its norm, to ``out``; return those of the adapters."""
        torch.mm(given, weight, out=out)
        joined = run.joined[number].get(matrix)
        if joined is None:
            return []
        columns = self._buffer("columns of " + matrix, (len(given), len(joined.reduce)), given.dtype)
        through = torch.mm(given, joined.expand.t(), out=columns)
        out.addmm_(through, joined.reduce)
        if isinstance(x, _Norm):  # which is not computed again: its factors go into the smaller matrices
            of_reduce = (torch.mul(through, x.factor).to(x.x.dtype).t() @ x.x).float().mul_(x.weight)
        else:
            of_reduce = (through.t() @ x).float()
        of_expand = (kept.reduced[matrix].t() @ given) * joined.scales
        return [
            gradient
            for part in self._parts[number][matrix]
            for gradient in (of_reduce[part.rows], of_expand[part.rows, part.columns].t())
        ]

    def _normed(self, norm: _Norm) -> Tensor:
        """Return ``x`` divided by its root mean square (arXiv 1910.07467), times the weight; ``factor`` is written."""
        numbers, factor = self._factor(norm.x)
        numbers.mul_(norm.factor.copy_(factor)).mul_(norm.weight)
        return self._buffer("normed", norm.x.shape, norm.x.dtype).copy_(numbers)

    def _factor(self, x: Tensor, name: str = "numbers") -> tuple[Tensor, Tensor]:
        """Return ``x`` as float32, in a buffer, and what it is divided by, inverted, ``[..., 1]``."""
        numbers = self._buffer(name, x.shape, torch.float32).copy_(x)
        length = torch.linalg.vector_norm(numbers, dim=-1, keepdim=True)
        return numbers, length.square_().div_(x.shape[-1]).add_(self._shape.eps).rsqrt_()

    def _add_norm_back(self, norm: _Norm, given: Tensor, total: Tensor) -> None:
        """Add the gradient of ``x`` below its norm to ``total``.

        With y = r x w and r = (mean(x^2) + eps)^-1/2: dx = r w dy - x r^3 mean(x w dy).
        """
        shape = norm.x.shape
        weighted = self._buffer("weighted", shape, torch.float32).copy_(given).mul_(norm.weight)
        numbers = self._buffer("numbers", shape, torch.float32).copy_(norm.x)
        through = self._through(numbers, norm.factor, weighted, "product")
        total.addcmul_(weighted, norm.factor).addcmul_(numbers, through, value=-1)

    def _through(self, numbers: Tensor, factor: Tensor, weighted: Tensor, name: str) -> Tensor:
        """Return ``r^3 mean(x w dy)``, ``[..., 1]``; ``numbers`` is x, ``factor`` r, and ``weighted`` w dy."""
        product = torch.mul(numbers, weighted, out=self._buffer(name, numbers.shape, torch.float32))
        return product.mean(-1, keepdim=True).mul_(factor.pow(3))

    def _inner(self, mlp: Tensor) -> Tensor:
        """Return ``silu(gate) up``; `_inner_back` uses ``silu(gate)`` again."""
        gate, up = mlp.chunk(2, -1)
        opened = torch.ops.aten.silu.out(gate, out=self._buffer("opened", gate.shape, gate.dtype))
        return torch.mul(opened, up, out=self._buffer("inner", gate.shape, gate.dtype))

    def _inner_back(self, mlp: Tensor, given: Tensor) -> Tensor:
        """Return the gradients of gate and up, side by side, after `_inner` of the same."""
        gate, up = mlp.chunk(2, -1)
        found = self._buffer("of mlp", mlp.shape, mlp.dtype)
        of_gate, of_up = found.chunk(2, -1)
        torch.mul(given, self._buffer("opened", gate.shape, gate.dtype), out=of_up)
        torch.ops.aten.silu_backward.grad_input(given.mul_(up), gate, grad_input=of_gate)
        return found

    def _turn(self, states: Tensor, norm: Tensor | None, turns: tuple[Tensor, Tensor], kept: _Kept) -> None:
        """Divide ``states`` into heads: their norm, rotary positions (arXiv 2104.09864), attention's scale."""
        by_head = states.view(len(states), -1, self._shape.head_size).transpose(0, 1)
        rotated = self._shape.heads + self._shape.kv_heads
        if norm is None:
            numbers = self._buffer("heads", (rotated, *by_head.shape[1:]), torch.float32).copy_(by_head[:rotated])
        else:
            assert kept.raw is not None
            numbers, factor = self._factor(kept.raw.copy_(by_head[:rotated]), "heads")
            numbers.mul_(factor).mul_(norm[:, None])
        turned = self._rotate(numbers, turns[0], turns[1])
        turned[: self._shape.heads].mul_(self._scale)
        kept.heads[:rotated].copy_(turned)
        kept.heads[rotated:].copy_(by_head[rotated:])

    def _turn_back(self, of_heads: Tensor, norm: Tensor | None, turns: tuple[Tensor, Tensor], kept: _Kept) -> Tensor:
        """Return the gradient of the states, ``[tokens, heads * size]``."""
        rotated = self._shape.heads + self._shape.kv_heads
        states = self._buffer("of states", (of_heads.shape[1], of_heads.shape[0] * of_heads.shape[2]), self._kind)
        by_head = states.view(len(states), -1, self._shape.head_size).transpose(0, 1)
        of_heads[: self._shape.heads].mul_(self._scale)
        turned = self._rotate(of_heads[:rotated], turns[0], -turns[1])
        if norm is not None:
            assert kept.raw is not None
            numbers, factor = self._factor(kept.raw, "heads")
            through = self._through(numbers, factor, turned.mul_(norm[:, None]), "product of heads")
            turned.mul_(factor).addcmul_(numbers, through, value=-1)
        by_head[:rotated].copy_(turned)
        by_head[rotated:].copy_(of_heads[rotated:])
        return states

    def _rotate(self, numbers: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """Turn number i and number i + size / 2 of the last dimension into each other (Llama's layout)."""
        half = numbers.shape[-1] // 2
        turned = self._buffer("turned", numbers.shape, torch.float32)
        first, second = numbers[..., :half], numbers[..., half:]
        torch.mul(first, cosines, out=turned[..., :half]).addcmul_(second, sines, value=-1)
        torch.mul(second, cosines, out=turned[..., half:]).addcmul_(first, sines)
        return turned

    @property
    def _kind(self) -> torch.dtype:
        return self._weights.embedding.dtype

    @property
    def _scale(self) -> float:
        return float(self._shape.head_size**-0.5)

    def _prepare(
        self,
        embedded: Tensor,
        turns: tuple[Tensor, Tensor],
        attention: BufferedAttention,
        rows: Tensor,
        joined: list[dict[str, _Joined]],
        keep: bool,
    ) -> _Run:
        """Return a pass that has the embeddings in, with space for what it keeps."""
        depth = self._shape.depth if keep else 1
        shapes = self._shapes(len(embedded), attention, joined[0])
        each = sum(map(aligned, shapes))
        room = self._shape.depth if self._most is None else self._most // (each * embedded.element_size())
        room = min(room, depth) if keep else 0
        first = depth * aligned(embedded.shape)
        space, self._workspace.space = self._workspace.space, None
        if space is None or len(space) < first + room * each:
            del space
            give_back_memory()  # what sampling left in gaps has no room for this
            # The longest pass comes first, but another one may keep more; pages that nobody writes cost nothing.
            most = first + (room * each if self._most is None else self._most // embedded.element_size())
            space = torch.empty(most, dtype=embedded.dtype)
        hidden = space[: depth * embedded.numel()].view(depth, *embedded.shape)
        hidden[0].copy_(embedded)
        kept = [self._named(pieces(space[first + n * each :], shapes), attention, joined[0]) for n in range(room)]
        if not keep:
            self._workspace.space = space
        attention.lay_out(self._buffer)
        factors = torch.empty(self._shape.depth, 2, len(embedded), 1)
        return _Run(attention, turns, rows, joined, hidden, factors, kept, space if keep else None)

    def _kept(self, number: int, run: _Run) -> _Kept:
        """Return where a layer keeps what its backward pass needs."""
        if number < len(run.kept):
            kept = run.kept[number]
        else:
            shapes = self._shapes(run.hidden.shape[1], run.attention, run.joined[0])
            buffer = self._buffer("kept", (sum(map(aligned, shapes)),), self._kind)
            kept = self._named(pieces(buffer, shapes), run.attention, run.joined[0])
        if number + 1 < self._shape.depth:
            return kept
        count = len(run.rows)
        reduced = {matrix: one if matrix == "qkv" else one[:count] for matrix, one in kept.reduced.items()}
        return replace(
            kept, mixed=kept.mixed[:count], middle=kept.middle[:count], mlp=kept.mlp[:count], reduced=reduced
        )

    def _shapes(self, tokens: int, attention: BufferedAttention, joined: dict[str, _Joined]) -> list[tuple[int, ...]]:
        """Return the shapes of what a layer keeps, in the order of `_named`."""
        shape, layer = self._shape, self._weights.layers[0]
        raw = [] if layer.heads_norm is None else [(shape.heads + shape.kv_heads, tokens, shape.head_size)]
        return [
            *raw,
            (shape.heads + 2 * shape.kv_heads, tokens, shape.head_size),
            (tokens, shape.heads * shape.head_size),
            (tokens, shape.width),
            (tokens, len(layer.gate_up)),
            *attention.weights,
            *((tokens, len(adapters.reduce)) for adapters in joined.values()),
        ]

    def _named(self, views: Iterator[Tensor], attention: BufferedAttention, joined: dict[str, _Joined]) -> _Kept:
        raw = None if self._weights.layers[0].heads_norm is None else next(views)
        heads, mixed, middle, mlp = itertools.islice(views, 4)
        weights = list(itertools.islice(views, len(attention.weights)))
        return _Kept(raw, heads, weights, mixed, middle, mlp, dict(zip(joined, views, strict=True)))


class _Function(torch.autograd.Function):
    """All layers as one operation of torch."""

    @staticmethod
    def forward(
        ctx: Any,
        layers: FusedLayers,
        embedded: Tensor,
        turns: tuple[Tensor, Tensor],
        attention: BufferedAttention,
        rows: Tensor,
        keep: bool,
        *weights: Tensor,
    ) -> Tensor:
        """Return hidden states of ``rows`` behind the last layer; ``weights`` are those whose gradient is asked for."""
        with torch.autocast("cpu", enabled=False):
            out, run = layers.forward(embedded, turns, attention, rows, keep)
        ctx.layers, ctx.run = layers, run
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the weights."""
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            return (None, None, None, None, None, None, *ctx.layers.backward(ctx.run, gradient))


def _parts(
    layer: nn.Module, number: int, paths: Sequence[str], adapters: dict[tuple[int, str], Adapter]
) -> list[_Part]:
    """Return where the adapters of a matrix lie."""
    found, row, column = [], 0, 0
    for path in paths:
        end = column + len(linear(layer, path).weight)
        if adapter := adapters.get((number, path)):
            rank = len(adapter.reduce)
            found.append(_Part(adapter, slice(row, row + rank), slice(column, end)))
            row += rank
        column = end
    return found


def _joined(parts: Sequence[_Part], weight: Tensor) -> _Joined:
    """Return the present weights of a matrix's adapters side by side."""
    reduce = torch.cat([part.adapter.reduce for part in parts]).to(weight.dtype)
    expand = torch.zeros(len(reduce), len(weight), dtype=weight.dtype)
    for part in parts:
        expand[part.rows, part.columns] = part.adapter.expand.t() * part.adapter.scale
    scales = [part.adapter.scale for part in parts for _ in range(len(part.adapter.reduce))]
    return _Joined(reduce, expand, torch.tensor(scales)[:, None])
