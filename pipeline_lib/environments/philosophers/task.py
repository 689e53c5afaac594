"""The philosophers' implementation of `Task`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.task import Task
from pipeline_lib.environments.philosophers.audit.examiner import PhilosophersExaminer
from pipeline_lib.environments.philosophers.demonstrations import demonstrate_philosophers
from pipeline_lib.environments.philosophers.metrics import METRICS, TERMS
from pipeline_lib.environments.philosophers.runtime import PhilosophersEnvironment
from pipeline_lib.environments.philosophers.scenarios import Scenario, generate_scenarios
from pipeline_lib.environments.philosophers.settings import PhilosophersSettings, ScenarioProblems

if TYPE_CHECKING:
    from pipeline_lib.environment_api.metrics import Metrics
    from pipeline_lib.environment_api.task import Demonstration


class PhilosophersTask(Task):
    """Every philosopher needs two forks, and shares each with a neighbour."""

    settings = PhilosophersSettings
    problems = (ScenarioProblems,)
    primary = "meals_share"
    rewards_agents = True
    rewarded_in = "pipeline_lib.environments.philosophers.rewards:Reward"
    guards = (
        {"metric": "meals_share", "better": "higher", "limit": 0.01},
        {"metric": "invalid_share", "better": "lower", "slack": 0.05},
        {"metric": "deadlock", "better": "lower", "slack": 0.1},
    )

    def make_problems(self, settings: ScenarioProblems) -> Mapping[str, Sequence[Scenario]]:
        return {split: scenarios for split, scenarios in generate_scenarios(settings).items() if scenarios}

    def read_problem(self, row: Mapping[str, Any]) -> Scenario:
        return Scenario.from_json(row)

    def demonstrate(
        self, problems: Sequence[Scenario], count: int, mistakes: float, seed: int
    ) -> Sequence[Demonstration]:
        return demonstrate_philosophers(problems, count, mistakes, seed)

    def make(self, settings: PhilosophersSettings, executor: Callable[[], Any]) -> PhilosophersEnvironment:
        return PhilosophersEnvironment(settings)

    def most_turns(self, params: Any) -> int:
        """Return the longest horizon, with the rounds of messages before every step."""
        return max(params.problems.family.horizon) * max(1, params.environment.message_rounds)

    def unsuitable(self, protocol: str, settings: PhilosophersSettings) -> str:
        """Return why a protocol makes no sense: a single turn, no space for quotes, or no texts to read."""
        if protocol == "naive_concatenation":
            return "it plays a single turn, but a meal needs several"
        if settings.prompt == "compact":
            return "environment.prompt is compact, a line of letters without space for the texts of others"
        if settings.mode == "sequential":
            return "environment.mode is sequential: one philosopher acts at a time and has no texts of others to read"
        return ""

    def agent_names(self, params: Any) -> Sequence[str]:
        return [f"P{seat}" for seat in range(max(params.problems.family.philosophers))]

    def max_acting(self, params: Any) -> int:
        """Return the size of the largest table; one where they move, and speak, one after the other."""
        environment = params.environment
        alone = environment.mode == "sequential" and environment.message_rounds < 2
        return 1 if alone else max(params.problems.family.philosophers)

    def check(self, params: Any) -> None:
        prompt = params.environment.prompt
        if params.policy.kind == "embedded" and prompt != "compact":
            raise ValueError(
                f"environment.prompt is {prompt}, but the embedded policy reads only compact; set it to compact, or "
                "use a pretrained policy"
            )

    def unreadable(self, params: Any) -> str:
        prompt = params.environment.prompt
        return "" if prompt == "compact" else f"those of the philosophers have the prompt compact, not {prompt}"

    def terms(self, settings: PhilosophersSettings) -> Mapping[str, str]:
        return TERMS if settings.reward.kind != "custom" else {}

    def metrics(self) -> Metrics:
        return METRICS

    def audit(self) -> Any:
        return PhilosophersExaminer()
