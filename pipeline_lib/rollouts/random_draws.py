"""Uniform random numbers that depend only on (seed, action, position).

Draw t of action j of a request with seed s is a pure function of (s, j, t), the same on every machine and in any batch.
The generator is counter-based: SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014) applied to counters.  It is
not cryptographic.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
