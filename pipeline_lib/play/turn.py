"""One turn of many episodes: observations become prompts, texts become actions, and everything is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_lib.credit.plan import Plan
from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.play.experience import Decision
from pipeline_lib.play.prompts import Observation, Prompts, fit
from pipeline_lib.play.roots import Root
from pipeline_lib.play.watching import Generation, Listening, Watcher
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.protocols import PromptRequest, TurnInput
from pipeline_lib.rollouts.engine import Action, Engine, Request, Sampling


@dataclass(slots=True)
class Node:
    """A state in which ``n`` joint actions are sampled.

    Attributes:
        root: first state of its episodes.
        slot: index of the root.
        agents: names of the agents, in acting order.
        state: the environment's state.
        n, group, parent, weight: see `Decision`.
        path: numbers of the joint actions that led to this state.
    """

    root: Root
    slot: int
    agents: tuple[str, ...]
    state: Any
    n: int
    group: int
    parent: int | None = None
    weight: float = 1.0
    path: tuple[int, ...] = ()


#: The record of one action: policy, prompt, action, round, agent.
_Sampled = tuple[str, tuple[int, ...], Action, int, str]


class Turn:
    """Sample the texts of one turn, and record them.

    Joint actions of one node with the same prompt become one request for several actions: a group shares its prompt.
    In a nested plan of credit several joint actions also share the actions of earlier agents, which are sampled once.

    Attributes:
        inputs: one for each joint action, in the order of ``nodes``.
    """

    def __init__(
        self,
        environment: Environment[Any, Any],
        team: Team,
        engine: Engine,
        sampling: Sampling,
        nodes: Sequence[Node],
        number: int,
        prompts: Prompts,
        plan: Plan,
        watcher: Watcher | None = None,
    ) -> None:
        self._plan = plan
        self._team, self._engine, self._sampling, self._nodes = team, engine, sampling, nodes
        self._number, self._prompts, self._watcher = number, prompts, watcher
        self.inputs: list[TurnInput] = []
        self._places: list[tuple[int, int]] = []  # of every input: its node, and which of the node's joint actions
        self._cut: list[tuple[int, int]] = []  # of every node: turns and tokens cut from its agents' observations
        for place, node in enumerate(nodes):
            acting = environment.acting(node.state)
            numbers = tuple(range(len(node.agents))) if acting is None else tuple(acting)
            observations = [""] * len(node.agents)
            turns = tokens = 0
            for agent in numbers:
                fitting = self._observe(environment, node, agent)
                observations[agent] = fitting.text
                turns, tokens = turns + fitting.cut_turns, tokens + fitting.cut_tokens
            self._cut.append((turns, tokens))
            self.inputs += [TurnInput(node.agents, numbers, tuple(observations))] * node.n
            self._places += [(place, j) for j in range(node.n)]
        self._rounds = 0
        self._times: dict[tuple[int, int], int] = {}  # how often an agent of an input was prompted
        self._sampled: list[list[_Sampled]] = [[] for _ in self.inputs]
        self._shared: list[list[int]] = [[] for _ in self.inputs]
        self._unread = [0] * len(self.inputs)

    def _observe(self, environment: Environment[Any, Any], node: Node, agent: int) -> Observation:
        """Return what an agent is shown; only later turns can be too long for its policy's context."""
        if not self._number:
            return Observation(environment.observe(node.state, agent))
        policy = self._team.policy_of(node.agents[agent])
        longest = self._sampling.of(policy.name).max_new_tokens
        return fit(environment, node.state, agent, policy, longest, self._prompts)

    def sample(self, wanted: Sequence[PromptRequest]) -> list[str]:
        """Sample one text per prompt; see `pipeline_lib.protocols.protocol.Sample`."""
        alike: dict[tuple[int, int, int, str], list[int]] = {}
        copies: list[tuple[int, int]] = []  # a prompt, and the one whose action it shares
        numbers_of = {(one.turn, one.agent): number for number, one in enumerate(wanted)}
        for number, one in enumerate(wanted):
            agent_of_input = one.turn, one.agent
            times = self._times.get(agent_of_input, 0)
            self._times[agent_of_input] = times + 1
            if (owner := self._owner(one)) != one.turn:
                copies.append((number, numbers_of[owner, one.agent]))
                continue
            alike.setdefault((self._places[one.turn][0], one.agent, times, one.prompt), []).append(number)
        answered: list[list[int]] = []
        requests: list[Request] = []
        generations: list[list[Generation]] = []
        for (place, agent, times, text), numbers in alike.items():
            first, node = wanted[numbers[0]].turn, self._nodes[place]
            j = self._places[first][1]
            policy = self._team.policy_of(node.agents[agent])
            prompt = self._prompts.ids(policy, text)
            # An agent's own observation fits into the context, or the engine refuses it; a text with quotes may not.
            if text != self.inputs[first].observations[agent] and _full(policy, prompt):
                for number in numbers:
                    self._unread[wanted[number].turn] += 1
                continue
            # An agent that is prompted again draws anew, and so do joint actions of one node with different prompts.
            again = (times, j) if j else (times,) if times else ()
            seed = node.root.chance.action(self._number, node.path, agent, *again)
            answered.append(numbers)
            requests.append(Request(policy.name, prompt, len(numbers), seed))
            generation = Generation(node.root, self._number, self._rounds, node.agents[agent], text)
            generations.append([generation] * len(numbers))
        texts = [""] * len(wanted)
        found = self._generate(requests, generations) if requests else []
        for numbers, request, actions in zip(answered, requests, found, strict=True):
            for number, action in zip(numbers, actions, strict=True):
                texts[number] = action.text
                one = wanted[number]
                name = self.inputs[one.turn].agents[one.agent]
                self._sampled[one.turn].append((request.policy, request.prompt, action, self._rounds, name))
        for number, other in copies:
            texts[number] = texts[other]
            self._share(wanted[number], wanted[other].turn)
        self._rounds += 1
        return texts

    def _owner(self, prompt: PromptRequest) -> int:
        """Return the input whose action answers a prompt: its own, or an earlier one in a nested plan."""
        own = self.inputs[prompt.turn]
        place, j = self._places[prompt.turn]
        size = self._nodes[place].n
        if not self._plan.nested or size == 1:
            return prompt.turn
        return prompt.turn - j % self._plan.block(own.acting.index(prompt.agent), len(own.acting), size)

    def _share(self, prompt: PromptRequest, owner: int) -> None:
        """Record the owner's action for this joint action too."""
        name = self.inputs[prompt.turn].agents[prompt.agent]
        shared = next((one for one in self._sampled[owner] if one[4] == name and one[3] == self._rounds), None)
        if shared is None:  # the prompt left no space
            self._unread[prompt.turn] += 1
            return
        self._shared[prompt.turn].append(len(self._sampled[prompt.turn]))
        self._sampled[prompt.turn].append(shared)

    def _generate(self, requests: Sequence[Request], generations: Sequence[Sequence[Generation]]) -> list[list[Action]]:
        if self._watcher is None or not self._watcher.listens:
            return self._engine.generate(requests, self._sampling)
        policies = [self._team.policies[request.policy] for request in requests]
        listening = Listening(self._watcher, generations, policies)
        self._engine.listener = listening.token
        try:
            found = self._engine.generate(requests, self._sampling)
        finally:
            self._engine.listener = None
        listening.finished(found)
        return found

    def decisions(self) -> list[Decision]:
        """Return the joint actions as decisions, in the order of ``inputs``, before they are executed."""
        found = []
        rows = zip(self._places, self._sampled, self._unread, self._shared, strict=True)
        for (place, _), sampled, unread, shared in rows:
            node = self._nodes[place]
            policies, prompts, actions, rounds, agents = zip(*sampled, strict=True) if sampled else ((), (), (), (), ())
            decision = Decision(
                node.root.problem.id, self._number, node.group, node.parent, node.weight, policies, prompts, actions
            )
            decision.rounds, decision.unread, decision.agents = rounds, unread, agents
            decision.shared = tuple(shared)
            decision.cut_turns, decision.cut_tokens = self._cut[place]
            found.append(decision)
        return found


def _full(policy: Policy, prompt: Sequence[int]) -> bool:
    """Return whether a prompt leaves no space for an action in the policy's context."""
    return policy.context is not None and len(prompt) >= policy.context
