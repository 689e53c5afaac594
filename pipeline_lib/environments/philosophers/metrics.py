"""The metrics of a table of philosophers; `summary.metrics` computes them."""

from pipeline_lib.environment_api.metrics import Metric

METRICS = {
    "meals_share": Metric(
        "meals, of the most possible",
        share=True,
        over_checkpoints=True,
        about="meals of the table, as a share of the most that it can have within the horizon",
    ),
    "meals": Metric("meals", about="meals that were begun, of all philosophers together"),
    "meals_per_step": Metric("meals per step", about="meals, per step of the whole horizon"),
    "minimum_share": Metric(
        "fewest meals, of the most possible",
        share=True,
        about="meals of the philosopher with the fewest, times the number of philosophers, as a share of the most "
        "possible",
    ),
    "survived": Metric(
        "horizon before a deadlock", share=True, about="share of the horizon that passes before the first deadlock"
    ),
    "deadlock": Metric(
        "episodes in deadlock",
        share=True,
        better="lower",
        behaviour=True,
        over_checkpoints=True,
        about="a deadlock occurs: nobody can ever go on",
    ),
    "deadlocks": Metric("deadlocks", better="lower", about="number of deadlocks in an episode"),
    "wait_share": Metric(
        "decisions to wait",
        share=True,
        better="lower",
        behaviour=True,
        over_checkpoints=True,
        about="share of the decisions that are to wait",
    ),
    "invalid_share": Metric(
        "decisions that cannot be read",
        share=True,
        better="lower",
        behaviour=True,
        over_checkpoints=True,
        about="share of the decisions in whose text no action can be read",
    ),
    "failed_share": Metric(
        "grabs that fail",
        share=True,
        better="lower",
        behaviour=True,
        about="share of the decisions that try something and change nothing, such as grabbing a fork that is not free",
    ),
    "starvation": Metric(
        "philosophers without a meal",
        share=True,
        better="lower",
        behaviour=True,
        about="share of the philosophers that have no meal at all",
    ),
    "livelock": Metric(
        "episodes in livelock",
        share=True,
        better="lower",
        behaviour=True,
        about="over many rounds forks change hands and nobody eats",
    ),
    "fairness": Metric(
        "fairness",
        share=True,
        behaviour=True,
        about="1 if all philosophers eat equally often, 0 if one has all meals or nobody eats (1 - normalised Gini "
        "coefficient)",
    ),
}
