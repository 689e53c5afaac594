"""How a text task is played: one observation and one answer per agent, then the score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.problems.content import normalised_text
from pipeline_lib.storage import digest
from pipeline_lib.text_task.score import Score


@dataclass(frozen=True, slots=True)
class TextProblem:
    """One problem: a text, and the cluster it belongs to."""

    text: str
    family: str

    @property
    def id(self) -> str:
        """Return a name with the text's digest."""
        return f"text/{digest(self.text)[:12]}"

    @property
    def content_hash(self) -> str:
        """Return a digest that two texts share which differ in white space and case only."""
        return digest(normalised_text(self.text))

    def to_json(self) -> dict[str, Any]:
        """Return the problem as a JSON object."""
        return {"id": self.id, "text": self.text, "family": self.family}


class TextGame(Environment[TextProblem, TextProblem]):
    """The environment of a text task; a state is the problem.

    Args:
        agents, reward_bounds, observe, score: of the task (`pipeline_lib.text_task.task.TextTask`).
    """

    turns = 1

    def __init__(
        self,
        agents: tuple[str, ...],
        reward_bounds: tuple[float, float],
        observe: Callable[[str, str], str],
        score: Callable[[str, Mapping[str, str]], Score],
    ) -> None:
        self._agents, self._observe, self._score = agents, observe, score
        self.reward_bounds = reward_bounds

    @property
    def paid_by(self) -> object:
        """The task's `score`."""
        return self._score

    def agents(self, problem: TextProblem) -> tuple[str, ...]:
        """Return the task's agents."""
        return self._agents

    def start(self, problem: TextProblem, seed: int = 0) -> TextProblem:
        """Return the problem."""
        return problem

    def observe(self, state: TextProblem, agent: int) -> str:
        """Return the agent's observation."""
        return self._observe(state.text, self._agents[agent])

    def step(self, states: Sequence[TextProblem], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[TextProblem]]:
        """Score each joint action."""
        return [self._outcome(state, actions) for state, actions in zip(states, joint_actions, strict=True)]

    def _outcome(self, state: TextProblem, actions: Sequence[str]) -> Outcome[TextProblem]:
        score = self._score(state.text, dict(zip(self._agents, actions, strict=True)))
        terms = {name: float(value) for name, value in score.terms.items()}
        metrics = {name: float(value) for name, value in score.metrics.items()}
        own = {name: float(value) for name, value in score.agent_rewards.items()}
        return Outcome(sum(terms.values()), terms, metrics, state, True, score.details, own)
