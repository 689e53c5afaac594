"""What the names of reward terms and cooperation schemes mean, for the report."""

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
