"""The ``transformers`` engine: batched decoding in this process, on CPU or GPU.

Token ids are never decoded and encoded again.  Log-probabilities are those of the sampling distribution.  The same
seeds give the same actions in any batch, except that matrix products of another shape round differently, which changes
about one draw in a million.  Stale weights raise an error.  The engine has no global state and does not change torch's
process-wide settings; use one object per thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from pipeline_lib.rollouts.actions import cut_at_stop, decode_all, stop_test
from pipeline_lib.rollouts.batching import Batch, Work
from pipeline_lib.rollouts.decoder import FusedDecoder, unsupported
from pipeline_lib.rollouts.engine import (
    Action,
    Counters,
    Engine,
    EngineError,
    Request,
    Sampling,
    check_prompt,
    require_current,
    unknown_policy,
)
from pipeline_lib.rollouts.generic_model import GenericModel
from pipeline_lib.rollouts.plain_weights import plain_model, plain_state
from pipeline_lib.rollouts.random_draws import uniforms
from pipeline_lib.rollouts.rollout_model import Ints, RolloutModel

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.settings.rollouts import TransformersRollouts

#: Bytes of cached first-token logits per policy; an update of its weights clears them.
FIRST_LOGITS_BYTES = 256 * 2**20
#: Number of cached texts of token sequences per policy.
TEXTS = 2**16
_SEED_MASK = 2**64 - 1


@dataclass(slots=True)
class _Copy:
    """Rollout copy of a policy; ``version`` is that of the weights it holds."""

    policy: Policy
    model: RolloutModel
    version: int
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    first_logits: dict[tuple[int, ...], Tensor] = field(default_factory=dict)
    texts: dict[tuple[int, ...], str] = field(default_factory=dict)


class TransformersEngine(Engine):
    """Samples from rollout copies of the policies in this process."""

    def __init__(
        self, rows: int = 256, dtype: torch.dtype | None = None, fast: bool = True, graphs: bool = True
    ) -> None:
        """Make an engine without policies.

        Args:
            rows: number of actions sampled at the same time, per policy; each has a slot in the key/value cache.
            dtype: dtype of the rollout copies' weights; None keeps each policy's own.
            fast: use the fused decoder if it supports the model; False always uses transformers' forward pass.
            graphs: on CUDA, the fused decoder runs its steps by captured graphs.
        """
        self.rows, self.dtype, self.fast, self.graphs = rows, dtype, fast, graphs
        self.counters = Counters()
        self._copies: dict[str, _Copy] = {}

    @classmethod
    def from_settings(cls, section: TransformersRollouts) -> TransformersEngine:
        """Create the engine from the ``rollouts`` section."""
        dtype = None if section.dtype == "auto" else getattr(torch, section.dtype)
        return cls(section.rows, dtype, graphs=section.cuda_graphs)

    def load(self, policies: Mapping[str, Policy]) -> None:
        """Take rollout copies of these policies, and drop all others."""
        self._copies = {}
        for name, policy in policies.items():
            plain = plain_model(policy)
            dtype = self.dtype or plain.get_input_embeddings().weight.dtype
            fused = self.fast and unsupported(plain) is None
            model: RolloutModel
            model = FusedDecoder(plain, dtype, self.graphs) if fused else GenericModel(policy.model, dtype)
            self._copies[name] = _Copy(policy, model, -1)
            self.update(policy)

    def update(self, policy: Policy) -> None:
        """Copy the policy's present weights, and clear the caches of the old ones."""
        copy = self._loaded(policy.name)
        with torch.no_grad():
            state = plain_state(policy)
            shapes = {key: tuple(tensor.shape) for key, tensor in state.items()}
            if copy.version >= 0 and shapes != copy.shapes:
                different = sorted(k for k in {*shapes, *copy.shapes} if shapes.get(k) != copy.shapes.get(k))[0]
                raise EngineError(
                    f"policy {policy.name!r} has other weights than its rollout copy: {different} has shape "
                    f"{shapes.get(different)}, the copy {copy.shapes.get(different)}; call load for another model"
                )
            copy.shapes = shapes
            copy.model.refresh(state)
        copy.policy, copy.version = policy, policy.version
        copy.first_logits.clear()

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
        """Sample all actions, policy by policy; requests of one policy are batched."""
        started = time.perf_counter()
        by_policy: dict[str, list[int]] = {}
        for index, request in enumerate(requests):
            by_policy.setdefault(request.policy, []).append(index)
        results: list[list[Action]] = [[] for _ in requests]
        for name, indices in by_policy.items():
            copy = self._loaded(name)
            require_current(copy.policy, copy.version)
            served = self._serve(copy, [requests[i] for i in indices], sampling.of(name), indices)
            for index, actions in zip(indices, served, strict=True):
                results[index] = actions
        self.counters.requests += len(requests)
        self.counters.seconds += time.perf_counter() - started
        return results

    def close(self) -> None:
        """Drop the rollout copies."""
        self._copies = {}

    def _loaded(self, name: str) -> _Copy:
        if name not in self._copies:
            raise unknown_policy(name, self._copies)
        return self._copies[name]

    def _serve(
        self, copy: _Copy, requests: list[Request], sampling: Sampling, places: Sequence[int]
    ) -> list[list[Action]]:
        """Sample the actions of requests to one policy; ``places``: their indices among all requests of the call."""
        known: dict[tuple[int, ...], int] = {}
        owners = [known.setdefault(request.prompt, len(known)) for request in requests]
        prompts, context = list(known), copy.model.context
        lengths = np.fromiter(map(len, prompts), dtype=np.int64, count=len(prompts))
        fewest = min(request.n for request in requests)
        for extreme in (lengths.min(), lengths.max()):
            check_prompt(copy.policy.name, int(extreme), fewest, context)
        counts = np.fromiter((request.n for request in requests), dtype=np.int64, count=len(requests))
        seeds = np.fromiter((request.seed & _SEED_MASK for request in requests), dtype=np.uint64, count=len(requests))
        ends = np.cumsum(counts)
        numbers = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        ends_action = np.zeros(copy.model.vocabulary, dtype=bool)
        ends_action[[i for i in copy.policy.end_ids if i < copy.model.vocabulary]] = True
        work = Work(
            prompts=prompts,
            owner=np.repeat(np.array(owners, dtype=np.int64), counts),
            uniforms=uniforms(np.repeat(seeds, counts), numbers.astype(np.uint64), sampling.max_new_tokens),
            limits=np.minimum(sampling.max_new_tokens, context - lengths),
            ends=ends_action,
            stops=stop_test(copy.policy),
        )
        limit = FIRST_LOGITS_BYTES // (4 * copy.model.vocabulary)
        if len(copy.first_logits) + len(prompts) > limit:
            copy.first_logits.clear()
        batch = Batch(copy.model, work, sampling, self.rows, copy.first_logits)
        if (listener := self.listener) is not None:
            owners_of = np.repeat(np.array(places), counts)

            def on_draw(members: Ints, drawn: Ints) -> None:
                for member, token in zip(members.tolist(), drawn.tolist(), strict=True):
                    listener(int(owners_of[member]), int(numbers[member]), token)

            batch.on_draw = on_draw
        batch.run()
        leaves = _actions(copy, batch)
        actions = [leaves[m] for m in batch.leaf.tolist()]
        self.counters.actions += len(actions)
        self.counters.prompt_tokens += batch.prompt_tokens
        self.counters.generated_tokens += int(batch.lengths.sum())
        self.counters.computed_tokens += batch.computed_tokens
        starts = (ends - counts).tolist()
        return [actions[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]


def _actions(copy: _Copy, batch: Batch) -> dict[int, Action]:
    """Return an action for each representative member (`Batch.leaf`); texts are decoded once per call."""
    members = np.unique(batch.leaf).tolist()
    lengths = batch.lengths.tolist()
    ids = {m: tuple(batch.tokens[m, : lengths[m]].tolist()) for m in members}
    texts = copy.texts
    if len(texts) >= TEXTS:
        texts.clear()
    new = [i for i in dict.fromkeys(ids.values()) if i not in texts]
    for key, text in zip(new, decode_all(copy.policy, new), strict=True):
        texts[key] = cut_at_stop(text, copy.policy.stop_strings)
    return {
        m: Action(
            ids=ids[m],
            logprobs=tuple(batch.logprobs[m, : lengths[m]].tolist()),
            text=texts[ids[m]],
            finish="stop" if batch.stopped[m] else "length",
        )
        for m in members
    }
