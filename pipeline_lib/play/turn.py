"""One turn of many episodes: observations become prompts, texts become actions, and everything is recorded.

From observations to prompts: token ids, and the cut of a history that leaves too little room for an action.

The critic: before agents act again, each agent's own untrained base answers what the agent would be shown.

Nobody trains the critic, and it sees nothing that the agent itself does not see.  The environment decides what agents
are told of its answers (`Environment.criticised`).  Answers are greedy, so that they depend neither on a seed nor on
the batch; equal questions of a turn are asked once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pipeline_lib.credit.plan import Plan
from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.play.experience import Decision
from pipeline_lib.play.roots import Root
from pipeline_lib.play.watching import Generation, Listening, Watcher
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.protocols import PromptRequest, TurnInput
from pipeline_lib.rollouts.engine import Action, Engine, Request, Sampling

#: Number of prompts whose token ids are cached.
ENCODED = 2**14


class Prompts:
    """A cache of token ids of prompts, by policy and text; groups and later steps use the same prompts."""

    def __init__(self) -> None:
        self._ids: dict[tuple[str, str], tuple[int, ...]] = {}

    def ids(self, policy: Policy, text: str) -> tuple[int, ...]:
        """Return the token ids of a prompt."""
        key = policy.name, text
        if key not in self._ids:
            if len(self._ids) >= ENCODED:
                self._ids.clear()
            self._ids[key] = policy.encode(text)
        return self._ids[key]


class Observation(NamedTuple):
    """An observation, and what was cut from it: turns, and tokens."""

    text: str
    cut_turns: int = 0
    cut_tokens: int = 0


def fit(
    environment: Environment[Any, Any], state: Any, agent: int, policy: Policy, max_new_tokens: int, prompts: Prompts
) -> Observation:
    """Return an observation that leaves room for an action of full length, cut from the oldest turn on if need be.

    If not even the shortest one does, it is returned all the same: the action is then shorter.
    """
    text = environment.observe(state, agent)
    if policy.context is None or environment.shortened(state, agent, 1) is None:
        return Observation(text)
    room = policy.context - max_new_tokens
    whole = size = len(prompts.ids(policy, text))
    cut = 0
    while size > room and (shorter := environment.shortened(state, agent, cut + 1)) is not None:
        cut, text = cut + 1, shorter
        size = len(prompts.ids(policy, text))
    return Observation(text, cut, whole - size)


#: What is counted, for the first episode with a question: questions, and tokens read and written for them.
COSTS = ("critic_requests", "critic_prompt_tokens", "critic_completion_tokens")

#: A base's name, and the token ids of what it is asked.
_Question = tuple[str, tuple[int, ...]]


def criticise(
    environment: Environment[Any, Any],
    team: Team,
    engine: Engine,
    max_new_tokens: int,
    prompts: Prompts,
    outcomes: Sequence[tuple[Sequence[str], Outcome[Any]]],
) -> list[Outcome[Any]]:
    """Return the outcomes with the critic's answers in their states, where the episode goes on; all count the costs.

    The engine holds copies of the team's bases.  ``outcomes`` are of the sampled joint actions of a turn, each with the
    names of the agents.  PolicyError if an agent has no base.
    """
    asked = [_questions(environment, team, max_new_tokens, prompts, *one) for one in outcomes]
    different = list(dict.fromkeys(question for own in asked for question in own.values()))
    requests = [Request(policy, prompt, 1, seed=0) for policy, prompt in different]
    greedy = Sampling(temperature=0.0, max_new_tokens=max_new_tokens)
    found = engine.generate(requests, greedy) if requests else []
    answers = {question: actions[0] for question, actions in zip(different, found, strict=True)}
    unpaid = set(different)
    results = []
    for (_, outcome), own in zip(outcomes, asked, strict=True):
        new = unpaid & set(own.values())
        unpaid -= new
        amounts = (
            float(len(new)),
            float(sum(len(prompt) for _, prompt in new)),
            float(sum(len(answers[question].ids) for question in new)),
        )
        costs = {**outcome.details.get("costs", {}), **dict(zip(COSTS, amounts, strict=True))}
        state = outcome.state
        if own:
            state = environment.criticised(state, {agent: answers[question].text for agent, question in own.items()})
        results.append(replace(outcome, state=state, details={**outcome.details, "costs": costs}))
    return results


def _questions(
    environment: Environment[Any, Any],
    team: Team,
    max_new_tokens: int,
    prompts: Prompts,
    names: Sequence[str],
    outcome: Outcome[Any],
) -> dict[int, _Question]:
    """Return by number of the agent what its base is asked after an outcome; nothing if the episode has ended."""
    if outcome.done or outcome.reward is None:
        return {}
    acting = environment.acting(outcome.state)
    found = {}
    for agent in range(len(names)) if acting is None else acting:
        base = team.base_of(names[agent])
        text = fit(environment, outcome.state, agent, base, max_new_tokens, prompts).text
        found[agent] = base.name, prompts.ids(base, text)
    return found


@dataclass(slots=True)
class Node:
    """A state in which ``n`` joint actions are sampled."""

    root: Root  #: first state of its episodes
    slot: int  #: index of the root
    agents: tuple[str, ...]  #: names of the agents, in acting order
    state: Any  #: the environment's state
    #: n, group, parent, weight: see `Decision`.
    n: int
    group: int
    parent: int | None = None
    weight: float = 1.0
    path: tuple[int, ...] = ()  #: numbers of the joint actions that led to this state


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
