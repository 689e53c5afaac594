"""The planning environment's implementation of `Task`, and what it measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.metrics import Metric, behaviour
from pipeline_lib.environment_api.task import Task, check_steps
from pipeline_lib.environment_kit.dialogue import talk_metrics
from pipeline_lib.environments.planning.audit import PlanningExaminer
from pipeline_lib.environments.planning.demonstrations import demonstrate
from pipeline_lib.environments.planning.problem import AGENTS, SINGLE, PlanningProblem, generate
from pipeline_lib.environments.planning.rewards import TERMS
from pipeline_lib.environments.planning.runtime import PlanningEnvironment
from pipeline_lib.environments.planning.settings import MOST_TOKENS, MOST_TURNS, AppointmentProblems, PlanningSettings

if TYPE_CHECKING:
    pass

METRICS = {
    "satisfied": Metric(
        "plans that satisfy everything",
        "both agents agree to the same plan, and it satisfies every constraint",
        share=True,
        over_checkpoints=True,
        solves=True,
    ),
    "constraints": Metric(
        "constraints satisfied", "share of the constraints that the agreed plan satisfies", share=True
    ),
    "agreed": behaviour("agreements", "both agents agree to the same plan, good or bad", over_checkpoints=True),
    "differed": behaviour("different agreements", "the agents agree to different plans", better="lower"),
    **talk_metrics(
        AGENTS,
        turns="turns until both have agreed",
        useless="share of the messages' tokens that do not tell, for the first time, a day or place that suits who "
        "says it",
        most_tokens=MOST_TOKENS,
        most_turns=MOST_TURNS,
    ),
}


class PlanningTask(Task):
    """Two agents with constraints of their own agree on a day and a place."""

    settings = PlanningSettings
    problems = (AppointmentProblems,)
    problem = PlanningProblem
    measures = METRICS
    primary = "satisfied"
    examiner = PlanningExaminer
    meanings = TERMS
    demonstrate = staticmethod(demonstrate)
    chosen_by = "answer"
    rewarded_in = "pipeline_lib.environments.planning.runtime:PlanningEnvironment"  # it depends on how texts are read
    guards = ({"metric": "agreed", "better": "higher", "slack": 0.1},)

    def make_problems(self, settings: AppointmentProblems) -> Mapping[str, Sequence[PlanningProblem]]:
        return generate(settings)

    def prompts(self, problems: Sequence[PlanningProblem]) -> list[str]:
        return [
            environment.observe(environment.start(problem), agent)
            for environment in (PlanningEnvironment(PlanningSettings(team=team)) for team in ("team", SINGLE))
            for problem in problems
            for agent in range(len(environment.agents(problem)))
        ]

    def make(self, settings: PlanningSettings, executor: Callable[[], Any]) -> PlanningEnvironment:
        return PlanningEnvironment(settings)

    def single_agent(self, settings: PlanningSettings) -> PlanningSettings:
        return settings.model_copy(update={"team": SINGLE})

    def most_turns(self, params: Any) -> int:
        return 1 if params.environment.team == SINGLE else int(params.environment.turns)

    def unsuitable(self, protocol: str, settings: PlanningSettings) -> str:
        return "the agents of environment.kind planning read each other's messages already"

    def agent_names(self, params: Any) -> Sequence[str]:
        return (SINGLE,) if params.environment.team == SINGLE else AGENTS

    def check(self, params: Any) -> None:
        check_steps(params)
