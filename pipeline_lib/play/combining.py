"""Combine the actions of a group into further joint actions, to estimate each agent's contribution to the reward.

A combination whose texts already occur together, in a joint action or in another combination of the same state, is not
executed again, because the same texts in one state have the same outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.plan import NOTHING, Plan
from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.play.experience import Cells
from pipeline_lib.play.turn import Node
from pipeline_lib.protocols import TurnInput


@dataclass(slots=True)
class Execution:
    """The joint actions that the environment executes: first the sampled ones, then combinations.

    Attributes:
        states: a state per joint action.
        joint_actions: one text per agent, for each of ``states``.
        sampled: how many of them were sampled; the rest are combinations.
        tables: for each group with combinations, the index of its first joint action, its cells (shape (cells,
            agents), see `Cells.chosen`), and which of ``joint_actions`` each cell is.
    """

    states: list[Any]
    joint_actions: list[Sequence[str]]
    sampled: int
    tables: list[tuple[int, NDArray[np.int64], list[int]]]

    def cells(self, outcomes: Sequence[Outcome[Any]], first: int) -> list[Cells]:
        """Return the reward of every cell; ``first`` is the index of the first decision of these joint actions."""
        rewards = np.array([np.nan if o.reward is None else o.reward for o in outcomes], dtype=np.float64)
        return [Cells(first + start, chosen, rewards[places]) for start, chosen, places in self.tables]


def combine(
    plan: Plan,
    environment: Environment[Any, Any],
    nodes: Sequence[Node],
    inputs: Sequence[TurnInput],
    joint_actions: Sequence[Sequence[str]],
) -> Execution:
    """Return all joint actions to execute.

    Args:
        plan: the plan of credit, which selects the combinations.
        environment: knows the action that contributes nothing.
        nodes: the states, each with its number of joint actions.
        inputs: one for each joint action, node by node.
        joint_actions: one text per agent, for each input.

    Raises:
        ValueError: the plan does not exist for the agents and actions of a node.
    """
    states = [node.state for node in nodes for _ in range(node.n)]
    found = Execution(states, list(joint_actions), len(states), [])
    start = 0
    for node in nodes:
        acting = inputs[start].acting
        chosen = plan.cells(len(acting), node.n) if acting else np.empty((0, 0), dtype=np.int64)
        if len(chosen) > node.n or (plan.nested and len(acting) > 1 and node.n > 1):
            found.tables.append((start, chosen, _places(found, environment, node, start, acting, chosen)))
        start += node.n
    return found


def _places(
    found: Execution,
    environment: Environment[Any, Any],
    node: Node,
    start: int,
    acting: Sequence[int],
    chosen: NDArray[np.int64],
) -> list[int]:
    """Return the index of each cell's joint action; new joint actions are added."""
    sampled = found.joint_actions[start : start + node.n]
    known: dict[tuple[str, ...], int] = {}
    for j, texts in enumerate(sampled):
        known.setdefault(tuple(texts), start + j)
    places = []
    for numbers in chosen.tolist():
        if all(number == numbers[0] for number in numbers):
            places.append(start + numbers[0])
            continue
        texts = [""] * len(node.agents)
        for agent, number in zip(acting, numbers, strict=True):
            texts[agent] = environment.stub(node.state, agent) if number == NOTHING else sampled[number][agent]
        place = known.setdefault(tuple(texts), len(found.joint_actions))
        if place == len(found.joint_actions):
            found.states.append(node.state)
            found.joint_actions.append(texts)
        places.append(place)
    return places
