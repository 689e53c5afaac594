"""The metrics of a coding team, and what the names of its reward terms and cooperation schemes mean."""

from __future__ import annotations

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
    # Measured only if the reward uses them.
    "tests_weighted": behaviour(
        "hidden tests passed, by difficulty",
        "share of the problem's hidden tests that the joint program passes, where harder tests count more",
    ),
    "contract_met": behaviour("helper's contract met", "share of the tests of the helper alone that the helper passes"),
    "mutants_noticed": behaviour(
        "helper's mutants noticed",
        "share of the small changes of the helper that hidden tests notice; 0 if the program does not need its helper",
    ),
    "helper_adds": behaviour(
        "tests passed by the helper's work",
        "share of the hidden tests that are passed with the helper and not without it",
    ),
    "programs": Metric(
        "programs run", "programs that were run to judge the joint action", better="lower", low=0.0, behaviour=True
    ),
}


SCHEMES = {
    "fallback": "the main function has its own answer for the case that the helper fails",
    "decorator": "the main function adds something around one plain call of the helper",
    "coordinator": "the main function applies the helper to many items, or calls it more than once for one answer",
    "strategy_filter": "a condition chooses between the helper and another way, or the helper's value is the condition",
}

_STRUCTURE = "the required functions are defined and return a value"
_SYNTAX = "everything that the agents wrote is valid Python"
_TESTS = "share of the hidden tests passed"

#: The terms of each built-in reward.
TERMS = {
    "sound": {
        "structure": _STRUCTURE,
        "syntax": _SYNTAX,
        "tests": _TESTS,
        "cooperation": "the main function calls the helper, and fewer tests pass without it",
    },
    "fine": {
        "structure": _STRUCTURE,
        "syntax": _SYNTAX,
        "tests": "share of the hidden tests passed, where harder tests count more",
        "contract": "share of the tests of the helper alone that it passes",
        "mutation": "share of the helper's mutants that the hidden tests notice, times the share of tests passed",
        "ablation": "share of the hidden tests that are passed with the helper and not without it",
    },
    "paper": {
        "structure": _STRUCTURE,
        "syntax": _SYNTAX,
        "tests": _TESTS,
        "cooperation": "a test passes and the main function calls the helper; more if it is no thin wrapper, less if "
        "it ignores the helper's values",
    },
}

#: The terms of each built-in reward that a single agent cannot earn: it has no other agent's function to call.
OF_TEAMS = {
    "sound": ("cooperation",),
    "fine": ("contract", "mutation", "ablation"),
    "paper": ("cooperation",),
}
