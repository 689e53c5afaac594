"""The training data of one policy: its actions with their advantages, merged and weighted.

Two exact reductions happen here: equal (prompt, action) pairs become one row whose weights are summed, and rows whose
weights are all zero are left out.  The normaliser is computed before that, so neither changes a gradient.

Actions are token ids, never text, and are never padded: the trained tokens are exactly those that the policy sampled,
including the end token and nothing after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.play.experience import Experience

if TYPE_CHECKING:
    from pipeline_lib.settings.train import LossSettings


@dataclass(frozen=True, slots=True)
class WeightedAction:
    """One action with its advantage, before equal actions are merged."""

    prompt: tuple[int, ...]  #: token ids of the prompt
    action: tuple[int, ...]  #: token ids of the action, never empty
    behaviour: tuple[float, ...]  #: log-probability of each action token under the distribution it was sampled from
    advantage: float  #: see `pipeline_lib.training.advantages`
    weight: float  #: > 0, see `Decision.weight`
    version: int = 0  #: number of optimiser steps the policy had when the action was sampled


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of a policy's actions.

    ``actions`` enter the loss, ``tokens`` are their tokens; ``collapsed`` were merged into an equal row, ``skipped``
    have weight zero, ``truncated`` reached the length limit and were left out; ``rows`` go through the model.
    """

    actions: int
    tokens: int
    rows: int
    collapsed: int
    skipped: int
    truncated: int


@dataclass(frozen=True, slots=True)
class PolicyBatch:
    """Rows of one policy, and flat arrays over all their action tokens (row after row)."""

    prompts: list[tuple[int, ...]]  #: ids per row
    actions: list[tuple[int, ...]]  #: ids per row
    #: Shape (rows + 1,); tokens of row i are ``offsets[i]:offsets[i + 1]`` of the arrays below.
    offsets: NDArray[np.int64]
    behaviour: NDArray[np.float64]  #: shape (tokens,), log-probabilities in the engine (mean over merged rows)
    #: Shape (tokens,), >= 0, sum of positive advantages times weight, divided by the normaliser.
    positive: NDArray[np.float64]
    negative: NDArray[np.float64]  #: shape (tokens,), >= 0, the same for negative advantages, without their sign
    weight: NDArray[np.float64]  #: shape (tokens,), > 0, the same with 1 for the advantage (for KL and entropy)
    counts: Counts  #: see `Counts`


def actions_of(
    experience: Experience, advantages: Sequence[Sequence[float | None]], mask_truncated: bool
) -> dict[str, tuple[list[WeightedAction], int]]:
    """Return the actions to train on, and the number of truncated ones left out, by policy.

    Args:
        experience: the experience of a step.
        advantages: for each decision one per action; actions with None (infrastructure failure) are left out.
        mask_truncated: leave truncated actions out.
    """
    found: dict[str, list[WeightedAction]] = {}
    truncated: dict[str, int] = {}
    for decision, row in zip(experience.decisions, advantages, strict=True):
        sampled = zip(decision.policies, decision.prompts, decision.actions, row, strict=True)
        for policy, prompt, action, advantage in sampled:
            if advantage is None:
                continue
            rows = found.setdefault(policy, [])
            if mask_truncated and action.finish == "length":
                truncated[policy] = truncated.get(policy, 0) + 1
                continue
            version = experience.versions.get(policy, 0)
            rows.append(WeightedAction(prompt, action.ids, action.logprobs, advantage, decision.weight, version))
    return {policy: (rows, truncated.get(policy, 0)) for policy, rows in found.items()}


def normaliser(actions: Sequence[WeightedAction], kind: str) -> float:
    """Return the number that the summed loss is divided by: weighted tokens, or weighted sequences.

    Args:
        actions: all actions of a policy in this step, with any advantage.
        kind: ``batch_tokens``, ``sequences`` or ``sequence_mean``.
    """
    if kind == "batch_tokens":
        return float(sum(action.weight * len(action.action) for action in actions))
    return float(sum(action.weight for action in actions))


def build(actions: Sequence[WeightedAction], divisor: float, settings: LossSettings, truncated: int = 0) -> PolicyBatch:
    """Merge equal actions, leave out those without gradient, and arrange the others by token.

    Args:
        actions: all actions of a policy in this step.
        divisor: see `normaliser` (summed over all processes when there are several).
        settings: the loss; a row with zero advantage is kept if KL or entropy give it a gradient.
        truncated: number of actions that were left out before.

    Raises:
        ValueError: an action is empty or its log-probabilities do not match its length.
    """
    merged: dict[tuple[tuple[int, ...], tuple[int, ...]], list[float]] = {}
    behaviours: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[float, ...]]] = {}
    for item in actions:
        if not item.action or len(item.action) != len(item.behaviour):
            raise ValueError(
                f"an action has {len(item.action)} ids and {len(item.behaviour)} log-probabilities; "
                "both must be equally long and not empty"
            )
        share = item.weight / divisor
        if settings.normalisation == "sequence_mean":
            share /= len(item.action)
        sums = merged.setdefault((item.prompt, item.action), [0.0, 0.0, 0.0, 0])
        sums[0] += max(item.advantage, 0.0) * share
        sums[1] += max(-item.advantage, 0.0) * share
        sums[2] += share
        sums[3] += 1
        behaviours.setdefault((item.prompt, item.action), []).append(item.behaviour)
    keep_all = settings.kl > 0 or settings.entropy > 0
    # The ratio clips positive and negative parts differently, so they cancel only without it.
    cancel = settings.epochs == 1
    kept, skipped, collapsed = [], 0, 0
    for key, (positive, negative, weight, copies) in merged.items():
        if not keep_all and (positive == negative if cancel else positive == negative == 0.0):
            skipped += int(copies)
            continue
        collapsed += int(copies) - 1
        kept.append((key, positive, negative, weight))
    lengths = [len(key[1]) for key, *_ in kept]
    repeat = np.array(lengths, dtype=np.int64)
    counts = Counts(
        actions=len(actions),
        tokens=sum(len(item.action) for item in actions),
        rows=len(kept),
        collapsed=collapsed,
        skipped=skipped,
        truncated=truncated,
    )
    return PolicyBatch(
        prompts=[key[0] for key, *_ in kept],
        actions=[key[1] for key, *_ in kept],
        offsets=np.concatenate([[0], np.cumsum(repeat)]).astype(np.int64),
        behaviour=np.array([value for key, *_ in kept for value in np.mean(behaviours[key], axis=0)], dtype=np.float64),
        positive=np.repeat(np.array([row[1] for row in kept], dtype=np.float64), repeat),
        negative=np.repeat(np.array([row[2] for row in kept], dtype=np.float64), repeat),
        weight=np.repeat(np.array([row[3] for row in kept], dtype=np.float64), repeat),
        counts=counts,
    )
