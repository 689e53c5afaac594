"""The policy-gradient loss over the tokens of a micro-batch.

With advantage A of an action, weight w and normaliser Z (see `pipeline_lib.training.batch`), and log p under the
sampling distribution, the loss of MAGRPO (arXiv 2508.04652, one policy) is

    L = - sum over actions (w / Z) A  sum over its tokens c log p   + kl K - entropy H

The factor c and the terms K and H depend on the settings:

* c, truncated importance sampling: min(p_trainer / p_engine, cap) for tokens on which engine and trainer disagree by
  more than a threshold (in nats), because the engine sampled the action; 1 for all others;
* with several epochs per batch, log p becomes the ratio r = p / p_old to the policy that the batch was collected
  with, clipped as in PPO (arXiv 1707.06347): A > 0 counts min(r, 1 + clip), A < 0 counts max(r, 1 - clip).  In the
  first pass r = 1 and the gradient is that of A log p;
* K is the estimator exp(d) - d - 1 with d = log p_base - log p (never negative, zero when they agree), H the entropy,
  both summed with the same w / Z.

All arguments are trained tokens; prompts and padding never reach this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pipeline_lib.settings.train import LossSettings


@dataclass(frozen=True, slots=True)
class Tokens:
    """The trained tokens of a micro-batch; every tensor has shape (n,) and dtype float32."""

    logprobs: torch.Tensor  #: log p, with gradient
    behaviour: torch.Tensor  #: log-probability in the engine
    positive: torch.Tensor  #: see `PolicyBatch`; ``positive - negative`` is w A / Z
    negative: torch.Tensor  #: the same
    weight: torch.Tensor  #: w / Z
    old: torch.Tensor | None = None  #: log p before the first update of this batch; None in the first pass
    reference: torch.Tensor | None = None  #: log p under the base policy; None without a KL term
    entropy: torch.Tensor | None = None  #: entropy at the position, with gradient; None without an entropy bonus


@dataclass(frozen=True, slots=True)
class LossParts:
    """What a micro-batch adds to the loss, and sums over its tokens for the log (no gradient)."""

    loss: torch.Tensor  #: scalar with gradient; the batch's loss is the sum over micro-batches
    kl: float  #: sum of the KL estimator over tokens, weighted like the loss
    clipped: int  #: number of tokens whose ratio is clipped
    corrected: int  #: number of tokens with an importance weight other than 1
    gap_sum: float  #: sum of |trainer - engine| log-probability over tokens
    gap_max: float  #: maximum of the same


def policy_loss(tokens: Tokens, settings: LossSettings) -> LossParts:
    """Return the loss of some tokens; see the module's formula."""
    logprobs = tokens.logprobs
    collected = logprobs.detach() if tokens.old is None else tokens.old
    gap = collected - tokens.behaviour
    differs = gap.abs() > settings.importance_threshold
    correction = torch.where(differs, gap.exp().clamp(max=settings.importance_cap), 1.0)
    clipped = 0
    if tokens.old is None:
        objective = (tokens.positive - tokens.negative) * logprobs
    else:
        ratio = (logprobs - collected).exp()
        up, down = ratio.clamp(max=1 + settings.clip), ratio.clamp(min=1 - settings.clip)
        objective = tokens.positive * up - tokens.negative * down
        held = ((tokens.positive > 0) & (up < ratio)) | ((tokens.negative > 0) & (down > ratio))
        clipped = int(held.sum())
    loss = -(correction * objective).sum()
    kl = 0.0
    if tokens.reference is not None:
        difference = tokens.reference - logprobs
        divergence = (tokens.weight * (difference.exp() - difference - 1)).sum()
        loss = loss + settings.kl * divergence
        kl = float(divergence.detach())
    if tokens.entropy is not None:
        loss = loss - settings.entropy * (tokens.weight * tokens.entropy).sum()
    return LossParts(
        loss=loss,
        kl=kl,
        clipped=clipped,
        corrected=int(differs.sum()),
        gap_sum=float(gap.abs().sum()),
        gap_max=float(gap.abs().max()) if gap.numel() else 0.0,
    )
