"""The metrics of a table of philosophers, which `summary.metrics` computes, and what the reward's terms mean."""

from __future__ import annotations

from pipeline_lib.environment_api.metrics import Metric, behaviour
from pipeline_lib.environments.philosophers.settings import HORIZONS, SEATS

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
