"""Chance in training: every draw is a function of the seed and of where it is used, so there is no generator state.

A run that continues after a kill, and a run whose batches are cut differently, draw the same numbers.
"""

from __future__ import annotations

import numpy as np

from pipeline_lib.storage import digest


def derive(*parts: int | str | tuple[int, ...]) -> int:
    """Return a seed in [0, 2**60) that depends on every part and on nothing else."""
    return int(digest([list(part) if isinstance(part, tuple) else part for part in parts])[:15], 16)


def problem_order(count: int, seed: int, position: int, size: int) -> list[int]:
    """Return the next problems of an endless sequence of shuffled epochs.

    Every epoch holds each problem once, in an order of its own; a step may span two epochs.

    Args:
        count: number of problems, > 0.
        seed: seed of the run.
        position: number of problems drawn before.
        size: number of problems to draw.

    Returns:
        ``size`` indices in [0, count).
    """
    orders: dict[int, list[int]] = {}
    drawn = []
    for place in range(position, position + size):
        epoch, index = divmod(place, count)
        if epoch not in orders:
            orders[epoch] = np.random.default_rng(derive("epoch", seed, epoch)).permutation(count).tolist()
        drawn.append(orders[epoch][index])
    return drawn
