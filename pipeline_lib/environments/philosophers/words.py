"""What the names of reward terms mean, for the report."""

from pipeline_lib.environments.philosophers.metrics import METRICS

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
