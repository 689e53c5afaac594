"""The coding environment's implementation of `Task`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.task import check_critic, check_steps
from pipeline_lib.environment_api.team_task import TeamTask
from pipeline_lib.environment_kit.programs import check_solutions
from pipeline_lib.environments.coding.audit.examiner import CodingExaminer
from pipeline_lib.environments.coding.demonstrations import demonstrate, demonstrate_later, demonstrate_others
from pipeline_lib.environments.coding.metrics import METRICS, OF_TEAMS, SCHEMES, TERMS
from pipeline_lib.environments.coding.problems.datasets import read_dataset, solution_jobs, typed_problem
from pipeline_lib.environments.coding.problems.generated import generate
from pipeline_lib.environments.coding.problems.problem import AGENTS, CodingProblem
from pipeline_lib.environments.coding.runtime import CodingEnvironment
from pipeline_lib.environments.coding.settings import ANALYSERS, CodingSettings, DatasetProblems, GeneratedProblems
from pipeline_lib.problems.splitting import split_problems

if TYPE_CHECKING:
    from pipeline_lib.environment_api.metrics import Metrics
    from pipeline_lib.environment_api.task import Demonstration
    from pipeline_lib.sandbox import Executor


class CodingTask(TeamTask):
    """A helper and a main function are written by two agents, or both by one, and tested together."""

    settings = CodingSettings
    problems = (GeneratedProblems, DatasetProblems)
    primary = "tests_passed"
    chosen_by = "visible"
    rewarded_in = "pipeline_lib.environments.coding.rewards:Reward"
    guards = ({"metric": "syntax", "better": "higher", "slack": 0.05},)

    def make_problems(self, settings: GeneratedProblems | DatasetProblems) -> Mapping[str, Sequence[CodingProblem]]:
        if settings.kind == "generated":
            return generate(settings)
        return split_problems(read_dataset(settings), settings.validation, settings.test, settings.seed)

    def check_problems(self, problems: Sequence[CodingProblem], executor: Callable[[], Executor]) -> None:
        if problems[0].source == "generated":  # their tests come from running their solutions
            return
        check_solutions({problem.id: solution_jobs(problem) for problem in problems if problem.reference}, executor)

    def read_problem(self, row: Mapping[str, Any]) -> CodingProblem:
        return CodingProblem.from_json(row)

    def parse_problem(self, text: str) -> CodingProblem:
        """Read a function with its docstring, and asserts below it."""
        return typed_problem(text)

    def without_code(self, problem: CodingProblem) -> CodingProblem:
        """Leave out the tests, which run where they are trusted; without them nothing is run, the prelude neither."""
        return replace(problem, visible_tests="", hidden_tests="")

    def prompts(self, problems: Sequence[CodingProblem]) -> list[str]:
        return [text for problem in problems for text in problem.observations.values()]

    def demonstrate(
        self, problems: Sequence[CodingProblem], count: int, mistakes: float, seed: int
    ) -> Sequence[Demonstration]:
        """Show ways to share the work, some flawed; for published problems those of generated ones.

        So small a model cannot learn programming from a hundred problems: it learns what two functions look like.
        """
        generated = all(problem.source == "generated" for problem in problems)
        return (demonstrate if generated else demonstrate_others)(problems, count, mistakes, seed)

    def unreadable(self, params: Any) -> str:
        kind = params.problems.kind
        return "" if kind == "generated" else f"it was shown generated problems, and cannot read those of kind {kind}"

    def has_later_turns(self, params: Any) -> bool:
        tools = getattr(params.environment, "tools", None)  # identities also ask about settings of another kind
        return super().has_later_turns(params) or (tools is not None and params.policy.warm_start is not None)

    def demonstrate_later(
        self,
        problems: Sequence[CodingProblem],
        count: int,
        mistakes: float,
        seed: int,
        settings: CodingSettings,
        executor: Callable[[], Executor],
    ) -> Sequence[Demonstration]:
        return demonstrate_later(problems, count, mistakes, seed, settings, executor)

    def make(self, settings: CodingSettings, executor: Callable[[], Executor]) -> CodingEnvironment:
        return CodingEnvironment(settings, executor)

    def agent_names(self, params: Any) -> Sequence[str]:
        return AGENTS[params.environment.team]

    def check(self, params: Any) -> None:
        """Refuse what cannot work: too few generated problems, a contract where none is known, no tool, no critic."""
        packages = getattr(params.sandbox, "packages", None)  # other kinds of sandbox have their own machine's
        for source in params.environment.feedback:
            tool = ANALYSERS.get(source)
            if tool is not None and packages is not None and tool not in packages:
                raise ValueError(
                    f"environment.feedback has {source}, which runs {tool} in the sandbox: set sandbox.packages to "
                    f"[{', '.join((*packages, tool))}], or take {source} out"
                )
        if params.environment.tools is not None and not params.problems.visible_tests:
            raise ValueError(
                "environment.tools lets agents run visible tests, and problems.visible_tests is 0; set it to 1 or "
                "more, or environment.tools to null"
            )
        if "critic" in params.environment.feedback:
            check_critic(params, "environment.feedback has critic")
        if params.evaluate.equal_effort and not params.problems.visible_tests:
            raise ValueError(
                "evaluate.equal_effort chooses among attempts by visible tests, and problems.visible_tests is 0; set "
                "it to 1 or more, or evaluate.equal_effort to 0"
            )
        if params.problems.kind == "generated":
            check_steps(params)
            return
        reward = params.environment.reward
        if params.environment.team == "pair" and reward.kind == "fine" and reward.contract > 0:
            raise ValueError(
                f"environment.reward.contract ({reward.contract}) pays for a helper that meets its own contract, and "
                f"problems of kind {params.problems.kind} state none: only generated problems do. Set "
                "environment.reward.contract to 0, or problems.kind to generated"
            )

    def terms(self, settings: CodingSettings) -> Mapping[str, str]:
        return TERMS.get(settings.reward.kind, {})

    def team_terms(self, settings: CodingSettings) -> Sequence[str]:
        return OF_TEAMS.get(settings.reward.kind, ()) if settings.team == "pair" else ()

    def schemes(self) -> Mapping[str, str]:
        return SCHEMES

    def metrics(self) -> Metrics:
        return METRICS

    def audit(self) -> Any:
        return CodingExaminer()
