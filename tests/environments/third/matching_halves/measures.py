"""What is measured."""

from pipeline_lib.environment_api.metrics import Metric

METRICS = {
    "match": Metric("halves that match", share=True, over_checkpoints=True, solves=True),
    "letters": Metric("pairs of single letters", share=True, behaviour=True),
    "length": Metric("letters in the word", low=3, high=8),
}
