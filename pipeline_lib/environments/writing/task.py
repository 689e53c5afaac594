"""The writing environment's implementation of `Task`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.task import check_steps
from pipeline_lib.environment_api.team_task import TeamTask
from pipeline_lib.environments.writing.audit import WritingExaminer
from pipeline_lib.environments.writing.demonstrations import demonstrate
from pipeline_lib.environments.writing.figures import texts
from pipeline_lib.environments.writing.metrics import METRICS, TERMS
from pipeline_lib.environments.writing.problems.datasets import read_dataset
from pipeline_lib.environments.writing.problems.generated import generate
from pipeline_lib.environments.writing.problems.problem import AGENTS, WritingProblem
from pipeline_lib.environments.writing.runtime import WritingEnvironment
from pipeline_lib.environments.writing.settings import GeneratedTexts, PublishedTexts, WritingSettings
from pipeline_lib.problems.splitting import split_problems

if TYPE_CHECKING:
    from pipeline_lib.environment_api.metrics import Metrics
    from pipeline_lib.environment_api.task import Demonstration


class WritingTask(TeamTask):
    """Two writers, or one, tell what a text says: a short and a long summary, or the halves of an introduction."""

    settings = WritingSettings
    problems = (GeneratedTexts, PublishedTexts)
    primary = "coverage"
    rewarded_in = "pipeline_lib.environments.writing.runtime:WritingEnvironment"  # it depends on how texts are read
    guards = (
        {"metric": "inventions", "better": "lower", "slack": 0.05},
        {"metric": "complete", "better": "higher", "slack": 0.05},
    )
    demonstrates_reading = True

    def make_problems(self, settings: GeneratedTexts | PublishedTexts) -> Mapping[str, Sequence[WritingProblem]]:
        if settings.kind == "world":
            return generate(settings)
        return split_problems(read_dataset(settings), settings.validation, settings.test, settings.seed)

    def read_problem(self, row: Mapping[str, Any]) -> WritingProblem:
        return WritingProblem.from_json(row)

    def prompts(self, problems: Sequence[WritingProblem]) -> list[str]:
        return [text for problem in problems for text in problem.observations.values()]

    def demonstrate(
        self, problems: Sequence[WritingProblem], count: int, mistakes: float, seed: int
    ) -> Sequence[Demonstration]:
        return demonstrate(problems, count, mistakes, seed)

    def make(self, settings: WritingSettings, executor: Callable[[], Any]) -> WritingEnvironment:
        return WritingEnvironment(settings)

    def agent_names(self, params: Any) -> Sequence[str]:
        return AGENTS[params.environment.team]

    def check(self, params: Any) -> None:
        if params.problems.kind == "world":
            check_steps(params)

    def terms(self, settings: WritingSettings) -> Mapping[str, str]:
        return TERMS.get(settings.reward.kind, {})

    def metrics(self) -> Metrics:
        return METRICS

    def audit(self) -> Any:
        return WritingExaminer()

    def figures(self, data: Any) -> Sequence[Any]:
        return texts(data)
