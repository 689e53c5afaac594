"""The ``transformers`` engine: batched decoding in this process, on CPU or GPU.

Token ids are never decoded and encoded again.  Log-probabilities are those of the sampling distribution.  The same
seeds give the same actions in any batch, except that matrix products of another shape round differently.  That changes
about one draw in a million with the embedded model; with a real one in bfloat16 most actions become others, since a
draw inverts the cumulative distribution, and one other token changes all that follow.

Stale weights raise an error.  The engine has no global state and does not change torch's process-wide settings; use one
object per thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from pipeline_lib.memory import FIRST_LOGITS_BYTES, MOST_ROWS, free_memory, give_back_memory
from pipeline_lib.policies.lora import plain_model, plain_state
from pipeline_lib.policies.trained_model import is_large_here
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
from pipeline_lib.rollouts.rollout_model import Ints, RolloutModel
from pipeline_lib.rollouts.sampling import uniforms
from pipeline_lib.rollouts.shared_decoder import SharedDecoder, base_key

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.settings.rollouts import TransformersRollouts

logger = logging.getLogger(__name__)

#: Number of cached texts of token sequences per policy.
TEXTS = 2**16
_SEED_MASK = 2**64 - 1


@dataclass(slots=True)
class _Loaded:
    """Policies that one rollout model serves: one with its copy, or all that train adapters on one base.

    ``versions`` are those of the weights that the model has; ``numbers`` the policies' places in it.
    """

    model: RolloutModel
    policies: dict[str, Policy]
    base: int | None = None
    versions: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    first_logits: dict[tuple[int, tuple[int, ...]], Tensor] = field(default_factory=dict)
    texts: dict[tuple[int, ...], str] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """Return a policy's place in the model."""
        return list(self.policies).index(name)


