"""Collects one step's experience: prompts to the engine, joint actions to the environment, turn by turn.

In every turn the prompts of all problems and agents go to the engine in one call, and all joint actions to the
environment in one call; or, with ``overlap``, in a few parts, of which one is executed while the next is sampled.
Joint actions pair the g-th actions of the agents ("align" in MAGRPO), so a group of G costs
G actions per agent, whatever the number of agents.  Each agent is prompted with its own observation and nothing else.

What follows an unfinished joint action depends on ``groups``: in a ``tree`` (the paper) a fresh group of G actions is
sampled below it; with ``episodes`` each of the G episodes just goes on, and at every turn the episodes of a problem
form a group.  A state in which the infrastructure failed is not continued.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline_lib.policies.policy import Team
from pipeline_lib.rollouts.engine import Action, Engine, Request, Sampling
from pipeline_lib.seam.environment import Environment, Outcome
from pipeline_lib.training.draws import derive
from pipeline_lib.training.experience import Decision, Experience

#: Observations whose token ids are remembered.
ENCODED = 2**14


class Problem(Protocol):
    """What training needs of a problem: a name that is unique among the problems of a run."""

    @property
    def id(self) -> str:
        """Return the name."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A state in which ``n`` joint actions are sampled."""

    slot: int
    state: Any
    n: int
    group: int
    parent: int | None
    weight: float
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Collector:
    """Plays a team on problems.

    Attributes:
        environment: the task.
        team: the policies; they are asked for token ids, sampling is the engine's.
        engine: holds rollout copies of the team's policies, up to date.
        sampling: the distribution actions are drawn from.
        group_size: G, joint actions that share a baseline.
        tree: sample a fresh group below every joint action; else continue episodes.
        seed: seed of the run.
        check: called between turns and parts; raises to stop.
        overlap: parts of a turn; with more than one, the next is sampled in a thread of its own while the
            environment executes the last.
    """

    environment: Environment[Any, Any]
    team: Team
    engine: Engine
    sampling: Sampling
    group_size: int
    tree: bool
    seed: int
    check: Callable[[], None] = lambda: None
    overlap: int = 1
    _encoded: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)  # by policy and observation

    def collect(self, problems: Sequence[Problem], step: int, slots: Sequence[int] | None = None) -> Experience:
        """Play one group on each problem.

        Args:
            problems: the problems of this step; a problem may occur twice.
            step: number of the update, part of every seed.
            slots: place of each problem in the whole step, part of every seed; by default 0, 1, ...
        """
        places = list(slots) if slots is not None else list(range(len(problems)))
        names = [f"{places[index]}:{problem.id}" for index, problem in enumerate(problems)]
        experience = Experience(versions={name: policy.version for name, policy in self.team.policies.items()})
        agents = [self.environment.agents(problem) for problem in problems]
        nodes = [
            _Node(
                slot=slot,
                state=self.environment.start(problem, derive("start", self.seed, step, names[slot])),
                n=self.group_size,
                group=slot,
                parent=None,
                weight=1.0,
                path=(),
            )
            for slot, problem in enumerate(problems)
        ]
        groups = len(nodes)
        turn = 0
        while nodes:
            first = len(experience.decisions)
            states = self._act(nodes, problems, agents, names, step, turn, experience)
            following: list[_Node] = []
            shared: dict[int, int] = {}
            place = first
            for node in nodes:
                for j in range(node.n):
                    decision = experience.decisions[place]
                    if not decision.last:
                        if self.tree or node.slot not in shared:
                            shared[node.slot] = groups
                            groups += 1
                        following.append(
                            _Node(
                                slot=node.slot,
                                state=states[place - first],
                                n=self.group_size if self.tree else 1,
                                group=shared[node.slot],
                                parent=place,
                                weight=node.weight / self.group_size if self.tree else node.weight,
                                path=(*node.path, j),
                            )
                        )
                    place += 1
            nodes = following
            turn += 1
        return experience

    def _act(
        self,
        nodes: Sequence[_Node],
        problems: Sequence[Problem],
        agents: Sequence[tuple[str, ...]],
        names: Sequence[str],
        step: int,
        turn: int,
        experience: Experience,
    ) -> list[Any]:
        """Sample and execute the joint actions of one turn, append the decisions, and return the states they led to."""
        started, before = time.perf_counter(), experience.generation_s
        size = -(-len(nodes) // self.overlap)
        parts = [nodes[first : first + size] for first in range(0, len(nodes), size)]

        def sample(part: Sequence[_Node]) -> tuple[list[Any], list[list[str]]]:
            self.check()
            return self._sample(part, problems, agents, names, step, turn, experience)

        outcomes: list[Outcome[Any]] = []
        states, joint_actions = sample(parts[0])
        # The environment stays in this thread: processes it starts may be bound to the life of the thread.
        with ThreadPoolExecutor(1, thread_name_prefix="sampling") as executor:
            for part in [*parts[1:], None]:
                ahead = executor.submit(sample, part) if part else None
                executed = time.perf_counter()
                outcomes += self.environment.step(states, joint_actions)
                experience.execution_s += time.perf_counter() - executed
                if ahead is not None:
                    states, joint_actions = ahead.result()
        experience.waiting_s += time.perf_counter() - started - (experience.generation_s - before)
        made = experience.decisions[len(experience.decisions) - len(outcomes) :]
        for decision, outcome in zip(made, outcomes, strict=True):
            decision.reward = outcome.reward
            decision.terms = outcome.terms
            decision.metrics = outcome.metrics
            decision.last = outcome.done or outcome.reward is None
        return [outcome.state for outcome in outcomes]

    def _sample(
        self,
        nodes: Sequence[_Node],
        problems: Sequence[Problem],
        agents: Sequence[tuple[str, ...]],
        names: Sequence[str],
        step: int,
        turn: int,
        experience: Experience,
    ) -> tuple[list[Any], list[list[str]]]:
        """Sample joint actions, append them as decisions, and return state and texts of each."""
        started = time.perf_counter()
        requests: list[Request] = []
        actors: list[list[int]] = []
        if len(self._encoded) > ENCODED:
            self._encoded.clear()
        for node in nodes:
            acting = self.environment.acting(node.state)
            numbers = list(range(len(agents[node.slot]))) if acting is None else list(acting)
            actors.append(numbers)
            for number in numbers:
                policy = self.team.policy_of(agents[node.slot][number])
                text = self.environment.observe(node.state, number)
                if (policy.name, text) not in self._encoded:
                    self._encoded[policy.name, text] = policy.encode(text)
                seed = derive("action", self.seed, step, names[node.slot], turn, node.path, number)
                requests.append(Request(policy.name, self._encoded[policy.name, text], node.n, seed))
        answers = iter(zip(requests, self.engine.generate(requests, self.sampling), strict=True))
        states: list[Any] = []
        joint_actions: list[list[str]] = []
        for node, numbers in zip(nodes, actors, strict=True):
            asked: list[tuple[Request, list[Action]]] = [next(answers) for _ in numbers]
            for j in range(node.n):
                texts = [""] * len(agents[node.slot])
                for number, (_, actions) in zip(numbers, asked, strict=True):
                    texts[number] = actions[j].text
                states.append(node.state)
                joint_actions.append(texts)
                experience.decisions.append(
                    Decision(
                        problem=problems[node.slot].id,
                        turn=turn,
                        group=node.group,
                        parent=node.parent,
                        weight=node.weight,
                        policies=tuple(request.policy for request, _ in asked),
                        prompts=tuple(request.prompt for request, _ in asked),
                        actions=tuple(actions[j] for _, actions in asked),
                    )
                )
        experience.generation_s += time.perf_counter() - started
        return states, joint_actions
