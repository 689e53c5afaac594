"""The modules environment's implementation of `Task`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.task import check_steps
from pipeline_lib.environment_api.team_task import TeamTask
from pipeline_lib.environment_kit.programs import check_solutions
from pipeline_lib.environments.modules.demonstrations import demonstrate
from pipeline_lib.environments.modules.metrics import METRICS
from pipeline_lib.environments.modules.problems.class_eval import read_classes
from pipeline_lib.environments.modules.problems.design import LOWER, TOP
from pipeline_lib.environments.modules.problems.generated import generate
from pipeline_lib.environments.modules.problems.problem import SINGLE, ModulesProblem
from pipeline_lib.environments.modules.program import solution_jobs
from pipeline_lib.environments.modules.rewards import TERMS
from pipeline_lib.environments.modules.runtime import ModulesEnvironment
from pipeline_lib.environments.modules.settings import ClassProblems, GeneratedModules, ModulesSettings
from pipeline_lib.problems.splitting import split_problems

if TYPE_CHECKING:
    from pipeline_lib.environment_api.metrics import Metrics
    from pipeline_lib.environment_api.task import Demonstration
    from pipeline_lib.sandbox import Executor


class ModulesTask(TeamTask):
    """Two to four agents write a part of a program each; parts and program are tested."""

    settings = ModulesSettings
    problems = (GeneratedModules, ClassProblems)
    primary = "system_passed"
    rewards_agents = True
    rewarded_in = "pipeline_lib.environments.modules.runtime:ModulesEnvironment"  # it depends on what is run
    guards = ({"metric": "parts_parse", "better": "higher", "slack": 0.05},)

    def make_problems(self, settings: GeneratedModules | ClassProblems) -> Mapping[str, Sequence[ModulesProblem]]:
        if settings.kind == "module_graphs":
            return generate(settings)
        return split_problems(read_classes(settings), settings.validation, settings.test, settings.seed)

    def check_problems(self, problems: Sequence[ModulesProblem], executor: Callable[[], Executor]) -> None:
        if problems[0].layout == "package":  # their tests come from running their solutions
            return
        check_solutions({problem.id: solution_jobs(problem) for problem in problems if problem.references}, executor)

    def read_problem(self, row: Mapping[str, Any]) -> ModulesProblem:
        return ModulesProblem.from_json(row)

    def without_code(self, problem: ModulesProblem) -> ModulesProblem:
        """Leave out the tests, which run where they are trusted; without them nothing is run, the prelude neither."""
        return replace(problem, unit_tests={}, system_tests="")

    def prompts(self, problems: Sequence[ModulesProblem]) -> list[str]:
        return [text for problem in problems for text in problem.observations.values()]

    def demonstrate(
        self, problems: Sequence[ModulesProblem], count: int, mistakes: float, seed: int
    ) -> Sequence[Demonstration]:
        return demonstrate(problems, count, mistakes, seed)

    def unreadable(self, params: Any) -> str:
        kind = params.problems.kind
        return "" if kind == "module_graphs" else f"there are no demonstrations of problems of kind {kind}"

    def make(self, settings: ModulesSettings, executor: Callable[[], Executor]) -> ModulesEnvironment:
        return ModulesEnvironment(settings, executor)

    def agent_names(self, params: Any) -> Sequence[str]:
        if params.environment.team == "single":
            return (SINGLE,)
        return (*LOWER[: params.problems.modules - 1], TOP)

    def check(self, params: Any) -> None:
        if params.problems.kind == "module_graphs":
            check_steps(params)

    def terms(self, settings: ModulesSettings) -> Mapping[str, str]:
        return TERMS if settings.reward.kind == "sound" else {}

    def metrics(self) -> Metrics:
        return METRICS

    def audit(self) -> Any:
        from pipeline_lib.environments.modules.audit import ModulesExaminer  # loads scipy: 0.5 s

        return ModulesExaminer()
