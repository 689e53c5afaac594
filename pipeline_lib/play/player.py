"""The rollout loop: prompts to the engine, joint actions to the environment, turn by turn, until all episodes end.

In every turn each round of the protocol is one call of the engine for all episodes and agents, and all joint actions
are one call of the environment.  With ``overlap`` a turn has a few parts, and one is executed while the next is
sampled.  If the environment has a critic, the bases of the agents answer last, in one call of the engine for the whole
turn (`criticise`).  Joint actions pair the g-th actions of the agents ("align" in MAGRPO), so a group of G costs G
actions per agent and round, for any number of agents.  A plan of credit (`pipeline_lib.credit`) adds combinations of
these actions, which are executed in the same call and only used for comparison.  Episodes continue from the sampled
joint actions and never from another combination.  The pairing is fixed before anything is executed, so the visited
states are those that the team itself visits, not those with the best outcome.

What follows an unfinished joint action depends on ``tree``: in a tree (the paper) a new group of G actions is sampled
below it; otherwise each of the G episodes continues, and at every turn the episodes of a problem form a group.  A state
in which the infrastructure failed is not continued.  Nothing is learned or summed up here.

Combine the actions of a group into further joint actions, to estimate each agent's contribution to the reward.

A combination whose texts already occur together, in a joint action or in another combination of the same state, is not
executed again, because the same texts in one state have the same outcome.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.plans import NOTHING, Aligned, Plan
from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.play.experience import Cells, Experience, add_amounts
from pipeline_lib.play.roots import Root
from pipeline_lib.play.turn import Node, Playing, Turn
from pipeline_lib.policies.policy import is_remote
from pipeline_lib.protocols import TurnInput


@dataclass(slots=True)
class Execution:
    """The joint actions that the environment executes: first the sampled ones, then combinations."""

    states: list[Any]  #: a state per joint action
    joint_actions: list[Sequence[str]]  #: one text per agent, for each of ``states``
    sampled: int  #: how many of them were sampled; the rest are combinations
    #: For each group with combinations, the index of its first joint action, its cells (shape (cells, agents), see
    #: `Cells.chosen`), and which of ``joint_actions`` each cell is.
    tables: list[tuple[int, NDArray[np.int64], list[int]]]
    lost: Mapping[int, str] = field(default_factory=dict)  #: `Turn.lost`

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
    """Return all joint actions to execute: the sampled ones (one text per agent, for each input), and the plan's
    combinations.

    There is an input for each joint action, node by node.  ValueError if the plan does not exist for the agents and
    actions of a node.
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


def _lost(outcome: Outcome[Any], error: str) -> Outcome[Any]:
    """Return the outcome of a joint action whose agents were not told what they asked for."""
    details = {"status": "tool_failed", "error": error, "costs": outcome.details.get("costs", {})}
    return Outcome(None, {}, {}, outcome.state, done=True, details=details)


