"""The writing environment: two texts by two agents, or both by one, are read and rewarded.

No program is run, and no model is used unless the reward has a judge.  The same texts get the same reward.  A
single agent writes both texts with an empty line between them.

Nothing in the feedback to a writer comes from another writer's text, or from a part of the source that the writer was
not shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.environment_api.reward import is_enough, total
from pipeline_lib.environment_kit.served_model import Answer
from pipeline_lib.environments.writing.problem import AGENTS, WritingProblem
from pipeline_lib.environments.writing.published import (
    CONNECTIVE_WEIGHT,
    CONSTANTS,
    GREATEST,
    SHARED_WEIGHT,
    published_terms,
)
from pipeline_lib.environments.writing.reading import lengths_fit, read
from pipeline_lib.environments.writing.rewards import Work, make_reward
from pipeline_lib.environments.writing.settings import WritingSettings

#: Most of its own previous text that a writer is shown, in characters.
MAX_OWN_TEXT = 4000


def next_observation(first: str, action: str, notes: Sequence[str]) -> str:
    """Return what a writer sees in a later turn.

    Args:
        first: its observation in the first turn.
        action: the text it wrote last.
        notes: feedback on this text, a line each; none with plain feedback.
    """
    lines = [first.rstrip("\n"), "", "Your text:", action.strip()[:MAX_OWN_TEXT], ""]
    return "\n".join([*lines, *(f"- {note}" for note in notes), "Write it again, improved:\n"])


_EMPTY_LINE = re.compile(r"\n[ \t]*\n\s*")


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: every agent's text, the feedback to each agent, and the reward."""

    actions: tuple[str, ...]
    notes: tuple[tuple[str, ...], ...]
    reward: float


@dataclass(frozen=True, slots=True)
class WritingState:
    """The state of an episode: the problem, and the turns that were played."""

    problem: WritingProblem
    turns: tuple[Turn, ...] = ()


class WritingEnvironment(Environment[WritingProblem, WritingState]):
    """Two texts of one source; `metrics.METRICS` says what is measured."""

    retries = True

    def __init__(self, settings: WritingSettings) -> None:
        self.turns = settings.turns
        self._agents = AGENTS[settings.team]
        self._told = settings.feedback == "notes"
        self._reward = make_reward(settings.reward)
        self.reward_bounds = self._reward.bounds
        self._stop_at = settings.stop_at

    @property
    def paid_by(self) -> object:
        return self._reward

    def agents(self, problem: WritingProblem) -> tuple[str, ...]:
        return self._agents

    def start(self, problem: WritingProblem, seed: int = 0) -> WritingState:
        return WritingState(problem)

    def observe(self, state: WritingState, agent: int) -> str:
        first = state.problem.observations[self._agents[agent]]
        if not state.turns:
            return first
        last = state.turns[-1]
        return next_observation(first, last.actions[agent], last.notes[agent])

    def divided(self, problem: WritingProblem) -> bool:
        """Return True if each writer is shown a part of the facts; published texts are shown to every writer."""
        return bool(problem.parts) and len(self._agents) > 1

    def step(
        self, states: Sequence[WritingState], joint_actions: Sequence[Sequence[str]]
    ) -> list[Outcome[WritingState]]:
        """Read and reward the texts; ``details`` holds the reward of every turn so far and the first hundred words.

        Texts without a mark because the judge did not answer get no reward.
        """
        works = [self._work(state, actions) for state, actions in zip(states, joint_actions, strict=True)]
        if self._reward.judge is not None:
            marks = self._reward.judge.marks([(work.problem.text, work.first, work.second) for work in works])
            works = [replace(work, mark=mark.value) for work, mark in zip(works, marks, strict=True)]
        else:
            marks = [Answer(None) for _ in works]
        return [
            self._outcome(state, actions, work, mark)
            for state, actions, work, mark in zip(states, joint_actions, works, marks, strict=True)
        ]

    def close(self) -> None:
        if self._reward.judge is not None:
            self._reward.judge.close()

    def _work(self, state: WritingState, actions: Sequence[str]) -> Work:
        if len(actions) != len(self._agents):
            raise ValueError(f"got {len(actions)} actions for the {len(self._agents)} agents of {state.problem.id}")
        first, second = split_texts(actions[0]) if len(actions) == 1 else actions
        return Work(state.problem, first, second, read(state.problem, first, second))

    def _outcome(
        self, state: WritingState, actions: Sequence[str], work: Work, mark: Answer[float]
    ) -> Outcome[WritingState]:
        judge = self._reward.judge
        paid = {"costs": judge.costs([mark])} if judge is not None else {}
        if judge is not None and mark.value is None:
            return Outcome(None, {}, {}, state, True, {"error": " ".join(mark.error.split()), **paid})
        terms = self._reward.terms(work)
        reward = total(terms)
        notes = work.reading.notes if len(actions) > 1 else ((*work.reading.notes[0], *work.reading.notes[1]),)
        turn = Turn(tuple(actions), notes if self._told else ((),) * len(actions), reward)
        after = replace(state, turns=(*state.turns, turn))
        return Outcome(
            reward=reward,
            terms=terms,
            metrics=measure(work),
            state=after,
            done=len(after.turns) >= self.turns or is_enough(reward, self.reward_bounds, self._stop_at),
            details={
                **{f"reward_of_turn_{number}": each.reward for number, each in enumerate(after.turns, 1)},
                "texts": [" ".join(text.split()[:100]) for text in (work.first, work.second)],
                **paid,
            },
        )


def split_texts(text: str) -> tuple[str, str]:
    """Return the two texts of a single agent: the part before the first empty line, and the rest."""
    parts = _EMPTY_LINE.split(text.strip(), maxsplit=1)
    return parts[0], parts[1] if len(parts) > 1 else ""


def measure(work: Work) -> dict[str, float]:
    """Return the metrics of two texts; see `metrics.METRICS`."""
    reading = work.reading
    levels = published_terms(work.first, work.second, CONSTANTS[work.problem.task, "paper"])
    return {
        "coverage": reading.coverage,
        "all_told": float(reading.coverage >= 1.0 and not reading.unsupported and not reading.repeated),
        "inventions": reading.inventions,
        "copied": reading.copied,
        "fitting": float(bool(all(reading.words)) and lengths_fit(reading.words, work.problem.limits)),
        "complete": reading.complete,
        "style": reading.style,
        "joints": reading.links,
        "published": total(levels) / GREATEST,
        "published_structure": (levels["words"] + levels["length"] + levels["unique"]) / 2.0,
        "published_coherence": levels["connectives"] / CONNECTIVE_WEIGHT,
        "published_consistency": levels["shared"] / SHARED_WEIGHT,
    }
