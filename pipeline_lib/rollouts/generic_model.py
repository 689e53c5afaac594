"""The general path: any causal language model that transformers loads, through its own forward pass.

For models that both paths support, actions are the same up to rounding.  Prompts are padded on the
left, with explicit attention mask and positions, so the tokenizer's padding side does not matter.  Prompts are run once
and their group shares the cache; finished sequences leave the batch; slots are filled only when all are free.  A model
whose cache cannot be rearranged by row (recurrent states) is run without a cache, which is slow but correct.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from pipeline_lib.rollouts.engine import EngineError
from pipeline_lib.rollouts.rollout_model import Ints, Prefill, RolloutModel

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel


class GenericModel(RolloutModel):
    """Calls transformers, with a copy of a policy's model, or with the model itself if it has an adapter."""

    refills = False

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype) -> None:
        """Take ``model``: an adapter with the dtype of its base as it is, anything else as a copy without gradients.

        The trained model itself always has the newest weights, and needs no second base.
        """
        config: Any = model.config.get_text_config()
        plain: Any = model
        self.live = hasattr(model, "peft_config") and model.get_input_embeddings().weight.dtype == dtype
        if not self.live:
            plain = copy.deepcopy(model)
            plain = plain.unload() if hasattr(plain, "unload") else plain  # a PeftModel gives back its base
            plain = plain.to(dtype=dtype).eval().requires_grad_(False)
        self._model = plain
        self.context = int(getattr(config, "max_position_embeddings", None) or 2**31)
        self.vocabulary, self.device = int(config.vocab_size), model.device
        query_heads = int(getattr(config, "num_attention_heads", None) or 1)
        heads = int(getattr(config, "num_key_value_heads", None) or query_heads)
        size = int(getattr(config, "head_dim", None) or config.hidden_size // query_heads)
        # Its cache is copied when it is lengthened.
        self.bytes_per_token = 4 * config.num_hidden_layers * heads * size * torch.finfo(dtype).bits // 8
        accepted = inspect.signature(_causal(plain).forward).parameters
        self._takes_positions = "position_ids" in accepted
        #: Asks for the logits of the last token only.
        self._last: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        with self._evaluating():
            self._cached = _row_cache(self._model)
        self._cache: Any = None  # transformers' cache of the active slots; without one, their token ids
        self._mask = torch.zeros(0)

    def refresh(self, state: Mapping[str, Tensor]) -> None:
        """Copy the weights.

        Raises:
            EngineError: the names are not those of the plain model; a missing weight would stay unchanged.
        """
        own = self._model.state_dict()
        if state.keys() != own.keys():
            name = min(state.keys() ^ own.keys())
            raise EngineError(f"{name}: a weight of the {'rollout copy' if name in own else 'policy'} alone; call load")
        self._model.load_state_dict(dict(state))

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Leave training mode, in which gradient checkpointing would switch the cache off."""
        training = [module for module in self._model.modules() if module.training]
        self._model.eval()
        try:
            yield
        finally:
            for module in training:
                module.training = True

    def prefill(self, prompts: Sequence[tuple[int, ...]], keep: bool, owners: Ints | None = None) -> Prefill:
        """Run prompts padded on the left."""
        longest = max(len(p) for p in prompts)
        ids = torch.zeros((len(prompts), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        ids, mask = ids.to(self.device), mask.to(self.device)
        if not self._cached:
            return Prefill(self._uncached(ids, mask), (ids, mask))
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        result = self._call(ids, mask, positions, None)
        return Prefill(result.logits[:, -1].float(), (result.past_key_values, mask) if keep else None)

    def _call(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Any:
        extra: dict[str, Any] = {"position_ids": positions} if self._takes_positions else {}
        with self._evaluating():
            return self._model(
                input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True, **extra, **self._last
            )

    def _uncached(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return next-token logits of left-padded sequences, one sequence at a time, without padding or cache."""
        sequences = [row[seen.bool()] for row, seen in zip(ids, mask, strict=True)]
        rows = []
        with self._evaluating():
            for sequence in sequences:
                logits = self._model(input_ids=sequence[None], use_cache=False, **self._last).logits
                rows.append(logits[0, -1].float().clone())  # a view would keep the logits of all tokens
        return torch.stack(rows)

    def reserve(self, slots: int, length: int, drawn: int) -> None:
        """Clear the slots; the cache grows as needed."""
        self._cache = None

    def place(self, prefill: Prefill, rows: Ints, slots: Ints) -> None:
        """Copy prompts of one prefill into all slots in use."""
        cache, mask = prefill.cache
        chosen = np.empty(len(rows), dtype=np.int64)
        chosen[slots] = rows
        index = torch.from_numpy(chosen).to(self.device)
        self._mask = mask[index]
        if not self._cached:
            self._cache = cache[index]
            return
        self._cache = copy.deepcopy(cache)
        self._cache.batch_select_indices(index)

    def move(self, sources: Ints, targets: Ints, count: int) -> None:
        if self._cache is None or (not len(sources) and count == len(self._mask)):
            return
        chosen = np.arange(count)
        chosen[targets] = sources
        index = torch.from_numpy(chosen).to(self.device)
        self._mask = self._mask[index]
        if self._cached:
            self._cache.batch_select_indices(index)
        else:
            self._cache = self._cache[index]

    def step(self, tokens: Ints, positions: Ints, owners: Ints | None = None) -> Tensor:
        ids = torch.from_numpy(tokens).to(self.device)[:, None]
        self._mask = torch.cat([self._mask, torch.ones_like(ids)], dim=1)
        if not self._cached:
            self._cache = torch.cat([self._cache, ids], dim=1)
            return self._uncached(self._cache, self._mask)
        where = torch.from_numpy(positions).to(self.device)[:, None]
        result = self._call(ids, self._mask, where, self._cache)
        self._cache = result.past_key_values
        return result.logits[:, -1].float()


def _causal(model: Any) -> Any:
    """Return the model below an adapter's wrapper, whose signature is its own."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@torch.inference_mode()
def _row_cache(model: PreTrainedModel) -> bool:
    """Return whether the model's cache holds nothing but keys and values that can be selected by row.

    Decided by running one token: recurrent layers carry states that padding would corrupt.
    """
    result: Any = model(input_ids=torch.zeros((1, 1), dtype=torch.long, device=model.device), use_cache=True)
    cache = getattr(result, "past_key_values", None)
    if cache is None or not hasattr(cache, "batch_select_indices"):
        return False
    return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in getattr(cache, "layers", [None]))
