"""Returns and group-relative advantages.

The return of a decision is its reward plus the discounted mean return of the decisions that followed it:

    R_d = r_d + discount * mean(R_c for c in the children of d)

On MAGRPO's tree (arXiv 2508.04652) the children are the group sampled below a joint action.  In plain episodes there is
one child, and R is the ordinary return-to-go.  The return of a decision without children is its reward.

Where turns are attempts at the same thing and success ends the episode, the sum of rewards pays for failing first: an
almost right attempt and a right one earn more together than a right one alone.  With ``gains`` a turn earns what it
adds to the turn before, r_d - r_parent.  Undiscounted, the first turn's return is then the mean reward of the last
turns; with a discount g of two turns it is (1 - g) r_1 + g r_2, so success in the first turn is worth more.  This is
shaping by a potential, which changes no optimal policy (Ng et al. 1999).

Advantages compare the returns of one group.  The paper subtracts the mean and does not divide by the standard
deviation.  No option is added implicitly (centring a second time would make all baselines equal).  If the
infrastructure failed there is no reward: the decision is left out of its group and of every mean, and is never scored
as 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.environment_api.environment import EQUAL

if TYPE_CHECKING:
    from pipeline_lib.settings.train import AdvantageSettings


def returns_to_go(
    rewards: Sequence[float | None],
    parents: Sequence[int | None],
    discount: float,
    gains: bool = False,
    values: Sequence[float] | None = None,
    trace: float = 1.0,
) -> list[float | None]:
    """Return R of every decision.

    Args:
        rewards: reward per decision, None where the infrastructure failed.
        parents: index of the decision each one followed (smaller than its own), or None.
        discount: in (0, 1], weight of the next turn.
        gains: a turn earns what its reward adds to that of the turn before.
        values: a critic's value of the state of every decision.
        trace: in [0, 1], lambda: of what follows, the share that is R_c; the rest is the critic's value of the state.

    Returns:
        R per decision; None if its own reward or those of all its children are missing.

    Raises:
        ValueError: a parent does not come before its child.
    """
    children: list[list[int]] = [[] for _ in rewards]
    for index, parent in enumerate(parents):
        if parent is None:
            continue
        if not 0 <= parent < index:
            raise ValueError(f"decision {index} names parent {parent}; a parent must come before its children")
        children[parent].append(index)
    returns: list[float | None] = [None] * len(rewards)
    for index in range(len(rewards) - 1, -1, -1):
        reward, parent = rewards[index], parents[index]
        if reward is None:
            continue
        if gains and parent is not None:
            reward -= rewards[parent] or 0.0  # a decision without reward has no children
        if not children[index]:
            returns[index] = float(reward)
            continue
        following = [value for child in children[index] if (value := returns[child]) is not None]
        if following and values is not None:  # the children of a decision are in one state
            following = [trace * float(np.mean(following)) + (1 - trace) * values[children[index][0]]]
        if following:
            returns[index] = float(reward) + discount * float(np.mean(following))
    return returns


def group_advantages(
    returns: NDArray[np.float64], settings: AdvantageSettings, spread: float | None = None
) -> NDArray[np.float64]:
    """Return the advantages of one group.

    With n returns R and m = mean(R):  ``mean`` R - m;  ``leave_one_out`` (n R - sum R) / (n - 1), the distance to the
    mean of the others;  ``max`` R - max(R);  ``none`` R.  Any ``scale`` divides by the population standard deviation
    of R.  A group whose returns are all equal has advantages of exactly 0 (``none``: R, not divided), and so has a
    group of one.

    Args:
        returns: shape (n,), finite.
        settings: baseline and scale.
        spread: what ``group_std`` divides by instead of the standard deviation of ``returns``; > 0.

    Returns:
        Shape (n,).
    """
    size = returns.size
    if size == 0:
        return returns.copy()
    flat = is_flat(returns)
    if settings.baseline == "none":
        advantages = returns.copy()
    elif flat:
        return np.zeros(size)
    elif settings.baseline == "mean":
        advantages = returns - returns.mean()
    elif settings.baseline == "leave_one_out":
        advantages = (size * returns - returns.sum()) / (size - 1)
    else:
        advantages = returns - returns.max()
    if settings.scale != "none" and not flat:
        advantages = advantages / (returns.std() if spread is None else spread)
    return advantages


def is_flat(returns: NDArray[np.float64]) -> bool:
    """Return whether all returns of a group are equal, so that all of its relative advantages are 0."""
    return bool(np.ptp(returns) <= EQUAL * max(1.0, float(np.abs(returns).max()))) if returns.size else True


def advantages(
    returns: Sequence[float | None], groups: Sequence[int], settings: AdvantageSettings
) -> tuple[list[float | None], dict[int, bool]]:
    """Return the advantage of every joint action by itself, and for every group whether its returns are all equal.

    Args:
        returns: R per decision, or None (left out of its group; its advantage is None).
        groups: number of the group of each decision.
        settings: baseline and scale.

    Returns:
        An advantage per decision; by group, whether all of its returns are equal (groups without returns are left out).
    """
    members: dict[int, list[int]] = {}
    for index, (value, group) in enumerate(zip(returns, groups, strict=True)):
        if value is not None:
            members.setdefault(group, []).append(index)
    result: list[float | None] = [None] * len(returns)
    flat = {}
    for group, indices in members.items():
        values = np.array([returns[i] for i in indices], dtype=np.float64)
        flat[group] = is_flat(values)
        for index, advantage in zip(indices, group_advantages(values, settings), strict=True):
            result[index] = float(advantage)
    return result, flat
