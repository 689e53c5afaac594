"""Seconds that the matrix products of a model take by themselves: the limit of sampling and of an update.

Counted are the products with the base's matrices, those with adapters (LoRA on every linear layer), and those of
attention over the tokens that are seen; nothing else (norms, activations, softmax, drawing, optimiser).  They run in
the chosen type on all cores, in the order of the model, and every layer has matrices, keys and values of its own: so
the processor's cache holds of them what it would hold in the model.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from torch import Tensor

from pipeline_lib.policies.sizes import Sizes
from pipeline_lib.rollouts.kernels import PackedKernels, base_kernels, packed

#: Linear layers of one input: one product, and so are their adapters.
JOINED = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))

Operation = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens that go through the layers, and pairs of a token and one that it sees (itself included)."""

    tokens: float
    pairs: float

    @classmethod
    def of(cls, sequences: Iterable[Sequence[int]]) -> Work:
        """Return the work of reading sequences, with common beginnings read once."""
        beginnings = {tuple(one[:end]) for one in sequences for end in range(1, len(one) + 1)}
        return cls(len(beginnings), sum(map(len, beginnings)))


@dataclass(frozen=True, slots=True)
class Pass:
    """The products of one pass through the model, in order, and those with the base's matrices by themselves."""

    every: Sequence[Operation]
    base: Sequence[Operation]

    @torch.inference_mode()
    def seconds(self) -> dict[str, float]:
        """Return the seconds of ``all`` and of the ``base``."""
        return {"all": _seconds(self.every), "base": _seconds(self.base)}


@dataclass(frozen=True, slots=True)
class _Attention:
    """So many queries of each sequence and key head, over so many tokens that they see."""

    sequences: int
    queries: int
    seen: int