@dataclass(frozen=True, slots=True)
class Player(Playing):
    """A team that plays in its environment."""

    def play(self, roots: Sequence[Root]) -> Experience:
        """Play episodes from every root to their end.

        Raises:
            ValueError: these agents cannot play the protocol, or there are tools with unusable limits, beside
                combinations or several parts, or for an agent on a server.
            TypeError: a tool answers something else than a `ToolResult` for each text.
            EngineError: see `Engine.generate`; an observation that does not fit into a policy's context by itself is
                an error in the settings.
        """
        self.environment.refuse_unusable_tools()
        if self.environment.tool_calls and (self.plan != Aligned() or self.overlap > 1):
            # A tool may tell of what the others wrote in this joint action, so in another one it would tell other
            # things; and a tool runs programs, which must stay in the thread of the environment.
            raise ValueError("an environment with tools needs the plan aligned and an overlap of 1")
        if self.environment.tool_calls and (served := [p.name for p in self.team.policies.values() if is_remote(p)]):
            raise ValueError(
                f"{', '.join(served)} is played by a server, which gets one message and cannot continue its own text; "
                "in an environment with tools a model has to play it here"
            )
        experience = Experience(versions={name: policy.version for name, policy in self.team.policies.items()})
        nodes = []
        for number, root in enumerate(roots):
            agents = self.environment.agents(root.problem)
            self.protocol.check(agents)
            state = self.environment.start(root.problem, root.chance.start())
            nodes.append(Node(root, number, agents, state, n=root.n, group=number))
        groups = len(nodes)
        turn = 0
        while nodes:
            first = len(experience.decisions)
            states = self._turn(nodes, turn, experience)
            following: list[Node] = []
            shared: dict[int, int] = {}
            place = first
            for node in nodes:
                # The episodes of one root share a group in every turn; below a joint action of a tree a group is new.
                for j in range(node.n):
                    decision = experience.decisions[place]
                    if not decision.last:
                        if self.tree or node.slot not in shared:
                            shared[node.slot] = groups
                            groups += 1
                        following.append(
                            Node(
                                root=node.root,
                                slot=node.slot,
                                agents=node.agents,
                                state=states[place - first],
                                n=node.root.n if self.tree else 1,
                                group=shared[node.slot],
                                parent=place,
                                weight=node.weight / node.root.n if self.tree else node.weight,
                                path=(*node.path, j),
                            )
                        )
                    place += 1
            nodes = following
            turn += 1
        return experience

    def _turn(self, nodes: Sequence[Node], number: int, experience: Experience) -> list[Any]:
        """Sample and execute the joint actions of one turn, append the decisions, and return the states they led to."""
        started, before = time.perf_counter(), experience.generation_s
        last = any(limit is not None and number + 1 >= limit for limit in (self.protocol.turns, self.turns))
        size = -(-len(nodes) // self.overlap)
        parts = [nodes[first : first + size] for first in range(0, len(nodes), size)]
        first = len(experience.decisions)

        def sample(part: Sequence[Node]) -> Execution:
            self.check()
            began = time.perf_counter()
            turn = Turn(self, part, number)
            joint_actions = self.protocol.act(turn.inputs, turn.sample)
            experience.decisions += turn.decisions()
            experience.generation_s += time.perf_counter() - began
            return replace(combine(self.plan, self.environment, part, turn.inputs, joint_actions), lost=turn.lost)

        outcomes: list[Outcome[Any]] = []
        executed_actions: list[Sequence[str]] = []
        execution = sample(parts[0])
        # The environment stays in this thread: processes it starts may be bound to the life of the thread.
        with ThreadPoolExecutor(1, thread_name_prefix="sampling") as executor:
            for part in [*parts[1:], None]:
                ahead = executor.submit(sample, part) if part else None
                executed = time.perf_counter()
                states = [self.environment.ending(state) for state in execution.states] if last else execution.states
                found = self.environment.step(states, execution.joint_actions)
                for place, error in execution.lost.items():
                    found[place] = _lost(found[place], error)
                self.environment.refuse_outside_bounds(found)
                self.environment.refuse_unusable_metrics(found)
                executed_actions += execution.joint_actions[: execution.sampled]
                experience.execution_s += time.perf_counter() - executed
                experience.cells += execution.cells(found, first + len(outcomes))
                experience.executed += len(found)
                experience.lost += sum(outcome.reward is None for outcome in found)
                for outcome in found[execution.sampled :]:
                    add_amounts(experience.costs, outcome.details.get("costs", {}))
                outcomes += found[: execution.sampled]
                if ahead is not None:
                    execution = ahead.result()
        if self.environment.has_critic and not last:
            self.check()
            began = time.perf_counter()
            agents = [node.agents for node in nodes for _ in range(node.n)]
            outcomes = self.criticise(list(zip(agents, outcomes, strict=True)))
            experience.generation_s += time.perf_counter() - began
        for outcome in outcomes:
            add_amounts(experience.costs, outcome.details.get("costs", {}))
        experience.waiting_s += time.perf_counter() - started - (experience.generation_s - before)
        for decision, outcome in zip(experience.decisions[first:], outcomes, strict=True):
            decision.reward = outcome.reward
            decision.terms = outcome.terms
            decision.agent_rewards = outcome.agent_rewards
            decision.metrics = outcome.metrics
            decision.details = outcome.details
            decision.last = last or outcome.done or outcome.reward is None
        if self.watcher is not None:
            roots = [node.root for node in nodes for _ in range(node.n)]
            for root, joint_action, outcome in zip(roots, executed_actions, outcomes, strict=True):
                self.watcher.judged(root, number, joint_action, outcome)
        return [outcome.state for outcome in outcomes]
