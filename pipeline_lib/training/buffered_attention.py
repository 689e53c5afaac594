"""Attention of `fused_layers` over a tree of tokens, forward and backward, in buffers that all layers use again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline_lib.policies.token_blocks import Block, later
from pipeline_lib.rollouts.decoder_weights import Shape
from pipeline_lib.training.buffers import Buffers


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The tokens of a block, ``first`` up to ``end``, and what they see, the block itself at the end."""

    first: int
    end: int
    seen: tuple[tuple[int, int], ...]

    @property
    def width(self) -> int:
        """Return how many tokens are seen."""
        return sum(end - first for first, end in self.seen)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the attention of a stretch is computed: views of buffers, made once for all layers."""

    seen: tuple[tuple[int, int], ...]  #: as in `_Stretch`
    scores: Tensor  #: ``[kv heads, share * stretch, seen]``
    later: tuple[Tensor, Tensor]  #: of scores, those of the block itself; what is added to them, -inf for later tokens
    part: Tensor  #: ``[kv heads, share * stretch, size]``
    by_head: Tensor  #: the same as ``[kv heads, share, stretch, size]``
    of_mixed: Tensor  #: gradient of attention's result, like ``by_head``
    of_queries: Tensor  #: gradient of the queries, like ``by_head``, float32
    of_seen: Tensor  #: ``[2 (keys, values), kv heads, seen, size]``
    sums: list[tuple[Tensor, Tensor]]  #: gradients of all keys and values, float32, and what is added to them


class BufferedAttention:
    """Attention in one pass."""

    def __init__(self, shape: Shape, kind: torch.dtype, blocks: Iterable[Block], length: int, tokens: int) -> None:
        """Divide the tokens.

        Args:
            shape: of the model.
            kind: type of queries, keys and values.
            blocks: what each token sees; tokens of no block (padding) see nothing.
            length: of the rows that the blocks name.
            tokens: of all rows, one after the other, with padding at the end.
        """
        self._shape, self._kind, self._tokens = shape, kind, tokens
        self._share = shape.heads // shape.kv_heads
        self._stretches = _stretches(blocks, length)
        ends = [*(one.first for one in self._stretches[1:]), tokens]
        #: Of stretches, and of the padding behind each, one after the other.
        self._sizes = [
            size
            for one, end in zip(self._stretches, ends, strict=True)
            for size in (one.end - one.first, end - one.end)
        ]
        self._places: list[_Place] = []

    @property
    def weights(self) -> list[tuple[int, ...]]:
        """Return the shapes of attention's weights by stretch, ``[kv heads, share * stretch, seen]``."""
        return [(self._shape.kv_heads, self._share * (one.end - one.first), one.width) for one in self._stretches]

    def lay_out(self, buffers: Buffers) -> None:
        """Find the buffers of this pass; other passes may move them."""
        shape, kind = self._shape, self._kind
        kv, share, size = shape.kv_heads, self._share, shape.head_size
        rows = [share * (one.end - one.first) for one in self._stretches]
        buffers("scores", (kv * max(n * one.width for n, one in zip(rows, self._stretches, strict=True)),), kind)
        buffers("part", (kv * max(rows) * size,), kind)
        buffers("of seen", (2 * kv * max(one.width for one in self._stretches) * size,), kind)
        self._found = buffers("of heads", (shape.heads + 2 * kv, self._tokens, size), torch.float32)
        queries, seen = self._split(self._found)
        #: Gradient of what `attend` returned, ``[tokens, heads * size]``, which `back` reads.
        self.of_mixed = buffers("of mixed", (self._tokens, shape.heads * size), kind)
        gradients = self._by_stretch(self._by_head(self.of_mixed)), self._by_stretch(queries)
        self._places = []
        for stretch, of_mixed, of_queries in zip(self._stretches, *gradients, strict=True):
            count = stretch.end - stretch.first
            scores = buffers("scores", (kv, share * count, stretch.width), kind)
            part = buffers("part", (kv, share * count, size), kind)
            of_seen = buffers("of seen", (2, kv, stretch.width, size), kind)
            own = scores.unflatten(1, (share, count))[..., stretch.width - count :]
            pieces = of_seen.split([end - first for first, end in stretch.seen], 2)
            sums = [(seen[:, :, first:end], one) for (first, end), one in zip(stretch.seen, pieces, strict=True)]
            by_head = part.unflatten(1, (share, count))
            hidden = (own, torch.zeros(count, count, dtype=kind).masked_fill_(later(count), float("-inf")))
            self._places.append(
                _Place(stretch.seen, scores, hidden, part, by_head, of_mixed, of_queries, of_seen, sums)
            )

    def attend(self, heads: Tensor, weights: Sequence[Tensor], mixed: Tensor) -> None:
        """Compute attention over what each token sees.

        Args:
            heads: ``[heads + 2 kv heads, tokens, size]``: queries, scaled already, keys, values.
            weights: gets attention's weights, by stretch.
            mixed: gets the result, ``[tokens, heads * size]``; 0 for padding.
        """
        queries, seen = self._split(heads)
        mixed.zero_()
        asked, results = self._by_stretch(queries), self._by_stretch(self._by_head(mixed))
        for place, found, query, result in zip(self._places, weights, asked, results, strict=True):
            keys, values = _of(seen, place.seen)
            torch.bmm(query.flatten(1, 2), keys.transpose(1, 2), out=place.scores)
            place.later[0].add_(place.later[1])
            torch.softmax(place.scores, -1, out=found)
            torch.bmm(found, values, out=place.part)
            result.copy_(place.by_head)

    def back(self, heads: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """Return the gradient of ``heads``, float32, from `of_mixed`."""
        queries, seen = self._split(heads)
        self._found.zero_()
        for place, found, query in zip(self._places, weights, self._by_stretch(queries), strict=True):
            keys, values = _of(seen, place.seen)
            given = place.of_mixed.flatten(1, 2)
            torch.bmm(found.transpose(1, 2), given, out=place.of_seen[1])
            torch.bmm(given, values.transpose(1, 2), out=place.scores)
            of_scores = torch._softmax_backward_data(place.scores, found, -1, found.dtype)
            torch.bmm(of_scores, keys, out=place.part)
            place.of_queries.copy_(place.by_head)
            torch.bmm(of_scores.transpose(1, 2), query.flatten(1, 2), out=place.of_seen[0])
            for total, part in place.sums:
                total.add_(part)
        return self._found

    def _by_stretch(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Return the stretches of ``[kv heads, share, tokens, size]``, without padding."""
        return tokens.split(self._sizes, 2)[::2]

    def _split(self, heads: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries, ``[kv heads, share, tokens, size]``, and ``[2 (keys, values), kv heads, tokens, size]``."""
        queries, others = heads.split([self._shape.heads, 2 * self._shape.kv_heads])
        return queries.unflatten(0, (self._shape.kv_heads, -1)), others.unflatten(0, (2, -1))

    def _by_head(self, mixed: Tensor) -> Tensor:
        """Return ``[kv heads, share, tokens, size]`` of ``[tokens, heads * size]``."""
        return mixed.view(len(mixed), self._shape.kv_heads, -1, self._shape.head_size).permute(1, 2, 0, 3)


def _stretches(blocks: Iterable[Block], length: int) -> list[_Stretch]:
    """Return blocks with places in the flattened rows; neighbours among what they see are one."""
    found = []
    for block in blocks:
        start, seen = block.row * length, list[tuple[int, int]]()
        for first, end in (*block.before, (block.first, block.end)):
            if seen and seen[-1][1] == first + start:
                seen[-1] = (seen[-1][0], end + start)
            else:
                seen.append((first + start, end + start))
        found.append(_Stretch(block.first + start, block.end + start, tuple(seen)))
    return found


def _of(seen: Tensor, parts: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """Return the keys and the values of parts, ``[kv heads, seen, size]`` each, in order."""
    found = [seen.narrow(2, first, end - first) for first, end in parts]
    keys, values = (found[0] if len(found) == 1 else torch.cat(found, 2)).unbind()
    return keys, values
