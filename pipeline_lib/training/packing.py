"""Divide a batch into forward passes in which nothing is computed twice.

Actions of one prompt share the prompt, and often their first tokens.  A *pack* stores such sequences as one tree of
tokens: every node attends to its ancestors and itself, at its position in its own sequence, so each token's
log-probability is the same as in a forward pass of its own sequence.  An *edge* is a context with the token that
follows it; it is computed once, with the summed weights of all actions that contain it.

A pack grows until it reaches the token budget.  All rows of a pass are as long as its longest pack; shorter packs share
a row and do not see each other, since nodes attend only to their ancestors.  So there is little padding, and memory
depends on the budget, not on group size or length.  Models that cannot attend to a tree get one sequence per row.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pipeline_lib.policies.token_blocks import Block, blocks_of
from pipeline_lib.training.batch import PolicyBatch

Ints = NDArray[np.int64]

#: Token id of padding; any valid id would do, since no trained token attends to it.
PADDING = 0


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One forward pass over some packs."""

    input_ids: torch.Tensor  #: shape (rows, length), int64, padded on the right
    position_ids: torch.Tensor  #: shape (rows, length), int64, place of each node in its own sequence
    #: Shape (rows, length, length), bool, whether a node (row) sees another (column); None where every row is a single
    #: sequence and plain causal attention does the same.
    visible: torch.Tensor | None
    blocks: tuple[Block, ...]  #: the same by stretches of tokens
    #: Shape (edges,), int64, index into the flattened (rows * length) of the node an edge starts from.
    positions: torch.Tensor
    targets: torch.Tensor  #: shape (edges,), int64, the token it leads to
    behaviour: torch.Tensor  #: shape (edges,), float32, log-probability of that token in the engine (mean over actions)
    #: Shape (edges,), float32, sums over the actions that run through an edge; see `PolicyBatch`.
    positive: torch.Tensor
    negative: torch.Tensor  #: the same
    weight: torch.Tensor  #: the same
    #: Shape (tokens,), int64, index (in the batch's flat order) of every action token in this pass.
    tokens: torch.Tensor
    edges: torch.Tensor  #: shape (tokens,), int64, the edge each of them is

    def to(self, device: torch.device) -> MicroBatch:
        """Return a copy on a device."""
        values = ((name, getattr(self, name)) for name in self.__slots__)
        moved: Any = {name: x.to(device, non_blocking=True) for name, x in values if isinstance(x, torch.Tensor)}
        return replace(self, **moved)

    def of_edges(self, values: torch.Tensor) -> torch.Tensor:
        """Return values per edge, shape (edges,), from values per token of the batch (equal for tokens of one edge)."""
        found = torch.empty_like(self.behaviour)
        found[self.edges] = values[self.tokens]
        return found


@dataclass(slots=True)
class _Pack:
    """A tree of tokens under construction; nodes are numbered in the order they were added, parents first."""

    ids: list[int]
    depth: list[int]
    runs: list[tuple[int, int, int]]  # first node, end, parent of the first: stretches in which each follows the last
    children: dict[tuple[int, int], int] = field(default_factory=dict)
    edges: dict[tuple[int, int], int] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    token_edges: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, prompt: tuple[int, ...]) -> _Pack:
        size = len(prompt)
        return cls(list(prompt), list(range(size)), [(0, size, -1)])

    def new_nodes(self, prompt: int, action: tuple[int, ...]) -> int:
        """Return how many nodes an action would add; its last token adds none."""
        node = prompt - 1
        for place, token in enumerate(action[:-1]):
            following = self.children.get((node, token))
            if following is None:
                return len(action) - 1 - place
            node = following
        return 0

    def add(self, prompt: int, action: tuple[int, ...], first_token: int) -> None:
        node, last = prompt - 1, len(action) - 1
        for place, token in enumerate(action):
            edge = self.edges.get((node, token))
            if edge is None:
                edge = self.edges[node, token] = len(self.starts)
                self.starts.append(node)
                self.targets.append(token)
            self.tokens.append(first_token + place)
            self.token_edges.append(edge)
            if place == last:
                break
            following = self.children.get((node, token))
            if following is None:
                following = self.children[node, token] = len(self.ids)
                if self.runs[-1][1] == following and node == following - 1:
                    self.runs[-1] = (self.runs[-1][0], following + 1, self.runs[-1][2])
                else:
                    self.runs.append((following, following + 1, node))
                self.ids.append(token)
                self.depth.append(self.depth[node] + 1)
            node = following

    def mark_visible(self, visible: NDArray[np.bool_]) -> None:
        """Mark in ``visible``, shape (nodes, nodes), each node's ancestors and itself."""
        for first, end, parent in self.runs:
            if parent >= 0:
                visible[first:end, : parent + 1] = visible[parent, : parent + 1]
            visible[first:end, first:end] = np.tri(end - first, dtype=bool)


