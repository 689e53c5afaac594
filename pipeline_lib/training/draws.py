"""The order of problems: a function of seed and position, so that a killed run continues with the same problems."""

from __future__ import annotations

import numpy as np

from pipeline_lib.play.roots import derive


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
