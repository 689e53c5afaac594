"""The seam between an environment that waits for joint actions and the ways a team can come by them.

A protocol decides who is asked what, in which order; it never samples, scores or counts.  `speak` does the sampling
and keeps the accounts, the same for every protocol, so that they are compared on equal terms: the same observations,
the same decoding, every token of every round paid for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

#: Most of a text that is passed on to an agent, in characters.
MAX_QUOTE = 4000


class Seat(NamedTuple):
    """An episode that waits for a joint action.

    Attributes:
        agents: names of the agents, in acting order.
        acting: numbers of those that act in this turn; the others' texts are empty.
        observations: what each agent sees; empty for those that do not act.
    """

    agents: tuple[str, ...]
    acting: tuple[int, ...]
    observations: tuple[str, ...]


class Ask(NamedTuple):
    """One agent of one seat is to answer one prompt.

    Attributes:
        seat: index of the seat.
        agent: number of the agent.
        prompt: text its policy is prompted with.
    """

    seat: int
    agent: int
    prompt: str


#: Samples one answer per question, in input order.  Everybody asked in one call answers at the same time.
Speak = Callable[[Sequence[Ask]], list[str]]


class Protocol(ABC):
    """A way for a team to answer.

    Attributes:
        name: what reports call it.
        turns: most turns of the environment that it plays; None plays them all.
    """

    name: ClassVar[str]
    turns: ClassVar[int | None] = None

    def check(self, agents: Sequence[str]) -> None:
        """Raise ValueError if the protocol cannot be played by these agents."""

    @abstractmethod
    def act(self, seats: Sequence[Seat], speak: Speak) -> list[list[str]]:
        """Return one joint action per seat: a text per agent.

        ``speak`` may be called any number of times; one call for all seats is much faster than one for each.
        """


def all_at_once(seats: Sequence[Seat]) -> list[Ask]:
    """Return the questions when every acting agent answers its own observation."""
    return [Ask(number, agent, seat.observations[agent]) for number, seat in enumerate(seats) for agent in seat.acting]


def gather(seats: Sequence[Seat], asks: Sequence[Ask], answers: Sequence[str]) -> list[list[str]]:
    """Return the joint actions that answers amount to; of several answers by one agent, the last counts."""
    joint = [[""] * len(seat.agents) for seat in seats]
    for ask, answer in zip(asks, answers, strict=True):
        joint[ask.seat][ask.agent] = answer
    return joint


def quote(observation: str, quoted: Sequence[tuple[str, str]], request: str) -> str:
    """Return an observation followed by titled texts and a request."""
    parts = [observation.rstrip("\n"), *(f"{title}:\n{text.strip()[:MAX_QUOTE]}" for title, text in quoted), request]
    return "\n\n".join(parts) + "\n"
