"""One turn of many episodes: observations become prompts, texts become actions, and everything is recorded.

From observations to prompts: token ids, and the cut of a history that leaves too little room for an action.

The critic: before agents act again, each agent's own untrained base answers what the agent would be shown.

Nobody trains the critic, and it sees nothing that the agent itself does not see.  The environment decides what agents
are told of its answers (`Environment.criticised`).  Answers are greedy, so that they depend neither on a seed nor on
the batch; equal questions of a turn are asked once.

Tools: an agent whose text calls a tool reads the result and writes on, from the ids of its prompt, its call and the
result.  Each text is an action of its own, with all ids before it as its prompt.  So no token of a result is trained,
and log-probabilities are those that the engine sampled with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pipeline_lib.credit.plans import Aligned, Plan
from pipeline_lib.environment_api.environment import Environment, Outcome, ToolCall
from pipeline_lib.play.experience import Decision
from pipeline_lib.play.roots import Root
from pipeline_lib.play.watching import Generation, Listening, Watcher
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.protocols import Decentralised, PromptRequest, Protocol, TurnInput
from pipeline_lib.rollouts.engine import Action, Engine, Request, Sampling

#: Number of prompts whose token ids are cached.
ENCODED = 2**14


class Observation(NamedTuple):
    """An observation, and what was cut from it: turns, and tokens."""

    text: str
    cut_turns: int = 0
    cut_tokens: int = 0


#: What is counted, for the first episode with a question: questions, and tokens read and written for them.
COSTS = ("critic_requests", "critic_prompt_tokens", "critic_completion_tokens")

#: A base's name, and the token ids of what it is asked.
_Question = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Playing:
    """A team in its environment, and how it plays; `Player` plays."""

    environment: Environment[Any, Any]  #: the task
    team: Team  #: the policies; they encode prompts, and the engine samples
    #: Holds up-to-date rollout copies of the team's policies (`Engine.load`, `Engine.update`).
    engine: Engine
    sampling: Sampling  #: the distribution from which actions are sampled
    protocol: Protocol = field(default_factory=Decentralised)  #: how the team produces a joint action
    tree: bool = False  #: sample a new group below every joint action; otherwise continue episodes
    #: Which combinations of a group's actions are executed; beyond ``aligned`` it needs a protocol in which agents act
    #: independently of each other, or (``nested``) one in which they act one after the other.
    plan: Plan = field(default_factory=Aligned)
    check: Callable[[], None] = lambda: None  #: called between turns and parts; it raises an error to stop
    #: Number of parts of a turn; with more than one, the next part is sampled in a separate thread while the
    #: environment executes the last one.
    overlap: int = 1
    turns: int | None = (
        None  #: turns after which every episode ends; None: when the environment or the protocol ends it
    )
    watcher: Watcher | None = None  #: receives prompts, tokens, actions and outcomes
    observed: bool = False  #: record what every agent observes, for a critic (`Decision.seen`)
    _ids: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)

    def ids(self, policy: Policy, text: str) -> tuple[int, ...]:
        """Return the token ids of a prompt; they are kept, because groups and later steps use the same prompts."""
        key = policy.name, text
        if key not in self._ids:
            if len(self._ids) >= ENCODED:
                self._ids.clear()
            self._ids[key] = policy.encode(text)
        return self._ids[key]

    def fit(self, state: Any, agent: int, policy: Policy, max_new_tokens: int) -> Observation:
        """Return an observation that leaves room for an action of full length, cut from the oldest turn on if need be.

        If not even the shortest one does, it is returned all the same: the action is then shorter.
        """
        text = self.environment.observe(state, agent)
        if policy.context is None or self.environment.shortened(state, agent, 1) is None:
            return Observation(text)
        room = policy.context - max_new_tokens
        whole = size = len(self.ids(policy, text))
        cut = 0
        while size > room and (shorter := self.environment.shortened(state, agent, cut + 1)) is not None:
            cut, text = cut + 1, shorter
            size = len(self.ids(policy, text))
        return Observation(text, cut, whole - size)

    def criticise(self, outcomes: Sequence[tuple[Sequence[str], Outcome[Any]]]) -> list[Outcome[Any]]:
        """Return the outcomes with the critic's answers in their states where the episode goes on; all count costs.

        ``outcomes`` are of the sampled joint actions of a turn, each with the names of the agents.  PolicyError if an
        agent has no base.
        """
        asked = [self._questions(*one) for one in outcomes]
        different = list(dict.fromkeys(question for own in asked for question in own.values()))
        requests = [Request(policy, prompt, 1, seed=0) for policy, prompt in different]
        greedy = Sampling(temperature=0.0, max_new_tokens=self.sampling.max_new_tokens)
        found = self.engine.generate(requests, greedy) if requests else []
        answers = {question: actions[0] for question, actions in zip(different, found, strict=True)}
        unpaid = set(different)
        results = []
        for (_, outcome), own in zip(outcomes, asked, strict=True):
            new = unpaid & set(own.values())
            unpaid -= new
            read = sum(len(prompt) for _, prompt in new)
            written = sum(len(answers[question].ids) for question in new)
            costs = {
                **outcome.details.get("costs", {}),
                **dict(zip(COSTS, map(float, (len(new), read, written)), strict=True)),
            }
            state = outcome.state
            if own:
                texts = {agent: answers[question].text for agent, question in own.items()}
                state = self.environment.criticised(state, texts)
            results.append(replace(outcome, state=state, details={**outcome.details, "costs": costs}))
        return results

    def _questions(self, names: Sequence[str], outcome: Outcome[Any]) -> dict[int, _Question]:
        """Return by number of the agent what its base is asked after an outcome; nothing if the episode has ended."""
        if outcome.done or outcome.reward is None:
            return {}
        acting = self.environment.acting(outcome.state)
        found = {}
        for agent in range(len(names)) if acting is None else acting:
            base = self.team.base_of(names[agent])
            text = self.fit(outcome.state, agent, base, self.sampling.max_new_tokens).text
            found[agent] = base.name, self.ids(base, text)
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
#: An action, and the ids of its prompt.
_Written = tuple[tuple[int, ...], Action]


class Turn:
    """Sample the texts of one turn, and record them.

    Joint actions of one node with the same prompt become one request for several actions: a group shares its prompt.
    In a nested plan of credit several joint actions also share the actions of earlier agents, which are sampled once.

    Attributes:
        inputs: one for each joint action, in the order of ``nodes``.
        lost: by number of the input, why the infrastructure could not run a tool that an agent called.
    """

    def __init__(self, playing: Playing, nodes: Sequence[Node], number: int) -> None:
        self._playing, self._nodes, self._number = playing, nodes, number
        self.inputs: list[TurnInput] = []
        self._places: list[tuple[int, int]] = []  # of every input: its node, and which of the node's joint actions
        self._cut: list[tuple[int, int]] = []  # of every node: turns and tokens cut from its agents' observations
        self._seen: list[tuple[str, ...]] = []  # of every node: `Decision.seen`
        for place, node in enumerate(nodes):
            acting = playing.environment.acting(node.state)
            numbers = tuple(range(len(node.agents))) if acting is None else tuple(acting)
            observations = [""] * len(node.agents)
            turns = tokens = 0
            for agent in numbers:
                fitting = self._observe(node, agent)
                observations[agent] = fitting.text
                turns, tokens = turns + fitting.cut_turns, tokens + fitting.cut_tokens
            self._cut.append((turns, tokens))
            whole = range(len(node.agents)) if playing.observed else ()
            self._seen.append(tuple(playing.environment.observe(node.state, agent) for agent in whole))
            self.inputs += [TurnInput(node.agents, numbers, tuple(observations))] * node.n
            self._places += [(place, j) for j in range(node.n)]
        self._rounds = 0
        self._times: dict[tuple[int, int], int] = {}  # how often an agent of an input was prompted
        self._sampled: list[list[_Sampled]] = [[] for _ in self.inputs]
        self._shared: list[list[int]] = [[] for _ in self.inputs]
        self._unread = [0] * len(self.inputs)
        self._calls = [0] * len(self.inputs)
        self._said = [[""] * len(one.agents) for one in self.inputs]  # what each agent wrote last
        self.lost: dict[int, str] = {}

    def _observe(self, node: Node, agent: int) -> Observation:
        """Return what an agent is shown; only later turns can be too long for its policy's context."""
        if not self._number:
            return Observation(self._playing.environment.observe(node.state, agent))
        policy = self._playing.team.policy_of(node.agents[agent])
        return self._playing.fit(node.state, agent, policy, self._playing.sampling.of(policy.name).max_new_tokens)

    def sample(self, wanted: Sequence[PromptRequest]) -> list[str]:
        """Sample one text per prompt; see `pipeline_lib.protocols.protocol.Sample`."""
        alike: dict[tuple[int, int, int, str], list[int]] = {}
        copies: list[tuple[int, int]] = []  # a prompt, and the one whose action it shares
        numbers_of = {(one.turn, one.agent): number for number, one in enumerate(wanted)}
        for number, one in enumerate(wanted):
            agent_of_input = one.turn, one.agent
            self._said[one.turn][one.agent] = ""
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
            policy = self._playing.team.policy_of(node.agents[agent])
            prompt = self._playing.ids(policy, text)
            # What the first turn shows fits into the context, or the engine refuses it; quotes and later turns, of a
            # length that nobody chose, may not.
            if (self._number or text != self.inputs[first].observations[agent]) and _full(policy, prompt):
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
        written = self._write(wanted, answered, requests, generations)
        for number, other in copies:
            one = wanted[number]
            self._said[one.turn][one.agent] = self._said[wanted[other].turn][one.agent]
            self._share(one, wanted[other].turn)
        self._rounds += 1
        for call in range(self._playing.environment.tool_calls):
            if written := self._write_on(wanted, written, call):
                self._rounds += 1
        return [self._said[one.turn][one.agent] for one in wanted]

    def _write(
        self,
        wanted: Sequence[PromptRequest],
        answered: Sequence[Sequence[int]],
        requests: Sequence[Request],
        generations: Sequence[Sequence[Generation]],
    ) -> dict[int, _Written]:
        """Sample and record actions, and return what was written by number of the prompt; ``answered`` has the numbers
        of each request.
        """
        written = {}
        found = self._generate(requests, generations) if requests else []
        for numbers, request, actions in zip(answered, requests, found, strict=True):
            for number, action in zip(numbers, actions, strict=True):
                one = wanted[number]
                name = self.inputs[one.turn].agents[one.agent]
                self._sampled[one.turn].append((request.policy, request.prompt, action, self._rounds, name))
                self._said[one.turn][one.agent] = action.text
                written[number] = request.prompt, action
        return written

    def _write_on(
        self, wanted: Sequence[PromptRequest], written: Mapping[int, _Written], call: int
    ) -> dict[int, _Written]:
        """Run the tools that texts call, let their agents write on, and return what these wrote.

        Args:
            wanted: the prompts that were answered.
            written: what was written last, by number of the prompt.
            call: number of tools that these agents called before.
        """
        playing = self._playing
        # A text that was cut off is no call: its agent has used up its tokens.
        numbers = [number for number, (_, action) in written.items() if action.finish == "stop"]
        if not numbers:
            return {}
        playing.check()
        nodes = [self._nodes[self._places[wanted[number].turn][0]] for number in numbers]
        calls = [
            ToolCall(node.state, wanted[number].agent, tuple(self._said[wanted[number].turn]))
            for number, node in zip(numbers, nodes, strict=True)
        ]
        answered, requests, generations = [], [], []
        for number, node, result in zip(numbers, nodes, playing.environment.ask_tools(calls), strict=True):
            one, (before, action) = wanted[number], written[number]
            if result.error:
                self.lost[one.turn] = result.error
            elif result.text is not None:
                policy = playing.team.policy_of(node.agents[one.agent])
                told = policy.encode_result(action.ids, result.text, playing.environment.tool_tokens)
                prompt = (*before, *action.ids, *told)
                if _full(policy, prompt):
                    self._unread[one.turn] += 1
                    continue
                self._calls[one.turn] += 1
                times, j = self._times[one.turn, one.agent] - 1, self._places[one.turn][1]
                seed = node.root.chance.action(self._number, node.path, one.agent, times, j, call)
                answered.append([number])
                requests.append(Request(policy.name, prompt, 1, seed))
                shown = policy.decode(told)
                name = node.agents[one.agent]
                generations.append([Generation(node.root, self._number, self._rounds, name, shown, tool=True)])
        return self._write(wanted, answered, requests, generations)

    def _owner(self, prompt: PromptRequest) -> int:
        """Return the input whose action answers a prompt: its own, or an earlier one in a nested plan."""
        own = self.inputs[prompt.turn]
        place, j = self._places[prompt.turn]
        size = self._nodes[place].n
        if not self._playing.plan.nested or size == 1:
            return prompt.turn
        return prompt.turn - j % self._playing.plan.block(own.acting.index(prompt.agent), len(own.acting), size)

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
        engine, sampling, watcher = self._playing.engine, self._playing.sampling, self._playing.watcher
        if watcher is None or not watcher.listens:
            return engine.generate(requests, sampling)
        listening = Listening(watcher, generations, [self._playing.team.policies[one.policy] for one in requests])
        engine.listener = listening.token
        try:
            found = engine.generate(requests, sampling)
        finally:
            engine.listener = None
        listening.finished(found)
        return found

    def decisions(self) -> list[Decision]:
        """Return the joint actions as decisions, in the order of ``inputs``, before they are executed."""
        found = []
        rows = zip(self._places, self._sampled, self._unread, self._shared, self._calls, strict=True)
        for (place, _), sampled, unread, shared, calls in rows:
            node = self._nodes[place]
            policies, prompts, actions, rounds, agents = zip(*sampled, strict=True) if sampled else ((), (), (), (), ())
            cut_turns, cut_tokens = self._cut[place]
            texts = policies, prompts, actions
            decision = Decision(node.root.problem.id, self._number, node.group, node.parent, node.weight, *texts)
            decision.rounds, decision.unread, decision.agents = rounds, unread, agents
            decision.shared, decision.cut_turns, decision.cut_tokens = tuple(shared), cut_turns, cut_tokens
            decision.seen, decision.tool_calls = self._seen[place], calls
            found.append(decision)
        return found


def _full(policy: Policy, prompt: Sequence[int]) -> bool:
    """Return whether a prompt leaves no space for an action in the policy's context."""
    return policy.context is not None and len(prompt) >= policy.context