def micro_batches(batch: PolicyBatch, budget: int, share: bool = True, fill: int = sys.maxsize) -> list[MicroBatch]:
    """Cut a batch into forward passes of at most ``budget`` tokens, padding included.

    Packs are sorted by length, longest first, and each goes into the first row with room for it (into its own row if no
    pack branches), so that there is little padding and the largest pass comes first.  A single sequence longer than
    the budget is a pass of its own.

    Args:
        batch: the rows of one policy.
        budget: maximum number of tokens per pass.
        share: actions of one prompt share their prefixes; else every distinct input is a sequence of its own (actions
            that differ only in the last token still share it).
        fill: a pass gets no further row beyond this number of tokens, padding included.
    """
    packs: list[_Pack] = []
    open_packs: dict[tuple[int, ...], _Pack] = {}
    for row, (prompt, action) in enumerate(zip(batch.prompts, batch.actions, strict=True)):
        key = prompt if share else prompt + action[:-1]
        pack = open_packs.get(key)
        if pack is None or len(pack.ids) + pack.new_nodes(len(prompt), action) > budget:
            pack = open_packs[key] = _Pack.of(prompt)
            packs.append(pack)
        pack.add(len(prompt), action, int(batch.offsets[row]))
    passes: list[list[_Row]] = []
    branching = any(len(pack.runs) > 1 for pack in packs)
    for pack in sorted(packs, key=lambda p: -len(p.ids)):
        rows = passes[-1] if passes else []
        shared = next((row for row in rows if len(pack.ids) <= row.room), None) if branching else None
        if shared is not None:
            shared.add(pack)
        elif rows and (len(rows) + 1) * rows[0].length <= min(budget, fill):
            rows.append(_Row(rows[0].length, pack))
        else:
            passes.append([_Row(len(pack.ids), pack)])
    return [_micro_batch(batch, rows) for rows in passes]


class _Row:
    """Consecutive packs, up to ``length`` nodes."""

    def __init__(self, length: int, pack: _Pack) -> None:
        self.length = self.room = length
        self.packs: list[tuple[int, _Pack]] = []  # with the place of their first node
        self.add(pack)

    def add(self, pack: _Pack) -> None:
        """Append a pack that fits."""
        self.packs.append((self.length - self.room, pack))
        self.room -= len(pack.ids)


def _micro_batch(batch: PolicyBatch, rows: list[_Row]) -> MicroBatch:
    length = rows[0].length
    placed = [(number, first, pack) for number, row in enumerate(rows) for first, pack in row.packs]
    packs = [pack for *_, pack in placed]
    input_ids = np.full((len(rows), length), PADDING, dtype=np.int64)
    position_ids = np.zeros((len(rows), length), dtype=np.int64)
    visible = None
    blocks = tuple(block for row, first, pack in placed for block in blocks_of(row, first, pack.runs))
    if len(packs) > len(rows) or any(len(pack.runs) > 1 for pack in packs):
        visible = np.repeat(np.eye(length, dtype=bool)[None], len(rows), axis=0)  # padding sees itself
    positions: list[Ints] = []
    edges: list[Ints] = []
    known = 0
    for number, first, pack in placed:
        end = first + len(pack.ids)
        input_ids[number, first:end] = pack.ids
        position_ids[number, first:end] = pack.depth
        if visible is not None:
            pack.mark_visible(visible[number, first:end, first:end])
        positions.append(np.asarray(pack.starts, dtype=np.int64) + number * length + first)
        edges.append(np.asarray(pack.token_edges, dtype=np.int64) + known)
        known += len(pack.starts)
    tokens = np.concatenate([np.asarray(pack.tokens, dtype=np.int64) for pack in packs])
    token_edges = np.concatenate(edges)
    copies = np.bincount(token_edges, minlength=known)

    def total(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(token_edges, weights=values[tokens], minlength=known).astype(np.float64)

    return MicroBatch(
        input_ids=torch.from_numpy(input_ids),
        position_ids=torch.from_numpy(position_ids),
        visible=None if visible is None else torch.from_numpy(visible),
        blocks=blocks,
        positions=torch.from_numpy(np.concatenate(positions)),
        targets=torch.tensor([target for pack in packs for target in pack.targets], dtype=torch.int64),
        behaviour=_float(total(batch.behaviour) / copies),
        positive=_float(total(batch.positive)),
        negative=_float(total(batch.negative)),
        weight=_float(total(batch.weight)),
        tokens=torch.from_numpy(tokens),
        edges=torch.from_numpy(token_edges),
    )


def _float(values: NDArray[np.float64]) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))
