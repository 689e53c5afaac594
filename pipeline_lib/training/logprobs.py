"""Log-probabilities of sampled tokens under the sampling distribution, with memory independent of the vocabulary.

The output layer is applied only to the positions that predict a trained token.  If positions times vocabulary is large,
it is applied to a chunk of positions at a time, so that at most `LOGITS_CHUNK` logits exist at once.  Below an adapter
the layer is frozen, and the gradient of a chunk is computed with its logits; else they are recomputed in the backward
pass.  The distribution (temperature, top-k, top-p) is that of `pipeline_lib.rollouts.sampling`, from which engines
also sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from pipeline_lib.memory import LOGITS_CHUNK, SOFTMAX_PARTS
from pipeline_lib.policies.token_blocks import Block
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.sampling import scaled_logits
from pipeline_lib.training.packing import MicroBatch
from pipeline_lib.training.tree_attention import NAME, attend_to_blocks, with_blocks

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from pipeline_lib.training.fused_layers import FusedLayers


class TokenScorer(nn.Module):
    """A causal language model that returns log-probabilities of given tokens instead of logits.

    If the model is a decoder followed by a linear output layer, only needed positions go through that layer; a short
    input checks once that this gives the same logits.  Other models (soft-capped or scaled logits) compute all logits.
    Another short input checks whether the model can attend to a tree of tokens.

    Attributes:
        split: the output layer is applied separately.
        shares: packs may branch.
        layers: computes the decoder in place of the model, where there is one.
    """

    def __init__(self, model: PreTrainedModel, sampling: Sampling) -> None:
        super().__init__()
        self.layers: FusedLayers | None = None
        self.model = model
        self.sampling = sampling
        attend_to_blocks(_causal(model))
        self.split = _splits(model)
        self.shares = _attends_to_trees(model)

    def forward(self, batch: MicroBatch, entropy: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Score the edges of a micro-batch, which lies on the model's device.

        Args:
            batch: what to compute; packs that branch need a model that ``shares``.
            entropy: also return the entropy of the distribution each edge was drawn from.

        Returns:
            Natural-log probabilities, float32, shape (edges,); and entropies in nats, float32, shape (edges,), or None.
        """
        causal = _causal(self.model)
        if self.layers is not None and self.layers.usable:
            chosen = self.layers(batch.input_ids, batch.position_ids, batch.blocks, batch.positions)
        else:
            inputs = _inputs(causal, batch.input_ids, batch.position_ids, batch.visible, batch.blocks)
            decoder = getattr(causal, causal.base_model_prefix) if self.split else causal
            found = decoder(**inputs)
            hidden = found.last_hidden_state if self.split else found.logits
            chosen = hidden.flatten(0, 1).index_select(0, batch.positions)
        head = cast(nn.Module, causal.get_output_embeddings()) if self.split else nn.Identity()
        vocabulary = int(cast(torch.Tensor, head.weight).shape[0]) if self.split else chosen.shape[-1]
        rows = max(1, LOGITS_CHUNK // vocabulary)
        if len(chosen) <= rows:
            return _score(head, chosen, batch.targets, self.sampling, entropy)
        if isinstance(head, nn.Linear) and not entropy and not any(p.requires_grad for p in head.parameters()):
            given = chosen.to(head.weight.dtype)  # on a GPU, autocast computes some norms in float32
            logprobs: torch.Tensor = _BelowFrozenHead.apply(
                given, batch.targets, head.weight, head.bias, self.sampling, rows, torch.is_grad_enabled()
            )
            return logprobs, None
        parts = [
            checkpoint(_score, head, part, target, self.sampling, entropy, use_reentrant=False)
            for part, target in zip(chosen.split(rows), batch.targets.split(rows), strict=True)
        ]
        logprobs = torch.cat([part[0] for part in parts])
        return logprobs, (torch.cat([part[1] for part in parts]) if entropy else None)


def _score(
    head: nn.Module, hidden: torch.Tensor, targets: torch.Tensor, sampling: Sampling, entropy: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    # Drawn tokens stay in the support, even if rounding moves them across the threshold of top-k or top-p.
    scaled = scaled_logits(head(hidden), sampling, keep=targets)
    total = scaled.logsumexp(-1)
    chosen = scaled.gather(-1, targets[:, None])[:, 0] - total
    if not entropy:
        return chosen, None
    inside = scaled.masked_fill(scaled.isneginf(), 0.0)
    return chosen, total - (scaled.softmax(-1) * inside).sum(-1)


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))