class Products:
    """The products of one model."""

    def __init__(self, sizes: Sizes, dtype: torch.dtype, rank: int) -> None:
        """Make matrices of random numbers."""
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self._sizes, self._dtype = sizes, dtype
        self._size = sizes.query // sizes.heads
        self._kv_heads = sizes.kv // self._size
        self._share = sizes.heads // self._kv_heads
        self._base, self._reduce, self._expand = list[Tensor](), list[Tensor](), list[Tensor]()
        for names in JOINED * sizes.depth:
            into, out = sizes.linear[names[0]][0][0], sum(sizes.linear[name][0][1] for name in names)
            self._base.append(self._random(out, into))
            self._reduce.append(self._random(rank * len(names), into))
            self._expand.append(self._random(out, rank * len(names)))
        self._head = self._random(sizes.vocabulary, sizes.width)
        self._kernels = base_kernels(torch.device("cpu"), dtype, 1e-5)
        lay_out = packed if isinstance(self._kernels, PackedKernels) else Tensor.contiguous
        self._laid_out = [lay_out(one) for one in (*self._base, self._head)]  # as our decoder has them

    def read(self, work: Work) -> Pass:
        """Return the products of reading prompts."""
        base = self._linear(round(work.tokens))
        return Pass(self._forward(round(work.tokens), 1, base, [self._over(work)]), base)

    def step(self, prompts: int, agents: int, group: int, length: int, drawn: int) -> Pass:
        """Return the products of drawing a token of every action.

        Args:
            prompts: their number, of all agents together.
            agents: that share the base.
            group: actions of each prompt.
            length: tokens of a prompt.
            drawn: tokens of an action so far.
        """
        rows = prompts * group
        base = [*self._linear(rows), self._logits(rows)]
        # All actions of a prompt read its keys and values at once, and each its own.
        attention = [_Attention(prompts, group * self._share, length), _Attention(rows, self._share, drawn)]
        return Pass(self._forward(rows, agents, base, attention), base)

    def update(self, work: Work, predicted: int) -> Pass:
        """Return the products of a forward and a backward pass; ``predicted`` tokens go through the head."""
        tokens, attention = round(work.tokens), self._over(work)
        given, x = (self._by_size(tokens, {one.shape[side] for one in self._base}) for side in (0, 1))
        reduced, through = (self._by_size(tokens, map(len, self._reduce)) for _ in range(2))
        logits, of_hidden = (self._random(predicted, size) for size in (self._sizes.vocabulary, self._sizes.width))
        forward = [*self._linear(tokens), self._logits(predicted)]
        order = self._forward(tokens, 1, forward, [attention])
        of_head = partial(torch.mm, logits, self._head, out=of_hidden)
        back = [partial(torch.mm, given[len(one)], one, out=x[one.shape[1]]) for one in self._base]
        attend = self._attend(attention), self._attend(attention)  # of weights and values, of queries and keys
        order.append(of_head)
        for number in reversed(range(len(back))):
            reduce, expand = self._reduce[number], self._expand[number]
            own, of_x, of_out = through[len(reduce)], x[reduce.shape[1]], given[len(expand)]
            order += [
                back[number],
                partial(torch.mm, of_out, expand, out=own),
                partial(torch.mm, own, reduce, out=of_x),
                partial(torch.mm, own.t(), of_x),
                partial(torch.mm, reduced[len(reduce)].t(), of_out),
            ]
            if number % len(JOINED) == 1:  # below the product with the result of attention
                order += [one for both in attend for one in both[number // len(JOINED)]]
        return Pass(order, [*forward, of_head, *back])

    def _forward(
        self, rows: int, agents: int, base: Sequence[Operation], attention: Iterable[_Attention]
    ) -> list[Operation]:
        """Return the products of a forward pass, in order; ``base`` are those with the base's matrices."""
        adapters, attend = self._adapters(rows, agents), [self._attend(one) for one in attention]
        order = list[Operation]()
        for number, own in enumerate(adapters):
            order += [base[number], *own]
            if number % len(JOINED) == 0:
                order += [one for every in attend for one in every[number // len(JOINED)]]
        return order + list(base[len(adapters) :])

    def _linear(self, rows: int) -> Sequence[Operation]:
        """Return the products with the base's matrices, by the faster of two kernels."""
        x, found = (self._by_size(rows, {one.shape[side] for one in self._base}) for side in (1, 0))
        laid_out = zip(self._base, self._laid_out, strict=False)  # the last one is the head
        return _faster(
            [partial(torch.mm, x[one.shape[1]], one.t(), out=found[len(one)]) for one in self._base],
            [partial(self._kernels.linear, x[plain.shape[1]], one, None) for plain, one in laid_out],
        )

    def _logits(self, rows: int) -> Operation:
        hidden, found = (self._random(rows, size) for size in (self._sizes.width, self._sizes.vocabulary))
        return _faster(
            [partial(torch.mm, hidden, self._head.t(), out=found)],
            [partial(self._kernels.linear, hidden, self._laid_out[-1], None)],
        )[0]

    def _adapters(self, rows: int, agents: int) -> list[tuple[Operation, Operation]]:
        """Return the products with the adapters of each matrix.

        Those of several agents are one matrix, of which each row uses its part.  Few rows take less time in float32.
        """
        ways = [list[tuple[Operation, Operation]]() for _ in range(2)]
        for way, kind in zip(ways, (self._dtype, torch.float32), strict=True):
            x = self._by_size(rows, (one.shape[1] for one in self._reduce), kind)
            reduced = self._by_size(rows, (agents * len(one) for one in self._reduce), kind)
            found = self._by_size(rows, map(len, self._expand), kind)
            for one, two in zip(self._reduce, self._expand, strict=True):
                reduce, expand = one.repeat(agents, 1).to(kind), two.repeat(1, agents).to(kind)
                own = reduced[len(reduce)]
                first = partial(torch.mm, x[one.shape[1]], reduce.t(), out=own)
                way.append((first, partial(torch.mm, own, expand.t(), out=found[len(expand)])))
        return min(ways, key=lambda way: _seconds([*itertools.chain.from_iterable(way)]))

    def _attend(self, attention: _Attention) -> list[tuple[Operation, Operation]]:
        """Return two products of each layer: queries with keys, and weights with values."""
        count = attention.sequences * self._kv_heads
        query = self._random(count, attention.queries, self._size)
        weights = self._random(count, attention.queries, attention.seen)
        keys, values = (
            [self._random(count, attention.seen, self._size) for _ in range(self._sizes.depth)] for _ in range(2)
        )
        scores, mixed = torch.empty_like(weights), torch.empty_like(query)
        return [
            (
                partial(torch.bmm, query, key.transpose(1, 2), out=scores),
                partial(torch.bmm, weights, value, out=mixed),
            )
            for key, value in zip(keys, values, strict=True)
        ]

    def _over(self, work: Work) -> _Attention:
        """Return the attention of tokens each of which sees the mean number."""
        return _Attention(1, self._share * round(work.tokens), round(work.pairs / work.tokens))

    def _by_size(self, rows: int, sizes: Iterable[int], kind: torch.dtype | None = None) -> dict[int, Tensor]:
        return {size: self._random(rows, size).to(kind or self._dtype) for size in set(sizes)}

    def _random(self, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=self._dtype)


@torch.inference_mode()
def _faster(*ways: Sequence[Operation]) -> Sequence[Operation]:
    return min(ways, key=_seconds)


def _seconds(operations: Sequence[Operation]) -> float:
    """Return the median of three timings, after one that does not count."""
    found = []
    for _ in range(4):
        began = time.perf_counter()
        for one in operations:
            one()
        found.append(time.perf_counter() - began)
    return median(found[1:])
