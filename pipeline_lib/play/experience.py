"""The experience of a step: a flat list of decisions; each refers to the decision that it followed.

A decision is one joint action in one state, with its reward.  The tree of MAGRPO's multi-turn variant and plain
episodes are both stored in this form; they differ only in ``parent``, ``group`` and ``weight``.  This module contains
data only.
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
    """One joint action with all texts that led to it, and its result.

    A protocol may let agents write several times before the joint action is executed (`pipeline_lib.protocols`).  Each
    text is an action here, including drafts, because each was sampled from a policy and led to the reward.
    """

    problem: str  #: id of the problem
    turn: int  #: number of the turn, from 0
    group: int  #: decisions with the same number share a baseline
    parent: int | None  #: index (in `Experience.decisions`) of the decision this one followed; None in the first turn
    #: > 0, weight of this decision in the sum over its turn; 1 / G**turn in a tree, so that every turn of an episode
    #: has the same weight although each turn has G times more decisions than the one before.
    weight: float
    policies: tuple[str, ...]  #: name of the policy of each action
    prompts: tuple[tuple[int, ...], ...]  #: token ids of the prompt of each action
    actions: tuple[Action, ...]  #: the sampled texts, in the order of ``policies``
    reward: float | None = None  #: joint reward of the turn, None if the infrastructure failed
    terms: Mapping[str, float] = field(default_factory=dict)  #: weighted reward terms
    agent_rewards: Mapping[str, float] = field(default_factory=dict)  #: what each agent earns by itself, by name
    metrics: Mapping[str, float] = field(default_factory=dict)  #: unweighted quantities of the turn
    last: bool = True  #: whether the episode ended with this turn
    details: Mapping[str, Any] = field(default_factory=dict)  #: JSON-like facts for the report
    #: Number of the round within the turn in which each action was sampled, from 0; those of one round are sampled at
    #: the same time.
    rounds: tuple[int, ...] = ()
    #: Number of actions that read the result of a tool.  What an agent wrote before it is an action too, the call, and
    #: its prompt, its ids and the ids of the result are the prompt of the action that follows.
    tool_calls: int = 0
    #: Number of prompts that quoted so much text that no space was left for an action; nothing was sampled.
    unread: int = 0
    agents: tuple[str, ...] = ()  #: name of the agent of each action
    #: Places of the actions that were sampled once for several joint actions, and are counted with another.
    shared: tuple[int, ...] = ()
    #: cut_turns, cut_tokens: what was cut from the observations of all agents, because earlier turns did not fit into a
    #: policy's context.
    cut_turns: int = 0
    cut_tokens: int = 0
    #: Observation of every agent of the team in this state, also of those that do not act; recorded for a critic only.
    seen: tuple[str, ...] = ()

    def sampled(self) -> list[tuple[str, Action]]:
        """Return the policy and the action of everything that was sampled for this decision."""
        pairs = enumerate(zip(self.policies, self.actions, strict=True))
        return [pair for place, pair in pairs if place not in self.shared]


@dataclass(frozen=True, slots=True)
class Cells:
    """The rewards of the combinations of one group's actions (`pipeline_lib.credit`).

    Nothing is sampled for combinations, and no episode continues from one that is not a sampled joint action.
    """

    first: int  #: index (in `Experience.decisions`) of the group's first decision; the others follow it
    #: Shape (cells, agents): whose action each acting agent takes, as a number in the group, or `NOTHING`; the sampled
    #: joint actions (g, ..., g) are among them.
    chosen: NDArray[np.int64]
    rewards: NDArray[np.float64]  #: shape (cells,), of this turn only; NaN if the infrastructure failed

    @property
    def size(self) -> int:
        """Return the number of actions per agent (G)."""
        return int(self.chosen.max()) + 1


@dataclass(slots=True)
class Experience:
    """All decisions, in the order they were made (a parent before its children)."""

    #: See `Decision`; those of the first turn are ordered by root.
    decisions: list[Decision] = field(default_factory=list)
    #: Number of optimiser steps each policy had when it was sampled from.
    versions: dict[str, int] = field(default_factory=dict)
    generation_s: float = 0.0  #: wall seconds in the engine
    execution_s: float = 0.0  #: wall seconds in the environment
    waiting_s: float = 0.0  #: wall seconds in which nothing was sampled because the environment was still executing
    #: Combinations that were executed for credit, one table per group with combinations.
    cells: list[Cells] = field(default_factory=list)
    executed: int = 0  #: joint actions that the environment executed; equal texts in one state count once
    lost: int = 0  #: the number of these that the infrastructure lost
    #: What executing and criticising them cost, by name (`Outcome.details`); each amount a sum.
    costs: dict[str, float] = field(default_factory=dict)

    def episodes(self) -> list[list[Decision]]:
        """Return the decisions of each episode, turn by turn, in the order in which episodes began.

        Raises:
            ValueError: this is a tree: a decision was followed by several others.
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
        add_amounts(whole.costs, part.costs)
        first = len(whole.decisions)
        whole.cells += [replace(cells, first=cells.first + first) for cells in part.cells]
        for decision in part.decisions:
            parent = None if decision.parent is None else decision.parent + first
            whole.decisions.append(replace(decision, parent=parent, group=decision.group + groups))
        groups += max((decision.group for decision in part.decisions), default=-1) + 1
    return whole


def costs_of(experience: Experience) -> dict[str, float]:
    """Return the metrics ``costs/<name>`` of what was played."""
    return {f"costs/{name}": amount for name, amount in experience.costs.items()}


def add_amounts(sums: dict[str, float], further: Mapping[str, float]) -> None:
    """Add further amounts to ``sums``."""
    for name, amount in further.items():
        sums[name] = sums.get(name, 0.0) + amount
