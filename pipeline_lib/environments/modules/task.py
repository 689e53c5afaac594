"""The modules environment's implementation of `Task`, and its metrics.

An outcome has the metrics of the parts that its problem has, and an orchestrated team those of its hand-out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.metrics import Metric, behaviour
from pipeline_lib.environment_api.task import TeamTask, check_steps
from pipeline_lib.environment_kit.programs import check_solutions
from pipeline_lib.environments.modules.audit import ModulesExaminer
from pipeline_lib.environments.modules.class_eval import read_classes
from pipeline_lib.environments.modules.demonstrations import demonstrate, demonstrate_later
from pipeline_lib.environments.modules.generated import LOWER, TOP, generate
from pipeline_lib.environments.modules.hand_out import LEAD, WORKERS
from pipeline_lib.environments.modules.problem import SINGLE, ModulesProblem
from pipeline_lib.environments.modules.program import solution_jobs
from pipeline_lib.environments.modules.rewards import TERMS
from pipeline_lib.environments.modules.runtime import ModulesEnvironment
from pipeline_lib.environments.modules.settings import ClassProblems, GeneratedModules, ModulesSettings
from pipeline_lib.problems.splitting import split_problems

if TYPE_CHECKING:
    from pipeline_lib.environment_api.task import Demonstration
    from pipeline_lib.sandbox import Executor

METRICS = {
    "system_passed": Metric(
        "hidden system tests passed",
        "share of the hidden tests of the whole program that it passes",
        share=True,
        over_checkpoints=True,
        at_k="accuracy",
    ),
    "system_right": Metric(
        "all system tests passed",
        "the joint program passes every hidden test of the whole",
        share=True,
        over_checkpoints=True,
        solves=True,
    ),
    "units_passed": Metric(
        "hidden unit tests passed",
        "share of a part's own hidden tests that it passes among right parts, mean over the parts",
        share=True,
        over_checkpoints=True,
    ),
    "units_right": Metric(
        "parts right on their own", "share of the parts that pass all their own hidden tests", share=True
    ),
    "parts_needed": behaviour(
        "parts that are needed",
        "share of the parts without which (with a stub in their place) fewer system tests pass",
        over_checkpoints=True,
    ),
    "parts_defined": behaviour("parts defined", "share of the parts that parse and define what they must"),
    "parts_parse": behaviour("parts that parse", "share of the parts that are valid Python", over_checkpoints=True),
    "parts_handed_out": behaviour("parts handed out", "share of the parts that the lead hands out to a worker"),
    "workers_used": behaviour("workers used", "share of the workers to whom the lead hands out a part"),
    **{
        f"unit_{part}": Metric(
            f"unit tests of {part}", f"share of the hidden unit tests that {part} passes among right parts", share=True
        )
        for part in (*LOWER, TOP)
    },
    **{
        f"needed_{part}": behaviour(f"{part} needed", f"fewer system tests pass with a stub in place of {part}")
        for part in (*LOWER, TOP)
    },
}


class ModulesTask(TeamTask):
    """Two to four agents write a part of a program each; parts and program are tested."""

    settings = ModulesSettings
    problems = (GeneratedModules, ClassProblems)
    problem = ModulesProblem
    measures = METRICS
    runs_programs = True
    primary = "system_passed"
    examiner = ModulesExaminer
    meanings = TERMS
    demonstrate = staticmethod(demonstrate)
    rewards_agents = True
    retries = False  # one turn, or the lead's and the workers'
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

    def without_code(self, problem: ModulesProblem) -> ModulesProblem:
        """Leave out the tests, which run where they are trusted; without them nothing is run, the prelude neither."""
        return replace(problem, unit_tests={}, system_tests="")

    def prompts(self, problems: Sequence[ModulesProblem]) -> list[str]:
        return [text for problem in problems for text in problem.observations.values()]

    def demonstrate_later(
        self,
        problems: Sequence[ModulesProblem],
        count: int,
        mistakes: float,
        seed: int,
        settings: ModulesSettings,
        executor: Callable[[], Executor],
    ) -> Sequence[Demonstration]:
        return demonstrate_later(problems, count, mistakes, seed)

    def has_later_turns(self, params: Any) -> bool:
        return _orchestrated(params) and params.policy.warm_start is not None

    def most_turns(self, params: Any) -> int:
        return 2 if _orchestrated(params) else 1

    def unsuitable(self, protocol: str, settings: ModulesSettings) -> str:
        if settings.team == "orchestrated":
            return "the workers of an orchestrated team read what the lead tells them, and nobody else's files"
        return super().unsuitable(protocol, settings)

    def notes(self, settings: ModulesSettings) -> list[str]:
        return [] if settings.team == "orchestrated" else super().notes(settings)

    def unreadable(self, params: Any) -> str:
        kind = params.problems.kind
        return "" if kind == "module_graphs" else f"there are no demonstrations of problems of kind {kind}"

    def make(self, settings: ModulesSettings, executor: Callable[[], Executor]) -> ModulesEnvironment:
        return ModulesEnvironment(settings, executor)

    def agent_names(self, params: Any) -> Sequence[str]:
        if params.environment.team == "single":
            return (SINGLE,)
        modules = params.problems.modules
        return (LEAD, *WORKERS[:modules]) if _orchestrated(params) else (*LOWER[: modules - 1], TOP)

    def max_acting(self, params: Any) -> int:
        return len(self.agent_names(params)) - _orchestrated(params)  # the workers act after the lead

    def check(self, params: Any) -> None:
        """Refuse what cannot work: too few generated problems, classes or own rewards for an orchestrated team."""
        if _orchestrated(params) and params.problems.kind != "module_graphs":
            raise ValueError(
                f"environment.team: orchestrated hands out files, and problems of kind {params.problems.kind} are "
                "methods of one class; set environment.team to modules or single, or problems.kind to module_graphs"
            )
        if _orchestrated(params) and params.train.individual_reward:
            raise ValueError(
                "train.individual_reward: in an orchestrated team no part belongs to one agent; set it to 0, or "
                "environment.team to modules"
            )
        if params.problems.kind == "module_graphs":
            check_steps(params)


def _orchestrated(params: Any) -> bool:
    return bool(params.environment.team == "orchestrated")