class _BelowFrozenHead(torch.autograd.Function):
    """Log-probabilities below a linear output layer without gradient, a chunk of positions at a time.

    With logits W h + b and temperature t, the gradient of log p(target) is (onehot(target) - p) W / t, which depends on
    nothing that comes later.  So it is computed together with the value, and no chunk is computed twice.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        targets: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        sampling: Sampling,
        rows: int,
        differentiable: bool,
    ) -> torch.Tensor:
        """Return ``[positions]`` float32 for ``hidden``, ``[positions, width]``; ``rows`` positions are one chunk."""
        logprobs = torch.empty(len(hidden), device=hidden.device)
        gradient = torch.empty_like(hidden) if differentiable else None
        divisor = sampling.temperature or 1.0
        # The largest things in memory here: each is made once, and computed in place.
        space = hidden.new_empty(min(rows, len(hidden)), len(weight))
        part_rows = -(-rows // SOFTMAX_PARTS)
        floats = space if space.dtype == torch.float32 else space.new_empty(part_rows, len(weight), dtype=torch.float32)
        for chunk in _slices(len(hidden), rows):
            logits = space[: len(hidden[chunk])]
            torch.mm(hidden[chunk], weight.t(), out=logits)
            if bias is not None:
                logits += bias
            for part in _slices(len(logits), part_rows):
                own = targets[chunk][part][:, None]
                numbers = logits[part] if floats is space else floats[: len(logits[part])].copy_(logits[part])
                scaled = scaled_logits(numbers, sampling, keep=own[:, 0])
                # The log of a small probability is not exact; that of the largest one is, and they differ by this:
                below = scaled.gather(-1, own) - scaled.amax(-1, keepdim=True)
                torch.softmax(scaled, -1, out=scaled)
                logprobs[chunk][part] = (below + scaled.amax(-1, keepdim=True).log_())[:, 0]
                if gradient is not None:
                    scaled.scatter_add_(-1, own, torch.full_like(own, -1.0, dtype=torch.float32))
                    logits[part] = scaled
            if gradient is not None:
                torch.mm(logits, weight, out=gradient[chunk])
        if gradient is not None:
            gradient /= -divisor
        ctx.gradient = gradient
        return logprobs

    @staticmethod
    def backward(ctx: Any, given: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient of ``hidden`` from that of each log-probability."""
        return ((ctx.gradient * given[:, None]).to(ctx.gradient.dtype), None, None, None, None, None, None)


def _causal(model: PreTrainedModel) -> PreTrainedModel:
    """Return the causal language model below a LoRA wrapper (its layers carry the adapters), or the model itself."""
    unwrap = getattr(model, "get_base_model", None)
    return cast("PreTrainedModel", unwrap()) if unwrap else model


def _inputs(
    causal: PreTrainedModel,
    ids: torch.Tensor,
    places: torch.Tensor,
    visible: torch.Tensor | None,
    blocks: Sequence[Block] | None,
) -> dict[str, Any]:
    """Return the arguments of a forward pass; without branches, plain causal attention over right-padded rows."""
    if visible is None:
        return {"input_ids": ids, "use_cache": False}
    mask = with_blocks(visible[:, None], blocks)
    if getattr(causal.config, "_attn_implementation", None) not in ("sdpa", NAME):
        least = torch.finfo(torch.float32).min
        mask = torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, least)
    return {"input_ids": ids, "position_ids": places, "attention_mask": mask, "use_cache": False}


@torch.no_grad()
def _attends_to_trees(model: PreTrainedModel) -> bool:
    """Return whether a small tree of tokens gets the logits of its sequences, so that packs may branch."""
    causal = _causal(model)
    config = getattr(causal, "config", None)
    if getattr(config, "_attn_implementation", None) not in ("eager", "sdpa", NAME):
        return False
    # Our attention mask would replace a sliding window, and a short input cannot show the difference.
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
        return False
    if getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True):
        return False
    device = next(model.parameters()).device
    # One branch begins far behind the token that it follows, so that distances by columns (ALiBi) show, too.
    size = causal.config.get_text_config()
    far = min(33, getattr(size, "max_position_embeddings", 33)) - 1
    ids = torch.arange(1, far + 2, device=device)[None] % size.vocab_size
    places = torch.tensor([[*range(far), 1]], device=device)  # 1 2 3 ... and 1 33
    visible = torch.ones(1, far + 1, far + 1, dtype=torch.bool, device=device).tril()
    visible[0, far, 1:far] = False
    try:
        tree = causal(**_inputs(causal, ids, places, visible, None)).logits[0, far].float()
    except Exception:  # a model that takes no mask for each pair of tokens, such as Bloom
        return False
    chain = causal(input_ids=ids, use_cache=False).logits[0, far].float()
    own = causal(input_ids=ids[:, [0, far]], use_cache=False).logits[0, 1].float()
    # A relative comparison, because rounding errors depend on dtype and size.
    return bool((tree - own).abs().mean() <= 0.25 * (chain - own).abs().mean())


@torch.no_grad()
def _splits(model: PreTrainedModel) -> bool:
    """Return whether decoder plus output layer give the model's own logits, to the bit."""
    causal = _causal(model)
    head = causal.get_output_embeddings()
    decoder = getattr(causal, causal.base_model_prefix, None)
    if not isinstance(head, nn.Linear) or decoder is None:
        return False
    device = next(model.parameters()).device
    ids = torch.arange(4, device=device)[None] % head.out_features
    whole = causal(input_ids=ids, use_cache=False).logits
    parts = head(decoder(input_ids=ids, use_cache=False).last_hidden_state)
    return torch.equal(whole, parts)
