"""The base class of cooperative tasks with one turn and problems that are texts; how one is played, and audited.

A task with several turns, its own settings, programs to run or structured problems is a
`pipeline_lib.environment_api.task.Task`.
"""

from __future__ import annotations

import itertools
import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pipeline_lib.audit.examiner import ScriptedExaminer, Teams
from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.environment_api.metrics import Metric, describe
from pipeline_lib.environment_api.task import Demonstration, Task
from pipeline_lib.problems.content import ProblemsError, normalised_text
from pipeline_lib.settings.environment import EnvironmentSection
from pipeline_lib.settings.problems import TextProblems
from pipeline_lib.storage import digest


@dataclass(frozen=True, slots=True)
class Score:
    """The reward terms and metrics of one joint action.

    Attributes:
        terms: all weighted reward terms by name; the reward is their sum.
        metrics: a value for each metric of the task, unweighted.
        details: JSON-like facts for reports; ``schemes`` is a list of names of the ways in which the team solved the
            problem.
        agent_rewards: what each agent earns by itself, by name, if the task's class sets ``rewards_agents``.
    """

    terms: Mapping[str, float]
    metrics: Mapping[str, float]
    details: Mapping[str, Any] = field(default_factory=dict)
    agent_rewards: Mapping[str, float] = field(default_factory=dict)


class TextExaminer(ScriptedExaminer):
    """Checks whether the reward ranks a task's scripted teams in the order of its primary metric.

    Args:
        wanted: the primary metric.
        words: that metric in words.
        teams: returns the scripted teams on a text.
    """

    def __init__(self, wanted: str, words: str, teams: Callable[[str], Teams]) -> None:
        self.wanted, self.words = wanted, words  # type: ignore[misc]
        self._teams = teams

    def teams(self, environment: Any, problem: Any, other: Any) -> Teams:
        return self._teams(problem.text)


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
        agents, reward_bounds, observe, score: of the task (`pipeline_lib.text_task.TextTask`).
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
        return self._score

    def agents(self, problem: TextProblem) -> tuple[str, ...]:
        return self._agents

    def start(self, problem: TextProblem, seed: int = 0) -> TextProblem:
        return problem

    def observe(self, state: TextProblem, agent: int) -> str:
        return self._observe(state.text, self._agents[agent])

    def step(self, states: Sequence[TextProblem], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[TextProblem]]:
        return [self._outcome(state, actions) for state, actions in zip(states, joint_actions, strict=True)]

    def _outcome(self, state: TextProblem, actions: Sequence[str]) -> Outcome[TextProblem]:
        score = self._score(state.text, dict(zip(self._agents, actions, strict=True)))
        terms = {name: float(value) for name, value in score.terms.items()}
        metrics = {name: float(value) for name, value in score.metrics.items()}
        own = {name: float(value) for name, value in score.agent_rewards.items()}
        return Outcome(sum(terms.values()), terms, metrics, state, True, score.details, own)


#: Draws in a row that may repeat texts that were drawn before.
_REPEATED = 1000