class TransformersEngine(Engine):
    """Samples from rollout copies of the policies in this process."""

    def __init__(
        self, rows: int | None = None, dtype: torch.dtype | None = None, fast: bool = True, graphs: bool = True
    ) -> None:
        """Make an engine without policies.

        Args:
            rows: greatest number of actions sampled at the same time; each has a slot in the key/value cache.  None:
                `MOST_ROWS`, or as many as fit into half of the free memory.
            dtype: dtype of the rollout copies' weights; None keeps each policy's own.
            fast: use the fused decoder if it supports the model; False always uses transformers' forward pass.
            graphs: on CUDA, the fused decoder runs its steps by captured graphs.
        """
        self.rows, self.dtype, self.fast, self.graphs = rows, dtype, fast, graphs
        self.counters = Counters()
        self._loaded: dict[str, _Loaded] = {}

    @classmethod
    def from_settings(cls, section: TransformersRollouts) -> TransformersEngine:
        """Create the engine from the ``rollouts`` section."""
        dtype = None if section.dtype == "auto" else getattr(torch, section.dtype)
        return cls(None if section.rows == "auto" else section.rows, dtype, graphs=section.cuda_graphs)

    def load(self, policies: Mapping[str, Policy]) -> None:
        """Take rollout copies of these policies, or their own weights where adapters share a base; drop all others."""
        self._loaded = {}
        shared: dict[int, dict[str, Policy]] = {}
        for name, policy in policies.items():
            plain = plain_model(policy)
            own = plain.get_input_embeddings().weight.dtype
            dtype = self.dtype or own
            key = base_key(policy) if self.fast and dtype == own else None
            if key is not None:
                shared.setdefault(key, {})[name] = policy
                continue
            reason = unsupported(plain)
            if self.fast and reason is not None:
                logger.warning("%s: %s; the general, slower way of sampling is used", name, reason)
            fused = self.fast and reason is None
            model: RolloutModel
            model = FusedDecoder(plain, dtype, self.graphs) if fused else GenericModel(policy.model, dtype)
            self._loaded[name] = _Loaded(model, {name: policy})
            self.update(policy)
        for key, group in shared.items():
            decoder = SharedDecoder(list(group.values()), self.graphs)
            versions = {name: policy.version for name, policy in group.items()}
            together = _Loaded(decoder, group, key, versions)
            self._loaded |= dict.fromkeys(group, together)

    def update(self, policy: Policy) -> None:
        """Take the policy's present weights, and clear the caches of the old ones."""
        loaded = self._served(policy.name)
        with torch.no_grad():
            if loaded.base is not None:
                if base_key(policy) != loaded.base:
                    raise EngineError(f"policy {policy.name!r} has another base than before; call load")
                loaded.policies[policy.name] = policy
                assert isinstance(loaded.model, SharedDecoder)
                loaded.model.refresh_adapter(loaded.number(policy.name), policy)
            else:
                self._copy_weights(loaded, policy)
        loaded.versions[policy.name] = policy.version
        loaded.first_logits.clear()

    def _copy_weights(self, loaded: _Loaded, policy: Policy) -> None:
        loaded.policies[policy.name] = policy
        if loaded.model.live:
            return
        state = plain_state(policy)
        shapes = {key: tuple(tensor.shape) for key, tensor in state.items()}
        if loaded.versions and shapes != loaded.shapes:
            known = loaded.shapes
            different = sorted(k for k in {*shapes, *known} if shapes.get(k) != known.get(k))[0]
            raise EngineError(
                f"policy {policy.name!r} has other weights than its rollout copy: {different} has shape "
                f"{shapes.get(different)}, the copy {known.get(different)}; call load for another model"
            )
        loaded.shapes = shapes
        loaded.model.refresh(state)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[list[Action]]:
        """Sample all actions; requests to policies of one model with the same distribution are one batch."""
        started = time.perf_counter()
        batches: dict[tuple[int, Sampling], list[int]] = {}
        for index, request in enumerate(requests):
            loaded = self._served(request.policy)
            batches.setdefault((id(loaded), sampling.of(request.policy)), []).append(index)
        results: list[list[Action]] = [[] for _ in requests]
        for (_, distribution), indices in batches.items():
            chosen = [requests[i] for i in indices]
            loaded = self._served(chosen[0].policy)
            for name in {request.policy for request in chosen}:
                require_current(loaded.policies[name], loaded.versions[name])
            served = self._serve(loaded, chosen, distribution, indices)
            for index, actions in zip(indices, served, strict=True):
                results[index] = actions
        self.counters.requests += len(requests)
        self.counters.seconds += time.perf_counter() - started
        return results

    def policy_of(self, name: str) -> Policy:
        """Return the policy that was loaded under a name."""
        return self._served(name).policies[name]

    def close(self) -> None:
        self._loaded = {}

    def _served(self, name: str) -> _Loaded:
        if name not in self._loaded:
            raise unknown_policy(name, self._loaded)
        return self._loaded[name]

    def _serve(
        self, loaded: _Loaded, requests: list[Request], sampling: Sampling, places: Sequence[int]
    ) -> list[list[Action]]:
        """Sample the actions of requests to one model; ``places``: their indices among all requests of the call."""
        known: dict[tuple[str, tuple[int, ...]], int] = {}
        owners = [known.setdefault((request.policy, request.prompt), len(known)) for request in requests]
        prompts, context = [prompt for _, prompt in known], loaded.model.context
        policy = loaded.policies[requests[0].policy]  # those on one base have the same tokenizer and stop strings
        lengths = np.fromiter(map(len, prompts), dtype=np.int64, count=len(prompts))
        fewest = min(request.n for request in requests)
        for extreme in (lengths.min(), lengths.max()):
            check_prompt(policy.name, int(extreme), fewest, context)
        counts = np.fromiter((request.n for request in requests), dtype=np.int64, count=len(requests))
        seeds = np.fromiter((request.seed & _SEED_MASK for request in requests), dtype=np.uint64, count=len(requests))
        ends = np.cumsum(counts)
        numbers = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        vocabulary = loaded.model.vocabulary
        ends_action = np.zeros(vocabulary, dtype=bool)
        ends_action[[i for i in policy.end_ids if i < vocabulary]] = True
        numbers_of = {name: loaded.number(name) for name in loaded.policies}
        work = Work(
            prompts=prompts,
            owner=np.repeat(np.array(owners, dtype=np.int64), counts),
            uniforms=uniforms(np.repeat(seeds, counts), numbers.astype(np.uint64), sampling.max_new_tokens),
            limits=np.minimum(sampling.max_new_tokens, context - lengths),
            ends=ends_action,
            stops=stop_test(policy),
            policies=np.array([numbers_of[name] for name, _ in known]) if loaded.base is not None else None,
        )
        limit = FIRST_LOGITS_BYTES // (4 * vocabulary)
        if len(loaded.first_logits) + len(prompts) > limit:
            loaded.first_logits.clear()
        longest = int((lengths + work.limits).max())
        batch = Batch(loaded.model, work, sampling, self._rows(loaded.model, longest), loaded.first_logits)
        if (listener := self.listener) is not None:
            owners_of = np.repeat(np.array(places), counts)

            def on_draw(members: Ints, drawn: Ints) -> None:
                for member, token in zip(members.tolist(), drawn.tolist(), strict=True):
                    listener(int(owners_of[member]), int(numbers[member]), token)

            batch.on_draw = on_draw
        batch.run()
        loaded.model.free()
        if is_large_here(policy.model):
            give_back_memory()  # else evaluations grow from call to call
        leaves = _actions(loaded, policy, batch)
        actions = [leaves[m] for m in batch.leaf.tolist()]
        self.counters.actions += len(actions)
        self.counters.prompt_tokens += batch.prompt_tokens
        self.counters.generated_tokens += int(batch.lengths.sum())
        self.counters.computed_tokens += batch.computed_tokens
        starts = (ends - counts).tolist()
        return [actions[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]

    def _rows(self, model: RolloutModel, length: int) -> int:
        """Return how many actions of up to ``length`` tokens (with their prompts) are sampled at the same time."""
        if self.rows is not None:
            return self.rows
        on_gpu = model.device.type == "cuda"
        free = int(torch.cuda.mem_get_info(model.device)[0]) if on_gpu else free_memory()
        each = length * model.bytes_per_token
        return max(1, min(MOST_ROWS, free // 2 // each if each else MOST_ROWS))


def _actions(loaded: _Loaded, policy: Policy, batch: Batch) -> dict[int, Action]:
    """Return an action for each representative member (`Batch.leaf`); texts are decoded once per call."""
    members = np.unique(batch.leaf).tolist()
    lengths = batch.lengths.tolist()
    ids = {m: tuple(batch.tokens[m, : lengths[m]].tolist()) for m in members}
    texts = loaded.texts
    if len(texts) >= TEXTS:
        texts.clear()
    new = [i for i in dict.fromkeys(ids.values()) if i not in texts]
    for key, text in zip(new, decode_all(policy, new), strict=True):
        texts[key] = cut_at_stop(text, policy.stop_strings)
    return {
        m: Action(
            ids=ids[m],
            logprobs=tuple(batch.logprobs[m, : lengths[m]].tolist()),
            text=texts[ids[m]],
            finish="stop" if batch.stopped[m] else "length",
        )
        for m in members
    }
