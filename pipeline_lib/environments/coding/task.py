"""The coding environment's implementation of `Task`, its metrics, and what its reward terms and schemes mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.metrics import Metric, behaviour
from pipeline_lib.environment_api.task import TeamTask, check_critic, check_steps
from pipeline_lib.environment_kit.programs import check_solutions
from pipeline_lib.environments.coding.audit import CodingExaminer
from pipeline_lib.environments.coding.datasets import read_dataset, solution_jobs, typed_problem
from pipeline_lib.environments.coding.demonstrations import demonstrate, demonstrate_later, demonstrate_others
from pipeline_lib.environments.coding.generated import generate
from pipeline_lib.environments.coding.problem import AGENTS, CodingProblem
from pipeline_lib.environments.coding.rewards import make_reward
from pipeline_lib.environments.coding.runtime import CodingEnvironment
from pipeline_lib.environments.coding.settings import ANALYSERS, CodingSettings, DatasetProblems, GeneratedProblems
from pipeline_lib.problems.splitting import split_problems

if TYPE_CHECKING:
    from pipeline_lib.environment_api.task import Demonstration
    from pipeline_lib.sandbox import Executor

METRICS = {
    "tests_passed": Metric(
        "hidden tests passed",
        "share of the problem's hidden tests that the joint program passes",
        share=True,
        over_checkpoints=True,
        at_k="accuracy",
    ),
    "all_passed": Metric(
        "all tests passed", "the joint program passes every hidden test", share=True, over_checkpoints=True, solves=True
    ),
    "cooperation": behaviour(
        "episodes with cooperation",
        "the main function calls the helper, and fewer tests pass when the helper is taken away",
        over_checkpoints=True,
        at_k="cooperation",
    ),
    "calls_helper": behaviour("helper called", "the main function calls the helper or hands it on"),
    "ignores_helper": behaviour(
        "helper's value ignored", "the main function calls the helper and uses none of its values", better="lower"
    ),
    "thin_wrapper": behaviour("thin wrappers", "the main function adds nothing to the helper", better="lower"),
    "structure": behaviour(
        "all functions defined", "share of the required functions that are defined and return a value"
    ),
    "syntax": behaviour(
        "programs that parse", "everything that the agents wrote is valid Python", over_checkpoints=True
    ),
    # Measured only if the reward uses them.
    "tests_weighted": behaviour(
        "hidden tests passed, by difficulty",
        "share of the problem's hidden tests that the joint program passes, where harder tests count more",
    ),
    "contract_met": behaviour("helper's contract met", "share of the tests of the helper alone that the helper passes"),
    "mutants_noticed": behaviour(
        "helper's mutants noticed",
        "share of the small changes of the helper that hidden tests notice; 0 if the program does not need its helper",
    ),
    "helper_adds": behaviour(
        "tests passed by the helper's work",
        "share of the hidden tests that are passed with the helper and not without it",
    ),
    "programs": Metric(
        "programs run", "programs that were run to judge the joint action", better="lower", low=0.0, behaviour=True
    ),
}


SCHEMES = {
    "fallback": "the main function has its own answer for the case that the helper fails",
    "decorator": "the main function adds something around one plain call of the helper",
    "coordinator": "the main function applies the helper to many items, or calls it more than once for one answer",
    "strategy_filter": "a condition chooses between the helper and another way, or the helper's value is the condition",
}

_STRUCTURE = "the required functions are defined and return a value"
_SYNTAX = "everything that the agents wrote is valid Python"
_TESTS = "share of the hidden tests passed"

#: The terms of each built-in reward.
TERMS = {
    "sound": {
        "structure": _STRUCTURE,
        "syntax": _SYNTAX,
        "tests": _TESTS,
        "cooperation": "the main function calls the helper, and fewer tests pass without it",
    },
    "fine": {
        "structure": _STRUCTURE,
        "syntax": _SYNTAX,
        "tests": "share of the hidden tests passed, where harder tests count more",
        "contract": "share of the tests of the helper alone that it passes",
        "mutation": "share of the helper's mutants that the hidden tests notice, times the share of tests passed",
        "ablation": "share of the hidden tests that are passed with the helper and not without it",
    },
    "paper": {
        "structure": _STRUCTURE,
        "syntax": _SYNTAX,
        "tests": _TESTS,
        "cooperation": "a test passes and the main function calls the helper; more if it is no thin wrapper, less if "
        "it ignores the helper's values",
    },
}

#: The terms of each built-in reward that a single agent cannot earn: it has no other agent's function to call.
OF_TEAMS = {
    "sound": ("cooperation",),
    "fine": ("contract", "mutation", "ablation"),
    "paper": ("cooperation",),
}


class CodingTask(TeamTask):
    """A helper and a main function are written by two agents, or both by one, and tested together."""

    settings = CodingSettings
    problems = (GeneratedProblems, DatasetProblems)
    problem = CodingProblem
    measures = METRICS
    runs_programs = True
    primary = "tests_passed"
    rewards_agents = True
    examiner = CodingExaminer
    meanings = TERMS
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
        """Refuse what cannot work: a contract, a tool, a critic or enough problems that there are not."""
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
        reward, generated = params.environment.reward, params.problems.kind == "generated"
        if params.train.individual_reward and not (generated and make_reward(reward, "pair").needs_contract):
            raise ValueError(
                "train.individual_reward rewards a helper for meeting its own contract, which generated problems state "
                "and some rewards measure: set problems.kind to generated, and environment.reward to {kind: fine} with "
                "contract above 0, or to a custom one whose attribute needs_contract is True; or set "
                "train.individual_reward to 0"
            )
        if generated:
            check_steps(params)
            return
        if params.environment.team == "pair" and reward.kind == "fine" and reward.contract > 0:
            raise ValueError(
                f"environment.reward.contract ({reward.contract}) pays for a helper that meets its own contract, and "
                f"problems of kind {params.problems.kind} state none: only generated problems do. Set "
                "environment.reward.contract to 0, or problems.kind to generated"
            )

    def team_terms(self, settings: CodingSettings) -> Sequence[str]:
        return OF_TEAMS.get(settings.reward.kind, ()) if settings.team == "pair" else ()

    def schemes(self) -> Mapping[str, str]:
        return SCHEMES
