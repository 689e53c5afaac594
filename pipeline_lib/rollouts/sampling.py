"""The distribution that actions are sampled from, and the random numbers that decide.

Only this module applies temperature, top-k and top-p.  Engines sample from, and training computes log-probabilities
under, the result of `scaled_logits`, so the two can only differ by rounding of the logits.  Another inference server
may filter in another order; for such engines training measures the difference.

Greedy sampling (temperature 0) has no useful distribution (the chosen token has probability 1), so its
log-probabilities are the model's own: temperature 1, full vocabulary.

Uniform random number t of action j of a request with seed s is a pure function of (s, j, t), the same on every machine
and in any batch.  The generator is counter-based: SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014) applied
to counters.  It is not cryptographic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline_lib.rollouts.engine import Sampling


def scaled_logits(logits: Tensor, sampling: Sampling, keep: Tensor | None = None) -> Tensor:
    """Apply temperature, then top-k, then top-p; dropped tokens become -inf.

    Args:
        logits: ``[..., vocabulary]``, any float type; computed in fp32.  Gradients flow through kept tokens.
        sampling: the settings of the distribution.
        keep: optional ``[...]`` token ids that always stay in the support.  Training passes the drawn ids, since
            rounding can move a token across the threshold of a filter, and its log-probability must be finite.

    Returns:
        ``[..., vocabulary]`` fp32 whose softmax is the sampling distribution.
    """
    scaled = logits.float()
    if sampling.temperature > 0 and sampling.temperature != 1:
        scaled = scaled / sampling.temperature
    if sampling.temperature == 0 or (sampling.top_k <= 0 and sampling.top_p >= 1):
        return scaled
    dropped = _dropped(scaled.detach(), sampling)
    if keep is not None:
        dropped = dropped.scatter(-1, keep.unsqueeze(-1), False)
    return scaled.masked_fill(dropped, float("-inf"))


def _dropped(scaled: Tensor, sampling: Sampling) -> Tensor:
    """Return a ``[..., vocabulary]`` mask of tokens outside the top-k or the nucleus; the likeliest always stays.

    Equal logits are ordered by token id, so exactly k tokens survive top-k.
    """
    ordered, ids = scaled.sort(dim=-1, descending=True, stable=True)
    beyond = torch.zeros_like(ordered, dtype=torch.bool)
    if 0 < sampling.top_k < ordered.shape[-1]:
        beyond[..., sampling.top_k :] = True
        ordered = ordered.masked_fill(beyond, float("-inf"))
    if sampling.top_p < 1:
        mass = ordered.softmax(-1)
        beyond |= mass.cumsum(-1) - mass >= sampling.top_p  # the token that crosses the threshold is kept
    return torch.empty_like(beyond).scatter_(-1, ids, beyond)


def draw(logits: Tensor, rows: Tensor | None, uniforms: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Draw one token per uniform by inverting the cumulative distribution.

    Args:
        logits: ``[rows, vocabulary]``.
        rows: ``[draws]`` int64, which row each uniform draws from; None means one draw per row, in order.
        uniforms: ``[draws]`` fp32 in [0, 1), of at most 23 bits (so that ``u * total < total`` in fp32).
        sampling: the settings of the distribution; temperature 0 takes the likeliest token.

    Returns:
        Token ids ``[draws]`` int64 and their log-probabilities ``[draws]`` fp32.
    """
    probabilities = scaled_logits(logits, sampling).softmax(-1)
    if sampling.temperature == 0:
        best, ids = probabilities.max(-1)
        return (ids, best.log()) if rows is None else (ids[rows], best.log()[rows])
    cumulative = probabilities.cumsum(-1)
    if rows is not None:
        cumulative = cumulative.index_select(0, rows)
    targets = uniforms.unsqueeze(-1) * cumulative[:, -1:]
    ids = torch.searchsorted(cumulative, targets, right=True).squeeze(-1)
    lines = torch.arange(len(ids), device=ids.device) if rows is None else rows
    places = lines * probabilities.shape[1]
    chosen = probabilities.take(places + ids)
    if ids.is_cuda and bool(
        (impossible := chosen == 0).any()
    ):  # a parallel cumulative sum is not always monotonic in its last bits
        ids = torch.where(impossible, probabilities.argmax(-1)[lines], ids)
        chosen = probabilities.take(places + ids)
    return ids, chosen.log()


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return SplitMix64's output function of each element (arithmetic modulo 2**64)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniforms(seeds: npt.NDArray[np.uint64], actions: npt.NDArray[np.uint64], count: int) -> npt.NDArray[np.float32]:
    """Return the first ``count`` uniforms of each (seed, action).

    Args:
        seeds: ``[n]`` seeds of the requests, modulo 2**64.
        actions: ``[n]`` numbers of the actions within their requests.
        count: how many draws per action.

    Returns:
        ``[n, count]`` fp32 in [0, 1): multiples of 2**-23.  With 23 bits, ``u * total < total`` holds in fp32 for
        every positive total, so inverting a cumulative sum never runs past its end.
    """
    key = _mix(_mix(seeds + _GOLDEN) + _GOLDEN * (actions + np.uint64(1)))
    steps = _GOLDEN * np.arange(1, count + 1, dtype=np.uint64)
    bits = _mix(key[:, None] + steps[None, :]) >> np.uint64(41)
    return bits.astype(np.float32) * np.float32(2.0**-23)


def spread_seed(seed: int) -> int:
    """Return a seed in [0, 2**62) for engines with their own generators.

    Such engines use seed + j for action j, so neighbouring seeds would share actions; the results are far apart.
    """
    return int(_mix(np.array([seed & (2**64 - 1)], dtype=np.uint64) + _GOLDEN)[0]) >> 2
