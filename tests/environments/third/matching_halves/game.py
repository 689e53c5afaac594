"""The game: problems, play, demonstrations."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matching_halves.settings import HalvesEnvironment, WordProblems
from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.storage import digest

LETTERS = "xyz"
SIDES = ("left", "right")


@dataclass(frozen=True, slots=True)
class Word:
    """One problem."""

    id: str
    family: str
    word: str

    @property
    def content_hash(self) -> str:
        return digest(self.word)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def draw(settings: WordProblems) -> dict[str, list[Word]]:
    rng = random.Random(settings.seed)
    sizes = settings.sizes.model_dump()
    words = list(dict.fromkeys("".join(rng.choices("abcdef", k=rng.randint(3, 8))) for _ in range(9999)))
    splits = {}
    for split, size in sizes.items():
        taken, words = words[:size], words[size:]
        splits[split] = [Word(f"words/{word}", word, word) for word in taken]
    return splits


def observation(side: str, word: str) -> str:
    return f"{side} of {word}:"


def demonstrate(problems: Sequence[Word], count: int, mistakes: float, seed: int) -> list[Demonstration]:
    """Show any of the letters, some more often than others, and now and then none."""
    rng = random.Random(digest([seed, count]))
    found = []
    for _ in range(count):
        action = "?" if rng.random() < mistakes else rng.choices(LETTERS, (5, 3, 2))[0]
        found.append(Demonstration(observation(rng.choice(SIDES), rng.choice(problems).word), action))
    return found


@dataclass(frozen=True, slots=True)
class State:
    """The problem, and what was written so far."""

    problem: Word
    tries: tuple[tuple[str, ...], ...] = ()


class Halves(Environment[Word, State]):
    """Who writes what the other writes?"""

    def __init__(self, settings: HalvesEnvironment) -> None:
        self._settings = settings
        self.turns = settings.turns
        self.reward_bounds = (0.0, settings.match + settings.form)

    def agents(self, problem: Word) -> tuple[str, ...]:
        return SIDES

    def start(self, problem: Word, seed: int = 0) -> State:
        return State(problem)

    def observe(self, state: State, agent: int) -> str:
        first = observation(SIDES[agent], state.problem.word)
        return f"{first} not {state.tries[-1][1 - agent]}:" if state.tries else first

    def step(self, states: Sequence[State], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[State]]:
        return [self._step(state, actions) for state, actions in zip(states, joint_actions, strict=True)]

    def _step(self, state: State, actions: Sequence[str]) -> Outcome[State]:
        left, right = (text.strip() for text in actions)
        form = left in tuple(LETTERS) and right in tuple(LETTERS)
        match = form and left == right
        terms = {"match": self._settings.match * match, "form": self._settings.form * form}
        after = State(state.problem, (*state.tries, (left, right)))
        return Outcome(
            reward=sum(terms.values()),
            terms=terms,
            metrics={"match": float(match), "letters": float(form), "length": float(len(state.problem.word))},
            state=after,
            done=match or len(after.tries) >= self.turns,
            details={"schemes": [left] if match else []},
        )
