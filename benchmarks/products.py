"""Seconds that the matrix products of a model take by themselves: the limit of sampling and of an update.

Counted are the products with the base's matrices, those with adapters (LoRA on every linear layer), and those of
attention over the tokens that are seen; nothing else (norms, activations, softmax, drawing, optimiser).  They run in
the chosen type on all cores.  Every layer has matrices, keys and values of its own, as in a model: those of a single
layer would stay in the processor's cache.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline_lib.policies.sizes import Sizes
from pipeline_lib.rollouts.kernels import PackedKernels, base_kernels, packed

#: Tokens of a pass that is timed; seconds of other numbers are in proportion.
TOKENS = 512
#: Tokens of a block of attention, and tokens that each sees; seconds are in proportion to pairs of both.
QUERIES, SEEN = 128, 384
#: Linear layers of one input: one product, and so are their adapters.
JOINED = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))

#: Seconds by part: ``base``, ``adapters``, ``attention``.
Seconds = dict[str, float]


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

    def read(self, work: Work) -> Seconds:
        """Return the seconds of reading prompts."""
        found = self._layers(TOKENS)
        return {
            "base": found["base"] / TOKENS * work.tokens,
            "adapters": found["adapters"] / TOKENS * work.tokens,
            "attention": self._attention(1, self._share * QUERIES, SEEN) / (QUERIES * SEEN) * work.pairs,
        }

    def step(self, prompts: int, agents: int, group: int, length: int, drawn: int) -> Seconds:
        """Return the seconds of drawing a token of every action.

        Args:
            prompts: their number, of all agents together.
            agents: that share the base.
            group: actions of each prompt.
            length: tokens of a prompt.
            drawn: tokens of an action so far.
        """
        rows = prompts * group
        layers, hidden = self._layers(rows, agents), self._random(rows, self._sizes.width)
        head = min(
            shortest(lambda: torch.mm(hidden, self._head.t())),
            shortest(lambda: self._kernels.linear(hidden, self._laid_out[-1], None)),
        )
        # All actions of a prompt read its keys and values at once, and each its own.
        attention = self._attention(prompts, group * self._share, length) + self._attention(rows, self._share, drawn)
        return {"base": layers["base"] + head, "adapters": layers["adapters"], "attention": attention}

    def update(self, work: Work, predicted: float) -> Seconds:
        """Return the seconds of a forward and a backward pass; ``predicted`` tokens go through the head."""
        given, x = (self._by_size(TOKENS, {one.shape[side] for one in self._base}) for side in (0, 1))
        reduced, through = (self._by_size(TOKENS, map(len, self._reduce)) for _ in range(2))
        logits = self._random(TOKENS, self._sizes.vocabulary)
        hidden, of_hidden = (self._random(TOKENS, self._sizes.width) for _ in range(2))

        def adapters() -> None:
            for reduce, expand in zip(self._reduce, self._expand, strict=True):
                own = torch.mm(given[len(expand)], expand, out=through[len(reduce)])
                torch.mm(own, reduce, out=x[reduce.shape[1]])
                _ = own.t() @ x[reduce.shape[1]], reduced[len(reduce)].t() @ given[len(expand)]

        def head() -> None:
            torch.mm(hidden, self._head.t(), out=logits)
            torch.mm(logits, self._head, out=of_hidden)

        found = self.read(work)
        back = shortest(lambda: [torch.mm(given[len(one)], one, out=x[one.shape[1]]) for one in self._base])
        found["base"] += back / TOKENS * work.tokens
        found["base"] += shortest(head) / TOKENS * predicted
        found["adapters"] += shortest(adapters) / TOKENS * work.tokens
        found["attention"] += 2 * found["attention"]  # gradients of weights, values, queries and keys
        return found

    def _layers(self, tokens: int, agents: int = 1) -> Seconds:
        """Return the seconds of all layers' products with ``tokens`` rows, without attention.

        The adapters of several agents are one matrix, of which each row uses its part.
        """
        x, found = (self._by_size(tokens, {one.shape[side] for one in self._base}) for side in (1, 0))
        laid_out = list(zip((one.shape[1] for one in self._base), self._laid_out, strict=False))
        base = min(
            shortest(lambda: [torch.mm(x[one.shape[1]], one.t(), out=found[len(one)]) for one in self._base]),
            shortest(lambda: [self._kernels.linear(x[into], one, None) for into, one in laid_out]),
        )
        kinds = {self._dtype, torch.float32}  # few rows take less time in float32
        return {"base": base, "adapters": min(self._adapters(tokens, agents, kind) for kind in kinds)}

    def _adapters(self, tokens: int, agents: int, kind: torch.dtype) -> float:
        x = self._by_size(tokens, (one.shape[1] for one in self._reduce), kind)
        reduced = self._by_size(tokens, (agents * len(one) for one in self._reduce), kind)
        both = zip(self._reduce, self._expand, strict=True)
        pairs = [(one.repeat(agents, 1).to(kind), two.repeat(1, agents).to(kind)) for one, two in both]
        found = self._by_size(tokens, {len(one) for one in self._expand}, kind)

        def work() -> None:
            for reduce, expand in pairs:
                torch.mm(x[reduce.shape[1]], reduce.t(), out=reduced[len(reduce)])
                torch.mm(reduced[len(reduce)], expand.t(), out=found[len(expand)])

        return shortest(work)

    def _attention(self, sequences: int, queries: int, seen: int) -> float:
        """Return the seconds of all layers' attention, of ``queries`` per sequence and key head."""
        count = sequences * self._kv_heads
        query, weights = self._random(count, queries, self._size), self._random(count, queries, seen)
        keys = [self._random(count, seen, self._size) for _ in range(self._sizes.depth)]
        return shortest(lambda: [(torch.bmm(query, one.transpose(1, 2)), torch.bmm(weights, one)) for one in keys])

    def _by_size(self, rows: int, sizes: Iterable[int], kind: torch.dtype | None = None) -> dict[int, Tensor]:
        return {size: self._random(rows, size).to(kind or self._dtype) for size in set(sizes)}

    def _random(self, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=self._dtype)


def shortest(work: Callable[[], object]) -> float:
    """Return the shortest of five timings, after one that does not count."""
    work()
    found = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)
