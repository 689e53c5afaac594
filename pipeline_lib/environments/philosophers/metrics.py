"""The metrics of a table of philosophers; `summary.metrics` computes them."""

from pipeline_lib.environment_api.metrics import Metric, behaviour

METRICS = {
    "meals_share": Metric(
        "meals, of the most possible",
        "meals of the table, as a share of the most that it can have within the horizon",
        share=True,
        over_checkpoints=True,
    ),
    "meals": Metric("meals", "meals that were begun, of all philosophers together"),
    "meals_per_step": Metric("meals per step", "meals, per step of the whole horizon"),
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
    "deadlocks": Metric("deadlocks", "number of deadlocks in an episode", better="lower"),
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
}
