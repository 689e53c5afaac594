"""What environments share in which agents talk: the price of a text, and whole dialogues as single turns."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TypeVar

from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.environment_api.reward import total

P = TypeVar("P")  # the problem type
S = TypeVar("S")  # the state type


@functools.lru_cache(maxsize=65536)
def words_of(text: str) -> str:
    """Return the words of a text in lower case with single spaces: texts that differ in marks only are equal."""
    return " ".join(re.findall(r"\w+", text.lower()))


def price_of(text: str) -> int:
    """Return the number of tokens of a text that are paid for, whatever the model: marks, and eight letters of a word.

    Joined words thus cost what separate ones do.

    Examples:
        >>> price_of("anna boss?"), price_of("annabosscarlhome"), price_of(" ")
        (3, 2, 0)
    """
    return len(re.findall(r"\w{1,8}|[^\w\s]", text))


class WholeEpisodes(Environment[P, S]):
    """Dialogues as single turns, in which each agent hands in a line for every turn of the dialogue.

    An audit so plays scripted teams that say another thing in every turn.
    """

    turns = 1

    def __init__(self, played: Environment[P, S]) -> None:
        self.played = played
        self.reward_bounds = played.episode_bounds

    @property
    def paid_by(self) -> object:
        """What computes the reward of the dialogues."""
        return self.played.paid_by

    def agents(self, problem: P) -> tuple[str, ...]:
        """Return the names of the agents."""
        return self.played.agents(problem)

    def start(self, problem: P, seed: int = 0) -> S:
        """Return the first state of a dialogue."""
        return self.played.start(problem, seed)

    def observe(self, state: S, agent: int) -> str:
        """Return what an agent is told before the dialogue's first turn."""
        return self.played.observe(state, agent)

    def step(self, states: Sequence[S], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[S]]:
        """Play each dialogue to its end."""
        return [self._play(state, actions) for state, actions in zip(states, joint_actions, strict=True)]

    def _play(self, state: S, actions: Sequence[str]) -> Outcome[S]:
        lines = [text.splitlines() for text in actions]
        terms: dict[str, float] = {}
        for turn in range(self.played.turns):
            said = [own[turn] if turn < len(own) else "" for own in lines]
            [outcome] = self.played.step([state], [said])
            state = outcome.state
            terms = {name: terms.get(name, 0.0) + value for name, value in outcome.terms.items()}
            if outcome.done:
                break
        return Outcome(total(terms), terms, outcome.metrics, state, done=True, details=outcome.details)
