"""The metrics of a coding team."""

from pipeline_lib.environment_api.metrics import Metric, behaviour

METRICS = {
    "tests_passed": Metric(
        "hidden tests passed",
        "share of the problem's hidden tests that the joint program passes",
        share=True,
        over_checkpoints=True,
        at_k="accuracy",
    ),
    "all_passed": Metric(
        "all tests passed", "the joint program passes every hidden test", share=True, over_checkpoints=True, solves=True
    ),
    "cooperation": behaviour(
        "episodes with cooperation",
        "the main function calls the helper, and fewer tests pass when the helper is taken away",
        over_checkpoints=True,
        at_k="cooperation",
    ),
    "calls_helper": behaviour("helper called", "the main function calls the helper or hands it on"),
    "ignores_helper": behaviour(
        "helper's value ignored", "the main function calls the helper and uses none of its values", better="lower"
    ),
    "thin_wrapper": behaviour("thin wrappers", "the main function adds nothing to the helper", better="lower"),
    "structure": behaviour(
        "all functions defined", "share of the required functions that are defined and return a value"
    ),
    "syntax": behaviour(
        "programs that parse", "everything that the agents wrote is valid Python", over_checkpoints=True
    ),
}