class TextTask(Task):
    """An environment in about 20 lines: agents read a text, answer once, and get a joint reward.

    ``environment: {kind: my_package.my_task}`` names a subclass in your own module.  It holds no state.

    Attributes:
        agents: names of the agents, in acting order.
        measures: the metrics by name; unless ``primary`` names another one, the verdict is about the first.
        reward_bounds: least and greatest reward; the audit refuses a reward that leaves them.
    """

    settings = EnvironmentSection
    problems = (TextProblems,)
    agents: ClassVar[tuple[str, ...]]
    measures: ClassVar[Mapping[str, Metric]]
    reward_bounds: ClassVar[tuple[float, float]]

    def __init_subclass__(cls, **more: Any) -> None:
        """Take the first metric as the primary one where a subclass names none."""
        super().__init_subclass__(**more)
        if "measures" in vars(cls) and "primary" not in vars(cls):
            cls.primary = next(iter(cls.measures))

    @abstractmethod
    def draw(self, rng: random.Random) -> str:
        """Return the text of a problem; all randomness comes from ``rng``.  A repeated text is drawn again."""

    @abstractmethod
    def observe(self, text: str, agent: str) -> str:
        """Return the prompt of an agent."""

    @abstractmethod
    def score(self, text: str, actions: Mapping[str, str]) -> Score:
        """Return the reward terms and metrics of the answers, which are given by agent."""

    @abstractmethod
    def teams(self, text: str) -> Mapping[str, tuple[str, Sequence[str]]]:
        """Return scripted teams for the audit of the reward.

        Returns:
            By name, the role and a text per agent.  Roles: ``working`` (does the task), ``degenerate`` (does not, and
            must not earn as much), ``other`` (for comparison).  At least one ``working`` and one ``degenerate``.
        """

    def example(self, text: str, agent: str, rng: random.Random) -> str:
        """Return an answer for the warm start; pretrained policies without one do not need this method."""
        raise NotImplementedError

    def family(self, text: str) -> str:
        """Return the family of a problem: statistics treat a family as one unit.  By default each text is its own."""
        return text

    def make_problems(self, settings: Any) -> Mapping[str, Sequence[Any]]:
        """Draw different texts until every split is full; raises ProblemsError where there are too few."""
        rng, sizes = random.Random(digest(["texts", settings.seed])), settings.sizes.model_dump()
        found: dict[str, TextProblem] = {}
        repeated = 0
        while len(found) < sum(sizes.values()):
            before, text = len(found), self.draw(rng)
            problem = TextProblem(text, self.family(text))
            found.setdefault(problem.content_hash, problem)
            repeated = 0 if len(found) > before else repeated + 1
            if repeated == _REPEATED:
                raise ProblemsError(
                    f"{type(self).__name__}.draw: {_REPEATED} draws brought no new text after {len(found)}, and "
                    f"problems.sizes asks for {sum(sizes.values())}; draw from more texts, or ask for fewer problems"
                )
        dealt = iter(found.values())
        return {split: list(itertools.islice(dealt, size)) for split, size in sizes.items()}

    def read_problem(self, row: Mapping[str, Any]) -> Any:
        return TextProblem(**{key: value for key, value in row.items() if key != "id"})

    def parse_problem(self, text: str) -> Any:
        """Return the problem with this text."""
        return TextProblem(text.strip(), self.family(text.strip()))

    def prompts(self, problems: Sequence[Any]) -> list[str]:
        """Return what every agent is prompted with on every problem."""
        return [self.observe(problem.text, agent) for problem in problems for agent in self.agents]

    def demonstrate(self, problems: Sequence[Any], count: int, mistakes: float, seed: int) -> Sequence[Demonstration]:
        """Return examples of all agents on random problems; a mistake is the answer to another problem."""
        if type(self).example is TextTask.example:
            return super().demonstrate(problems, count, mistakes, seed)
        rng = random.Random(digest(["demonstrations", seed, count]))
        found = []
        for _ in range(count):
            asked, agent = rng.choice(problems).text, rng.choice(self.agents)
            answered = rng.choice(problems).text if rng.random() < mistakes else asked
            found.append(Demonstration(self.observe(asked, agent), self.example(answered, agent, rng)))
        return found

    def unreadable(self, params: Any) -> str:
        """Return that there are no examples, if the class has no `example`."""
        name = type(self).__name__
        return "" if type(self).example is not TextTask.example else f"the class {name} has no method `example`"

    def make(self, settings: Any, executor: Callable[[], Any]) -> Any:
        return TextGame(self.agents, self.reward_bounds, self.observe, self.score)

    def agent_names(self, params: Any) -> Sequence[str]:
        return self.agents

    def unsuitable(self, protocol: str, settings: Any) -> str:
        """Return why a protocol makes no sense in a single turn."""
        return "in a single turn it is what the base plays anyway" if protocol == "naive_concatenation" else ""

    def audit(self) -> Any:
        return TextExaminer(self.primary, describe(self.primary, self.measures).label, self.teams)
