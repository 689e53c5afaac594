"""What was played: a flat list of decisions that point at the decision they followed.

A decision is one joint action in one state, with the reward it led to.  The tree of MAGRPO's multi-turn variant and
plain episodes are both written this way; they differ only in ``parent``, ``group`` and ``weight``.  This module holds
data, it computes nothing that changes a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.rollouts.engine import Action


@dataclass(slots=True)
class Decision:
    """One joint action, all that agents said to come by it, and what came of it.

    A protocol may let agents speak several times before the joint action is executed (`pipeline_lib.protocols`): each
    time is an action here, drafts too, because each was sampled from a policy and led to the reward.

    Attributes:
        problem: id of the problem.
        turn: number of the turn, from 0.
        group: decisions with the same number share a baseline.
        parent: index (in `Experience.decisions`) of the decision this one followed; None in the first turn.
        weight: > 0, share of this decision in the sum over its turn; 1 / G**turn in a tree, so that every turn of an
            episode counts alike although a tree holds G times more decisions a turn deeper.
        policies: name of the policy behind each action.
        prompts: token ids of the prompt of each action.
        actions: what was said, in the order of ``policies``.
        reward: joint reward of the turn, None when the infrastructure failed.
        terms: weighted reward terms.
        metrics: unweighted quantities of the turn.
        last: no further turn followed.
        details: JSON-like facts for the report.
        rounds: number of the round within the turn in which each action was sampled, from 0; those of one round are
            sampled at the same time.
        unread: prompts to which the protocol added so much that they left no room for an action; nothing was said.
    """

    problem: str
    turn: int
    group: int
    parent: int | None
    weight: float
    policies: tuple[str, ...]
    prompts: tuple[tuple[int, ...], ...]
    actions: tuple[Action, ...]
    reward: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    last: bool = True
    details: Mapping[str, Any] = field(default_factory=dict)
    rounds: tuple[int, ...] = ()
    unread: int = 0


@dataclass(frozen=True, slots=True)
class Cells:
    """What the combinations of one group's actions earned (`pipeline_lib.credit`), beside its sampled joint actions.

    Nothing was sampled for them, and no episode goes on from one that was not sampled as a joint action.

    Attributes:
        first: index (in `Experience.decisions`) of the first of the group's decisions, which stand in a row.
        chosen: shape (cells, agents): whose action each acting agent takes, as a number in the group; the sampled joint
            actions (g, ..., g) are among them.
        rewards: shape (cells,), of this turn alone; NaN where the infrastructure failed.
    """

    first: int
    chosen: NDArray[np.int64]
    rewards: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Return the number of actions per agent (G)."""
        return int(self.chosen.max()) + 1


@dataclass(slots=True)
class Experience:
    """All decisions, in the order they were made (a parent before its children).

    Attributes:
        decisions: see `Decision`; those of the first turn come root by root.
        versions: number of optimiser steps each policy had when it was sampled from.
        generation_s: wall seconds in the engine.
        execution_s: wall seconds in the environment.
        waiting_s: wall seconds in which nothing was sampled because the environment was not done.
        cells: combinations that were executed to credit actions, a table for each group that has any.
        executed: joint actions that the environment was given, each combination of equal texts in one state once.
        lost: those of them that the infrastructure failed at.
    """

    decisions: list[Decision] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    generation_s: float = 0.0
    execution_s: float = 0.0
    waiting_s: float = 0.0
    cells: list[Cells] = field(default_factory=list)
    executed: int = 0
    lost: int = 0

    def episodes(self) -> list[list[Decision]]:
        """Return the decisions of each episode, turn by turn, in the order in which episodes began.

        Raises:
            ValueError: these are trees: a decision was followed by several.
        """
        found: list[list[Decision]] = []
        episode: list[int] = []
        followed: set[int] = set()
        for decision in self.decisions:
            if decision.parent is None:
                episode.append(len(found))
                found.append([decision])
                continue
            if decision.parent in followed:
                raise ValueError("decisions were followed by several others; a tree does not consist of episodes")
            followed.add(decision.parent)
            episode.append(episode[decision.parent])
            found[episode[-1]].append(decision)
        return found


def join(parts: Sequence[Experience]) -> Experience:
    """Return the experience of several processes as one; times are those of the slowest.

    Raises:
        ValueError: they were collected with different versions of the policies.
    """
    if len(parts) == 1:
        return parts[0]
    if any(part.versions != parts[0].versions for part in parts):
        raise ValueError(f"processes sampled from different versions: {[part.versions for part in parts]}")
    whole = Experience(
        versions=parts[0].versions,
        generation_s=max(part.generation_s for part in parts),
        execution_s=max(part.execution_s for part in parts),
        waiting_s=max(part.waiting_s for part in parts),
        executed=sum(part.executed for part in parts),
        lost=sum(part.lost for part in parts),
    )
    groups = 0
    for part in parts:
        first = len(whole.decisions)
        whole.cells += [replace(cells, first=cells.first + first) for cells in part.cells]
        for decision in part.decisions:
            parent = None if decision.parent is None else decision.parent + first
            whole.decisions.append(replace(decision, parent=parent, group=decision.group + groups))
        groups += max((decision.group for decision in part.decisions), default=-1) + 1
    return whole
