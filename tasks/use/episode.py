"""What is shown of an episode that a team plays: answers, turns, the whole, and who shows it.  Loads no model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline_lib.environment_api.environment import Exhibit
    from pipeline_lib.play.watching import Generation


@dataclass(slots=True)
class AgentAnswer:
    """One agent's answer: prompt, text, number of tokens, why it ended, and whether the prompt is a tool's result."""

    agent: str
    round: int
    prompt: str
    text: str
    tokens: int
    finish: str
    tool: bool = False


@dataclass(slots=True)
class PlayedTurn:
    """One turn: the agents' answers, the joint result, and the reward."""

    said: list[AgentAnswer] = field(default_factory=list)
    exhibit: Exhibit | None = None
    reward: float | None = None
    terms: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Played:
    """An episode."""

    team: str  #: display name of the team
    problem: str  #: id of the problem
    turns: list[PlayedTurn] = field(default_factory=list)  #: in order
    attempts: bool = False  #: turns are attempts at the same thing, and the last one counts

    @property
    def reward(self) -> float | None:
        """Return the reward of the whole episode, None if the sandbox failed or nothing could be tested."""
        rewards = [turn.reward for turn in self.turns]
        if not rewards or None in rewards:
            return None
        return float(sum(r for r in (rewards[-1:] if self.attempts else rewards) if r is not None))


class Show:
    """Receives the events to display, in order; each method does nothing unless it is overridden."""

    def prompted(self, generation: Generation) -> None:
        """An agent was prompted and is about to write."""

    def wrote(self, generation: Generation, text: str) -> None:
        """It has written more text."""

    def finished(self, generation: Generation, answer: AgentAnswer) -> None:
        """It has finished."""

    def turned(self, number: int, turn: PlayedTurn) -> None:
        """A turn was executed."""

    def ended(self, played: Played) -> None:
        """The episode is over."""


def facts(turn: PlayedTurn) -> list[str]:
    """Return the details of a turn, each with its name; they may contain untrusted text."""

    def text(value: object) -> str:
        return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

    return [
        f"{key.replace('_', ' ')}: {text(value)}" for key, value in turn.details.items() if value not in ("", [], None)
    ]


def as_json(played: Played, labels: dict[str, str]) -> dict[str, Any]:
    """Return an episode as JSON-like data."""
    return {**dataclasses.asdict(played), "reward": played.reward, "labels": labels}
