"""The philosophers' implementation of `Task`, and the metrics that `rewards.metrics` computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.metrics import Metric, behaviour
from pipeline_lib.environment_api.task import Task
from pipeline_lib.environments.philosophers.audit import PhilosophersExaminer
from pipeline_lib.environments.philosophers.demonstrations import demonstrate, demonstrate_in_words
from pipeline_lib.environments.philosophers.runtime import PhilosophersEnvironment
from pipeline_lib.environments.philosophers.scenarios import Scenario, generate_scenarios
from pipeline_lib.environments.philosophers.settings import HORIZONS, SEATS, PhilosophersSettings, ScenarioProblems

if TYPE_CHECKING:
    from pipeline_lib.environment_api.task import Demonstration

METRICS = {
    "meals_share": Metric(
        "meals, of the most possible",
        "meals of the table, as a share of the most that it can have within the horizon",
        share=True,
        over_checkpoints=True,
    ),
    # A philosopher begins at most one meal in a step.
    "meals": Metric(
        "meals", "meals that were begun, of all philosophers together", low=0.0, high=float(SEATS[1] * HORIZONS[1])
    ),
    "meals_per_step": Metric("meals per step", "meals, per step of the whole horizon", low=0.0, high=float(SEATS[1])),
    "minimum_share": Metric(
        "fewest meals, of the most possible",
        "meals of the philosopher with the fewest, times the number of philosophers, as a share of the most possible",
        share=True,
    ),
    "survived": Metric(
        "horizon before a deadlock", "share of the horizon that passes before the first deadlock", share=True
    ),
    "deadlock": behaviour(
        "episodes in deadlock", "a deadlock occurs: nobody can ever go on", better="lower", over_checkpoints=True
    ),
    "deadlocks": Metric(
        "deadlocks", "number of deadlocks in an episode", better="lower", low=0.0, high=float(HORIZONS[1])
    ),
    "wait_share": behaviour(
        "decisions to wait", "share of the decisions that are to wait", better="lower", over_checkpoints=True
    ),
    "invalid_share": behaviour(
        "decisions that cannot be read",
        "share of the decisions in whose text no action can be read",
        better="lower",
        over_checkpoints=True,
    ),
    "failed_share": behaviour(
        "grabs that fail",
        "share of the decisions that try something and change nothing, such as grabbing a fork that is not free",
        better="lower",
    ),
    "starvation": behaviour(
        "philosophers without a meal", "share of the philosophers that have no meal at all", better="lower"
    ),
    "livelock": behaviour(
        "episodes in livelock", "over many rounds forks change hands and nobody eats", better="lower"
    ),
    "fairness": behaviour(
        "fairness",
        "1 if all philosophers eat equally often, 0 if one has all meals or nobody eats (1 - normalised Gini "
        "coefficient)",
    ),
    # Measured only if somebody announces an action.
    "message_consistency": behaviour(
        "announcements kept", "share of the actions announced in messages that are then taken"
    ),
}


#: The terms of the built-in rewards; the library of terms (`rewards.TERMS`) may be weighted in any way.
TERMS = {
    "meals": "meals as a share of the most possible; the sound reward discounts them by up to a half for unfairness",
    "fair_meals": "meals as a share of the most possible, discounted by up to a half for unfairness",
    "fair_meals_without_deadlock": "meals as a share of the most possible, times fairness; nothing after a deadlock",
    "minimum_share": METRICS["minimum_share"].about,
    "fairness": METRICS["fairness"].about,
    "deadlock": "a deadlock occurs; the sound reward takes more for an early one",
    "early_deadlock": "share of the horizon that is lost to a deadlock",
    "starvation": METRICS["starvation"].about,
    "invalid": "decisions that cannot be read, as a share of those of a full episode",
    "failed": "grabs that fail, as a share of the decisions of a full episode",
    "no_deadlock_vacuous": "no deadlock occurs, which a table at which nothing happens has too",
    "fairness_vacuous": "fairness, which is 1 where nobody eats",
    "success_vacuous": "share of the grabs that succeed, which is 1 where nobody grabs",
    "efficiency_vacuous": "meals per fork taken, which is 1 where nobody takes any",
    "clip": "what the limits of the reward take away or add",
}
MEANINGS = {"sound": TERMS, "terms": TERMS}


class PhilosophersTask(Task):
    """Every philosopher needs two forks, and shares each with a neighbour."""

    settings = PhilosophersSettings
    problems = (ScenarioProblems,)
    problem = Scenario
    measures = METRICS
    primary = "meals_share"
    examiner = PhilosophersExaminer
    meanings = MEANINGS
    demonstrate = staticmethod(demonstrate)
    rewards_agents = True
    rewarded_in = "pipeline_lib.environments.philosophers.rewards:Reward"
    guards = (
        {"metric": "meals_share", "better": "higher", "limit": 0.01},
        {"metric": "invalid_share", "better": "lower", "slack": 0.05},
        {"metric": "deadlock", "better": "lower", "slack": 0.1},
    )

    def make_problems(self, settings: ScenarioProblems) -> Mapping[str, Sequence[Scenario]]:
        return {split: scenarios for split, scenarios in generate_scenarios(settings).items() if scenarios}

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

    def demonstrate_later(
        self,
        problems: Sequence[Scenario],
        count: int,
        mistakes: float,
        seed: int,
        settings: PhilosophersSettings,
        executor: Callable[[], Any],
    ) -> Sequence[Demonstration]:
        return demonstrate_in_words(problems, count, mistakes, seed, settings)

    def has_later_turns(self, params: Any) -> bool:
        prompt = getattr(params.environment, "prompt", "compact")  # identities also ask about settings of another kind
        return prompt != "compact" and params.policy.warm_start is not None

    def all_follow_settings(self, params: Any) -> bool:
        return True
