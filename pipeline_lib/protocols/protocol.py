"""The interface between an environment that needs joint actions and the ways in which a team can produce them.

A protocol decides which agent is prompted with what, in which order; it never samples, scores or counts.  `speak`
samples and counts tokens, the same for every protocol, so that they are compared on equal terms: the same observations,
the same decoding, and all tokens of all rounds counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

#: Largest quoted part of a text, in characters.
MAX_QUOTE = 4000


class Seat(NamedTuple):
    """An episode that waits for a joint action.

    Attributes:
        agents: names of the agents, in acting order.
        acting: numbers of the agents that act in this turn; the texts of the others are empty.
        observations: the observation of each agent; empty for agents that do not act.
    """

    agents: tuple[str, ...]
    acting: tuple[int, ...]
    observations: tuple[str, ...]


class Ask(NamedTuple):
    """A prompt for one agent of one seat.

    Attributes:
        seat: index of the seat.
        agent: number of the agent.
        prompt: text of the prompt.
    """

    seat: int
    agent: int
    prompt: str


#: Samples one text per prompt, in input order.  All prompts of one call are answered at the same time.
Speak = Callable[[Sequence[Ask]], list[str]]


class Protocol(ABC):
    """A way for a team to produce joint actions.

    Attributes:
        name: name in reports.
        turns: largest number of turns that it plays; None for all turns of the environment.
    """

    name: ClassVar[str]
    turns: ClassVar[int | None] = None

    def check(self, agents: Sequence[str]) -> None:
        """Raise ValueError if the protocol cannot be played by these agents."""

    @abstractmethod
    def act(self, seats: Sequence[Seat], speak: Speak) -> list[list[str]]:
        """Return one joint action per seat: one text per agent.

        ``speak`` may be called any number of times; one call for all seats is much faster than one for each.
        """


def all_at_once(seats: Sequence[Seat]) -> list[Ask]:
    """Return the prompts if every acting agent acts on its own observation."""
    return [Ask(number, agent, seat.observations[agent]) for number, seat in enumerate(seats) for agent in seat.acting]


def gather(seats: Sequence[Seat], asks: Sequence[Ask], answers: Sequence[str]) -> list[list[str]]:
    """Return the joint actions of these texts; if an agent wrote several, the last one counts."""
    joint = [[""] * len(seat.agents) for seat in seats]
    for ask, answer in zip(asks, answers, strict=True):
        joint[ask.seat][ask.agent] = answer
    return joint


def quote(observation: str, quoted: Sequence[tuple[str, str]], request: str) -> str:
    """Return an observation followed by titled texts and a request."""
    parts = [observation.rstrip("\n"), *(f"{title}:\n{text.strip()[:MAX_QUOTE]}" for title, text in quoted), request]
    return "\n\n".join(parts) + "\n"
