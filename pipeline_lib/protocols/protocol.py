"""Protocols: how a team produces the joint actions that an environment needs.

A protocol decides the order of the agents and their prompts.  It does not sample, score or count tokens: `Sample` does,
in the same way for every protocol, so that protocols are compared with the same observations and decoding, and with
the tokens of all rounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

#: Largest quoted part of a text, in characters.
MAX_QUOTE = 4000


class TurnInput(NamedTuple):
    """The agents' view of one turn of an episode."""

    agents: tuple[str, ...]  #: names of the agents, in acting order
    acting: tuple[int, ...]  #: numbers of the agents that act in this turn; the texts of the others are empty
    observations: tuple[str, ...]  #: the observation of each agent; empty for agents that do not act


class PromptRequest(NamedTuple):
    """A prompt for one agent."""

    turn: int  #: index of the agent's `TurnInput`
    agent: int  #: number of the agent
    prompt: str  #: text of the prompt


#: Samples one text per prompt, in input order.  All prompts of one call are sampled together.
Sample = Callable[[Sequence[PromptRequest]], list[str]]


class Protocol(ABC):
    """A way for a team to produce joint actions."""

    name: ClassVar[str]  #: name in reports
    turns: ClassVar[int | None] = None  #: largest number of turns that it plays; None for all turns of the environment

    def check(self, agents: Sequence[str]) -> None:
        """Raise ValueError if the protocol cannot be played by these agents."""

    @abstractmethod
    def act(self, inputs: Sequence[TurnInput], sample: Sample) -> list[list[str]]:
        """Return one joint action per input: one text per agent.

        ``sample`` may be called several times; one call for all inputs is much faster than one call for each.
        """


def all_at_once(inputs: Sequence[TurnInput]) -> list[PromptRequest]:
    """Return a prompt for every acting agent: its own observation."""
    return [
        PromptRequest(number, agent, turn.observations[agent])
        for number, turn in enumerate(inputs)
        for agent in turn.acting
    ]


def gather(inputs: Sequence[TurnInput], requests: Sequence[PromptRequest], answers: Sequence[str]) -> list[list[str]]:
    """Arrange texts as joint actions; if an agent has several, the last one counts."""
    joint = [[""] * len(turn.agents) for turn in inputs]
    for request, answer in zip(requests, answers, strict=True):
        joint[request.turn][request.agent] = answer
    return joint


def quote(observation: str, quoted: Sequence[tuple[str, str]], request: str) -> str:
    """Return an observation followed by titled texts and a request."""
    parts = [observation.rstrip("\n"), *(f"{title}:\n{text.strip()[:MAX_QUOTE]}" for title, text in quoted), request]
    return "\n\n".join(parts) + "\n"


class Decentralised(Protocol):
    """The paper's protocol: in every turn each agent acts on its own observation and sees no other agent's text."""

    name = "decentralised"

    def act(self, inputs: Sequence[TurnInput], sample: Sample) -> list[list[str]]:
        """Prompt every acting agent once, all at the same time."""
        requests = all_at_once(inputs)
        return gather(inputs, requests, sample(requests))


class SingleModel(Decentralised):
    """The single-model baseline: one agent; the environment has to be set up for it (``environment.team: single``)."""

    name = "single_model"

    def check(self, agents: Sequence[str]) -> None:
        """Refuse a team."""
        if len(agents) != 1:
            raise ValueError(
                f"protocol {self.name} is for one agent, the environment has {len(agents)} ({', '.join(agents)}); "
                "set environment.team to single"
            )


class NaiveConcatenation(Decentralised):
    """One decentralised turn: agents get no feedback and revise nothing.

    The environment joins the texts in every protocol, so with one turn this equals `Decentralised`.  It is a baseline
    because it is played by the untrained base.
    """

    name = "naive_concatenation"
    turns = 1


class SequentialPipeline(Protocol):
    """Agents act one after the other, in acting order; the first sees only its own observation."""

    name = "sequential_pipeline"

    def act(self, inputs: Sequence[TurnInput], sample: Sample) -> list[list[str]]:
        """Prompt the first agent of each turn, then the second with the first's text, and so on."""
        joint = [[""] * len(turn.agents) for turn in inputs]
        for position in range(max((len(turn.acting) for turn in inputs), default=0)):
            requests = []
            for number, turn in enumerate(inputs):
                if position < len(turn.acting):
                    agent = turn.acting[position]
                    before = [(f"{turn.agents[i]} wrote", joint[number][i]) for i in turn.acting[:position]]
                    own = turn.observations[agent]
                    prompt = quote(own, before, "Write your part.") if before else own
                    requests.append(PromptRequest(number, agent, prompt))
            for request, answer in zip(requests, sample(requests), strict=True):
                joint[request.turn][request.agent] = answer
        return joint


class OneRoundDiscussion(Protocol):
    """Two rounds within each turn; only the second is executed and rewarded, but the tokens of both count."""

    name = "one_round_discussion"

    def act(self, inputs: Sequence[TurnInput], sample: Sample) -> list[list[str]]:
        """Prompt all agents, then prompt them again with the first texts of all."""
        first = all_at_once(inputs)
        drafts = gather(inputs, first, sample(first))
        second = []
        for request in first:
            turn, draft = inputs[request.turn], drafts[request.turn]
            others = [(f"{turn.agents[i]} wrote", draft[i]) for i in turn.acting if i != request.agent]
            said = [("You wrote", draft[request.agent]), *others]
            prompt = quote(request.prompt, said, "Write your part again, so that all fit.")
            second.append(request._replace(prompt=prompt))
        return gather(inputs, second, sample(second))
