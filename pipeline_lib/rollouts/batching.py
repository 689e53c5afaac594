"""Continuous batching with exact prefix sharing.

Every action is sampled with its own uniform numbers, so it does not depend on the rest of the batch (up to rounding of
the logits).  Actions of one prompt (of a group, or of requests with the same prompt) share a slot as long as their
tokens are equal, and fork, by a copy of the cache, when they differ; this is exact, because equal prefixes have equal
logits.  A free slot is filled at once.  Slots in use are kept contiguous, so the model never computes an idle row.

It does not depend on requests, texts or policies: it takes token ids and uniform numbers, and returns token ids and
log-probabilities.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from pipeline_lib.memory import PREFILL_TOKENS
from pipeline_lib.rollouts.rollout_model import Ints, Prefill, RolloutModel
from pipeline_lib.rollouts.sampling import draw
from pipeline_lib.sampling_progress import receiver

if TYPE_CHECKING:
    from pipeline_lib.rollouts.engine import Sampling


@dataclass(slots=True)
class Work:
    """The actions to sample."""

    prompts: Sequence[tuple[int, ...]]  #: distinct prompts
    owner: Ints  #: ``[members]`` index of the prompt of every action (member)
    uniforms: npt.NDArray[np.float32]  #: ``[members, steps]`` fp32
    limits: Ints  #: ``[prompts]`` maximum number of tokens per action, from 1 to ``steps``
    ends: npt.NDArray[np.bool_]  #: ``[vocabulary]`` bool, tokens that end an action
    #: Tests whether token ids contain a stop string; None without stop strings.
    stops: Callable[[list[int]], bool] | None
    policies: Ints | None = None  #: ``[prompts]`` numbers of their policies in the model; None if it has one


@dataclass(slots=True)
class _Waiting:
    """Members with the same first token that wait for a slot."""

    prefill: Prefill
    row: int
    token: int
    members: Ints


@dataclass(slots=True)
class _Groups:
    """Groups of members whose tokens are equal so far; each group shares a slot.

    ``members`` are sorted by group; group g has ``counts[g]`` of them, is in slot ``rows[g]`` and continues with
    ``tokens[g]``.  After a draw, ``rows[g]`` is the slot, or the row of the prefill, that the group came from; groups
    from the same row are neighbours.
    """

    members: Ints
    counts: Ints
    rows: Ints
    tokens: Ints

    def first(self) -> Ints:
        """Return one member of each group."""
        return self.members[np.cumsum(self.counts) - self.counts]


class Batch:
    """The actions that one call samples from one model.

    Attributes:
        tokens: ``[members, steps]`` int64 drawn ids (beyond ``lengths``: undefined).
        logprobs: ``[members, steps]`` fp32.
        lengths: ``[members]`` number of ids drawn.
        stopped: ``[members]`` bool, ended by an end token or stop string (otherwise by its limit).
        leaf: ``[members]`` index of the member with the same ids that represents this one.
        prompt_tokens: tokens prefilled.
        computed_tokens: tokens that went through the model one by one.
        on_draw: called with members and their ids after each draw.
    """

    on_draw: Callable[[Ints, Ints], None] | None = None

    def __init__(
        self,
        model: RolloutModel,
        work: Work,
        sampling: Sampling,
        rows: int,
        first_logits: dict[tuple[int, tuple[int, ...]], torch.Tensor],
    ) -> None:
        self.model, self.work, self.sampling, self.rows = model, work, sampling, rows
        self.first_logits = first_logits
        members, steps = work.uniforms.shape
        self.tokens = np.zeros((members, steps), dtype=np.int64)
        self.logprobs = np.zeros((members, steps), dtype=np.float32)
        self.lengths = np.zeros(members, dtype=np.int64)
        self.stopped = np.zeros(members, dtype=bool)
        self.leaf = np.arange(members)
        self.prompt_tokens = self.computed_tokens = 0
        self._flat_tokens, self._flat_logprobs = self.tokens.reshape(-1), self.logprobs.reshape(-1)
        self._uniforms = work.uniforms.reshape(-1)
        self._starts = np.arange(members) * steps  # of a member's stretch of these three
        self._limits = work.limits[work.owner]
        self._prompt_lengths = np.array([len(p) for p in work.prompts], dtype=np.int64)[work.owner]
        self._places = self._prompt_lengths - 1  # of a prompt's last token
        self._single = bool((work.limits == 1).all())
        self._policies = work.policies

    @torch.inference_mode()
    def run(self) -> Batch:
        """Sample all actions; returns itself."""
        waves = self._waves()
        waiting: deque[_Waiting] = deque()
        groups: _Groups | None = None
        if not self._single:
            length, drawn = int((self._prompt_lengths + self._limits).max()), int(self._limits.max())
            self.model.reserve(min(self.rows, len(self.lengths)), length, drawn)
        on_sampled = receiver()
        while True:
            in_flight = len(groups.members) if groups is not None else 0
            if on_sampled is not None:
                done = np.where(self.stopped, self._limits, self.lengths)
                finished = int(np.count_nonzero(done >= self._limits))
                share = float(done.sum() / max(1, int(self._limits.sum())))
                on_sampled(finished, len(done), int(self.lengths.sum()), share)
            while not waiting and (in_flight < self.rows) and (wave := next(waves, None)) is not None:
                waiting.extend(wave)
            admitted = self._admit(waiting, in_flight)
            groups = self._arrange(groups, admitted)
            if groups is None:
                return self
            tokens, positions = np.empty_like(groups.rows), np.empty_like(groups.rows)
            first = groups.first()
            tokens[groups.rows], positions[groups.rows] = groups.tokens, self._places[first] + self.lengths[first]
            owners = None
            if self._policies is not None:
                owners = np.empty_like(groups.rows)
                owners[groups.rows] = self._policies[self.work.owner[first]]
            logits = self.model.step(tokens, positions, owners)
            self.computed_tokens += len(tokens)
            groups = self._draw(logits, np.repeat(groups.rows, groups.counts), groups.members)

    def _waves(self) -> Iterator[list[_Waiting]]:
        """Prefill prompts, shortest first, a bounded number of tokens at a time; draw first tokens."""
        work = self.work
        order = np.argsort(work.owner, kind="stable")
        bounds = np.searchsorted(work.owner[order], np.arange(len(work.prompts) + 1))
        by_length = sorted(range(len(work.prompts)), key=lambda p: len(work.prompts[p]))
        known = [p for p in by_length if self._single and self._key(p) in self.first_logits]
        if known:
            logits = torch.stack([self.first_logits[self._key(p)] for p in known])
            yield self._first_tokens(Prefill(logits, None), known, order, bounds)
        unknown = [p for p in by_length if not (self._single and self._key(p) in self.first_logits)]
        start = 0
        while start < len(unknown):
            end = start + 1
            while end < len(unknown) and len(work.prompts[unknown[end]]) * (end + 1 - start) <= PREFILL_TOKENS:
                end += 1
            wave = unknown[start:end]
            owners = None if self._policies is None else self._policies[wave]
            prefill = self.model.prefill([work.prompts[p] for p in wave], not self._single, owners)
            self.prompt_tokens += sum(len(work.prompts[p]) for p in wave)
            if self._single:
                self.first_logits.update(zip(map(self._key, wave), prefill.logits, strict=True))
            yield self._first_tokens(prefill, wave, order, bounds)
            start = end

    def _key(self, prompt: int) -> tuple[int, tuple[int, ...]]:
        """Return what the first logits of a prompt depend on."""
        return (0 if self._policies is None else int(self._policies[prompt])), self.work.prompts[prompt]

    def _first_tokens(self, prefill: Prefill, wave: list[int], order: Ints, bounds: Ints) -> list[_Waiting]:
        """Draw the first token of all members of the prompts in ``wave``; return those that continue."""
        members = np.concatenate([order[bounds[p] : bounds[p + 1]] for p in wave])
        rows = np.repeat(np.arange(len(wave)), [bounds[p + 1] - bounds[p] for p in wave])
        groups = self._draw(prefill.logits, rows, members)
        if groups is None:
            return []
        found: list[_Waiting] = []
        ends = np.cumsum(groups.counts)
        for row, token, start, end in zip(groups.rows, groups.tokens, ends - groups.counts, ends, strict=True):
            for part in range(start, end, self.rows):  # more members than slots
                part_members = groups.members[part : min(end, part + self.rows)]
                found.append(_Waiting(prefill, int(row), int(token), part_members))
        return found

    def _draw(self, logits: torch.Tensor, rows: Ints, members: Ints) -> _Groups | None:
        """Draw a token for each member from its row of ``logits``, record it, and return the groups that continue."""
        places = self._starts[members] + self.lengths[members]
        one_each = len(rows) == len(logits) and bool((rows == np.arange(len(rows))).all())
        device = logits.device
        uniforms = torch.from_numpy(self._uniforms[places]).to(device)
        chosen = None if one_each else torch.from_numpy(rows).to(device)
        drawn, drawn_logprobs = draw(logits, chosen, uniforms, self.sampling)
        ids, logprobs = drawn.cpu().numpy(), drawn_logprobs.cpu().numpy()
        self._flat_tokens[places] = ids
        self._flat_logprobs[places] = logprobs
        self.lengths[members] += 1
        if self.on_draw is not None:
            self.on_draw(members, ids)

        groups = self._group(rows, ids, members, parted=len(rows) == len(logits))
        first, counts, tokens = groups.first(), groups.counts, groups.tokens
        ended = self.work.ends[tokens]
        if self.work.stops is not None:
            for g in np.flatnonzero(~ended):
                ended[g] = self.work.stops(self.tokens[first[g], : self.lengths[first[g]]].tolist())
        going = ~ended & (self.lengths[first] < self._limits[first])
        if going.all():
            return groups
        goes = np.repeat(going, counts)
        gone, done = groups.members[~goes], ~going
        self.leaf[gone] = np.repeat(first[done], counts[done])
        self.stopped[gone] = np.repeat(ended[done], counts[done])
        if len(gone) == len(groups.members):
            return None
        return _Groups(groups.members[goes], counts[going], groups.rows[going], tokens[going])

    @staticmethod
    def _group(rows: Ints, ids: Ints, members: Ints, parted: bool) -> _Groups:
        """Group members that came from the same row and drew the same token; ``parted``: no two share a row."""
        if parted:
            return _Groups(members, np.ones(len(members), dtype=np.int64), rows, ids)
        both = rows * (int(ids.max()) + 1) + ids
        order = both.argsort(kind="stable")
        both = both[order]
        edges = np.ones(len(both) + 1, dtype=bool)
        np.not_equal(both[1:], both[:-1], out=edges[1:-1])
        bounds = edges.nonzero()[0]
        first = order[bounds[:-1]]
        return _Groups(members[order], bounds[1:] - bounds[:-1], rows[first], ids[first])

    def _admit(self, waiting: deque[_Waiting], in_flight: int) -> list[_Waiting]:
        """Admit waiting groups as long as there is a slot for each member, so that a fork always finds one."""
        admitted: list[_Waiting] = []
        if in_flight and not self.model.refills:
            return admitted
        while waiting and in_flight + len(waiting[0].members) <= self.rows:
            if admitted and not self.model.refills and waiting[0].prefill is not admitted[0].prefill:
                break
            admitted.append(waiting.popleft())
            in_flight += len(admitted[-1].members)
        return admitted

    def _arrange(self, groups: _Groups | None, admitted: list[_Waiting]) -> _Groups | None:
        """Give every group a slot so that slots 0..n-1 are in use; ``rows`` of the result are slots.

        A group keeps its slot if it is the first of those that shared it and the slot is below n.  The others are
        copied into free slots.  No free slot is the source of a copy, so the order of copies does not matter.
        """
        old = len(groups.rows) if groups is not None else 0
        count = old + len(admitted)
        if count == 0:
            return None
        slots = np.empty(count, dtype=np.int64)
        stays = np.zeros(count, dtype=bool)
        if groups is not None:
            stays[:old] = np.concatenate(([True], groups.rows[1:] != groups.rows[:-1])) & (groups.rows < count)
            slots[:old] = groups.rows
        used = np.zeros(count, dtype=bool)
        used[slots[stays]] = True
        sources = slots[:old][~stays[:old]]
        slots[~stays] = np.flatnonzero(~used)
        if groups is not None:
            self.model.move(sources, slots[:old][~stays[:old]], count)
        if not admitted:
            assert groups is not None
            return _Groups(groups.members, groups.counts, slots, groups.tokens)
        at = old
        while at < count:  # one copy per prefill the admitted come from
            prefill = admitted[at - old].prefill
            end = at
            while end < count and admitted[end - old].prefill is prefill:
                end += 1
            rows = np.array([w.row for w in admitted[at - old : end - old]], dtype=np.int64)
            self.model.place(prefill, rows, slots[at:end])
            at = end
        members = [w.members for w in admitted]
        counts = np.array([len(m) for m in members], dtype=np.int64)
        tokens = np.array([w.token for w in admitted], dtype=np.int64)
        if groups is None:
            return _Groups(np.concatenate(members), counts, slots, tokens)
        return _Groups(
            np.concatenate([groups.members, *members]),
            np.concatenate([groups.counts, counts]),
            slots,
            np.concatenate([groups.tokens, tokens]),
        )
