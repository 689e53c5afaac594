"""Plays a team on problems and writes down what happened, the same way for every team and protocol.

Promises: all episodes are played side by side, a turn being one call of the environment and one of the engine for each
time the protocol lets agents speak; the draws of an episode depend on the seed, its problem and its number and on
nothing else, so episode j of a problem is paired between any two teams; every token sampled is counted.  Nothing is
learned and nothing is aggregated here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as Interface

from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.policies.policy import Team
from pipeline_lib.protocols import Ask, Protocol, Seat, make_protocol
from pipeline_lib.rollouts.engine import Engine, Request, Sampling
from pipeline_lib.seam.environment import Environment, Outcome
from pipeline_lib.storage import digest

#: Called after every turn with the number of finished episodes, that of all, and a line for people.
Progress = Callable[[int, int, str], None]


class Problem(Interface):
    """What evaluation needs of a problem."""

    @property
    def id(self) -> str:
        """Return the name, unique among the problems evaluated."""

    @property
    def family(self) -> str:
        """Return the cluster that statistics resample."""


@dataclass(slots=True)
class _Episode:
    """An episode being played."""

    problem: Any
    sample: int
    agents: tuple[str, ...]
    state: Any
    turns: int = 0
    rewards: list[float | None] = field(default_factory=list)
    terms: dict[str, float] = field(default_factory=dict)
    outcome: Outcome[Any] | None = None
    done: bool = False
    tokens: int = 0
    prompt_tokens: int = 0
    critical_tokens: int = 0
    requests: int = 0
    cut_off: int = 0
    unread: int = 0

    def take(self, outcome: Outcome[Any]) -> None:
        """Note what a turn led to."""
        self.outcome, self.state = outcome, outcome.state
        self.turns += 1
        self.rewards.append(outcome.reward)
        for name, value in outcome.terms.items():
            self.terms[name] = self.terms.get(name, 0.0) + value
        self.done = outcome.done or outcome.reward is None

    def record(self) -> EpisodeRecord:
        """Return the finished episode as a row."""
        assert self.outcome is not None
        known = [reward for reward in self.rewards if reward is not None]
        return EpisodeRecord(
            problem=self.problem.id,
            family=self.problem.family,
            sample=self.sample,
            reward=float(sum(known)) if len(known) == len(self.rewards) else None,
            turns=self.turns,
            terms=self.terms,
            metrics=dict(self.outcome.metrics),
            tokens=self.tokens,
            details={
                **self.outcome.details,
                "prompt_tokens": self.prompt_tokens,
                "critical_path_tokens": self.critical_tokens,
                "requests": self.requests,
                "cut_off": self.cut_off,
                "unread": self.unread,
            },
        )


def evaluate_team(
    team: Team,
    environment: Environment[Any, Any],
    problems: Sequence[Problem],
    engine: Engine,
    sampling: Sampling,
    samples: int,
    seed: int,
    progress: Progress | None = None,
    protocol: Protocol | None = None,
) -> list[EpisodeRecord]:
    """Play ``samples`` episodes on every problem.

    Args:
        team: the policies.
        environment: the task.
        problems: problems with distinct ids.
        engine: samples the actions; it holds the team's policies as they are now (`Engine.load`, `Engine.update`).
        sampling: the distribution they are drawn from.
        samples: episodes per problem, > 0.
        seed: of everything drawn.
        progress: see `Progress`; what it raises ends the evaluation.
        protocol: how the team answers; by default each agent by itself, in every turn (`Decentralised`).

    Returns:
        One record per episode, all of a problem's together and in the order of ``problems``.  ``details`` holds, beside
        the environment's: ``prompt_tokens`` and ``requests`` (over all agents and rounds), ``critical_path_tokens``
        (sampled one after another if agents that speak at the same time are sampled at the same time: the latency of
        the team, in tokens), ``cut_off`` (actions that ended by their length), and ``unread`` (prompts to which a
        protocol added so much that they left no room in the policy's context: the agent writes nothing.  An
        observation that does not fit by itself is a mistake in the settings, and the engine refuses it).

    Raises:
        ValueError: ids repeat, ``samples`` is not positive, or the protocol cannot be played by the agents.
    """
    if samples < 1:
        raise ValueError(f"samples is {samples}; it must be at least 1")
    repeated = [name for name, count in Counter(problem.id for problem in problems).items() if count > 1]
    if repeated:
        raise ValueError(f"problem {repeated[0]!r} occurs more than once; its episodes could not be told apart")
    protocol = protocol or make_protocol("decentralised")
    episodes = []
    for problem in problems:
        agents = environment.agents(problem)
        protocol.check(agents)
        for sample in range(samples):
            state = environment.start(problem, derive(seed, problem.id, sample, "start"))
            episodes.append(_Episode(problem, sample, agents, state))
    turn = 0
    while active := [episode for episode in episodes if not episode.done]:
        seats = [_seat(environment, episode) for episode in active]
        table = _Table(team, engine, sampling, seed, turn, active, seats)
        joint_actions = protocol.act(seats, table.speak)
        outcomes = environment.step([episode.state for episode in active], joint_actions)
        turn += 1
        for episode, outcome in zip(active, outcomes, strict=True):
            episode.take(outcome)
            episode.done |= protocol.turns is not None and turn >= protocol.turns
        if progress is not None:
            finished = sum(episode.done for episode in episodes)
            progress(finished, len(episodes), f"turn {turn}: {finished} of {len(episodes)} episodes finished")
    return [episode.record() for episode in episodes]


def derive(*parts: int | str) -> int:
    """Return a seed in [0, 2**60) that depends on all parts and on nothing else."""
    return int(digest(list(parts))[:15], 16)


def _seat(environment: Environment[Any, Any], episode: _Episode) -> Seat:
    acting = environment.acting(episode.state)
    numbers = tuple(range(len(episode.agents))) if acting is None else tuple(acting)
    observations = [""] * len(episode.agents)
    for number in numbers:
        observations[number] = environment.observe(episode.state, number)
    return Seat(episode.agents, numbers, tuple(observations))


@dataclass(slots=True)
class _Table:
    """One turn of all active episodes: samples what agents say, and keeps the accounts."""

    team: Team
    engine: Engine
    sampling: Sampling
    seed: int
    turn: int
    episodes: Sequence[_Episode]
    seats: Sequence[Seat]
    spoken: Counter[tuple[int, int]] = field(default_factory=Counter)
    encoded: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)

    def speak(self, asks: Sequence[Ask]) -> list[str]:
        """Sample one answer per question; see `pipeline_lib.protocols.protocol.Speak`."""
        requests = [self._request(ask) for ask in asks]
        read = [number for number, ask in enumerate(asks) if self._fits(ask, requests[number])]
        groups = self.engine.generate([requests[number] for number in read], self.sampling) if read else []
        actions = {number: group[0] for number, group in zip(read, groups, strict=True)}
        longest: dict[int, int] = {}
        for number, (ask, request) in enumerate(zip(asks, requests, strict=True)):
            episode = self.episodes[ask.seat]
            if number not in actions:
                episode.unread += 1
                continue
            action = actions[number]
            episode.tokens += len(action.ids)
            episode.prompt_tokens += len(request.prompt)
            episode.requests += 1
            episode.cut_off += action.finish == "length"
            longest[ask.seat] = max(longest.get(ask.seat, 0), len(action.ids))
        for seat, tokens in longest.items():
            self.episodes[seat].critical_tokens += tokens
        return [actions[number].text if number in actions else "" for number in range(len(asks))]

    def _fits(self, ask: Ask, request: Request) -> bool:
        """Return whether an action has room after the prompt; what an agent observes by itself always has."""
        seat = self.seats[ask.seat]
        context = self.team.policies[request.policy].context
        return context is None or len(request.prompt) < context or ask.prompt == seat.observations[ask.agent]

    def _request(self, ask: Ask) -> Request:
        episode = self.episodes[ask.seat]
        policy = self.team.policy_of(episode.agents[ask.agent])
        key = policy.name, ask.prompt
        if key not in self.encoded:
            self.encoded[key] = policy.encode(ask.prompt)
        # An agent that speaks again in the same turn draws anew.
        again = self.spoken[ask.seat, ask.agent]
        self.spoken[ask.seat, ask.agent] += 1
        place = (self.seed, episode.problem.id, episode.sample, self.turn, ask.agent)
        return Request(policy.name, self.encoded[key], 1, derive(*place, again) if again else derive(*place))
