"""The metrics of a coding team."""

from pipeline_lib.environment_api.metrics import Metric

METRICS = {
    "tests_passed": Metric(
        "hidden tests passed",
        share=True,
        over_checkpoints=True,
        at_k="accuracy",
        about="share of the problem's hidden tests that the joint program passes",
    ),
    "all_passed": Metric(
        "all tests passed",
        share=True,
        over_checkpoints=True,
        solves=True,
        about="the joint program passes every hidden test",
    ),
    "cooperation": Metric(
        "episodes with cooperation",
        share=True,
        behaviour=True,
        over_checkpoints=True,
        at_k="cooperation",
        about="the main function calls the helper, and fewer tests pass when the helper is taken away",
    ),
    "calls_helper": Metric(
        "helper called", share=True, behaviour=True, about="the main function calls the helper or hands it on"
    ),
    "ignores_helper": Metric(
        "helper's value ignored",
        share=True,
        better="lower",
        behaviour=True,
        about="the main function calls the helper and uses none of its values",
    ),
    "thin_wrapper": Metric(
        "thin wrappers",
        share=True,
        better="lower",
        behaviour=True,
        about="the main function adds nothing to the helper",
    ),
    "structure": Metric(
        "all functions defined",
        share=True,
        behaviour=True,
        about="share of the required functions that are defined and return a value",
    ),
    "syntax": Metric(
        "programs that parse",
        share=True,
        behaviour=True,
        over_checkpoints=True,
        about="everything that the agents wrote is valid Python",
    ),
}
