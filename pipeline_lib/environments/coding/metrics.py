"""What is measured of a coding team."""

from pipeline_lib.seam.metrics import Metric

METRICS = {
    "tests_passed": Metric("hidden tests passed", share=True, over_checkpoints=True, at_k="accuracy"),
    "all_passed": Metric("all tests passed", share=True, over_checkpoints=True, solves=True),
    "cooperation": Metric(
        "episodes with cooperation", share=True, behaviour=True, over_checkpoints=True, at_k="cooperation"
    ),
    "calls_helper": Metric("helper called", share=True, behaviour=True),
    "ignores_helper": Metric("helper's value ignored", share=True, better="lower", behaviour=True),
    "thin_wrapper": Metric("thin wrappers", share=True, better="lower", behaviour=True),
    "structure": Metric("all functions defined", share=True, behaviour=True),
    "syntax": Metric("programs that parse", share=True, behaviour=True, over_checkpoints=True),
}
