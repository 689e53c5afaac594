"""What is measured of a table of philosophers; `summary.metrics` computes it."""

from pipeline_lib.seam.metrics import Metric

METRICS = {
    "meals_share": Metric("meals, of the most possible", share=True, over_checkpoints=True),
    "meals": Metric("meals"),
    "meals_per_step": Metric("meals per step"),
    "minimum_share": Metric("fewest meals, of the most possible", share=True),
    "survived": Metric("horizon before a deadlock", share=True),
    "deadlock": Metric("episodes in deadlock", share=True, better="lower", behaviour=True, over_checkpoints=True),
    "deadlocks": Metric("deadlocks", better="lower"),
    "wait_share": Metric("decisions to wait", share=True, better="lower", behaviour=True, over_checkpoints=True),
    "invalid_share": Metric(
        "decisions that cannot be read", share=True, better="lower", behaviour=True, over_checkpoints=True
    ),
    "failed_share": Metric("grabs that fail", share=True, better="lower", behaviour=True),
    "starvation": Metric("philosophers without a meal", share=True, better="lower", behaviour=True),
    "livelock": Metric("episodes in livelock", share=True, better="lower", behaviour=True),
    "fairness": Metric("fairness", share=True, behaviour=True),
}
