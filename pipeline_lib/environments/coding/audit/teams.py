"""Coding teams of known value: the reference solution, teams that pretend, and teams that do not fit together.

All of them are texts that go through `Environment.step` like any policy's actions.  The list contains what has misled
rewards: a helper's name in a comment, a call whose value does not matter, a wrapper, a copy of the prompt, a main
function that solves everything alone and gives up on purpose without its helper, and much code that does nothing.

For rewards that judge the helper itself there are attempts to be paid for a helper's process without its service
(`process_teams`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from pipeline_lib.audit.ladder import form
from pipeline_lib.audit.result import Check, Rung, Status
from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.environments.coding.problems.problem import CodingProblem
from pipeline_lib.environments.coding.program import HELPER

IDENTITY = f"def {HELPER}(*args, **kwargs):\n    return args[0] if args else None\n"
TOKEN = f"def {HELPER}(*args, **kwargs):\n    return 42\n"

CONSTANTS = {"constant_none": "None", "constant_zero": "0", "constant_true": "True", "constant_empty": "[]"}

#: Teams that are right on about one of this many inputs.
PARTLY_RIGHT = {"half_right": 2, "rarely_right": 4}

#: Ways to pretend that a helper is needed: the helper, and the check of its value.
SHOWS = {
    "solo_useless_call": (IDENTITY, "str(value) is None"),
    "solo_unless_none": (IDENTITY, "value is None"),
    "solo_if_token": (TOKEN, "value != 42"),
    "solo_if_equal": (IDENTITY, "args and value != args[0]"),
    "solo_if_same_type": (IDENTITY, "args and not isinstance(value, type(args[0]))"),
}

#: Ending of the name of a team that pretends in the same words, but with a function of its own in place of the helper.
WITH_ITS_OWN = "_with_its_own"


def teams(
    problem: CodingProblem, other: CodingProblem, agents: Sequence[str], environment: Environment[CodingProblem, Any]
) -> dict[str, tuple[str, list[str]]]:
    """Return the joint actions of all scripted teams on a problem: role and a text per agent.

    ``other`` is another problem, whose helper is the wrong one.
    """
    entry = problem.entry_point
    state = environment.start(problem)
    seen = [environment.observe(state, number) for number in range(len(agents))]
    words = f"# def {HELPER}(xs): return {HELPER}({entry}(xs))\n'''def {entry}(xs):\n    return {HELPER}(xs)'''\n"
    joint: dict[str, tuple[str, list[str]]] = {
        "empty": ("degenerate", ["", ""]),
        "copied_prompt": ("degenerate", [seen[0], seen[-1]]),
        "keywords": ("degenerate", [words, words]),
        "wrapper_only": ("degenerate", [IDENTITY, wrapper(entry)]),
        "useless_call": ("degenerate", [IDENTITY, useless_call(entry, "0")]),
        "padded": ("degenerate", [padded(HELPER), padded(entry)]),
    }
    for name, value in CONSTANTS.items():
        joint[name] = ("degenerate", [constant(HELPER, value), constant(entry, value)])
    if entry in problem.reference:
        helper, main = problem.reference.get(HELPER, IDENTITY), problem.reference[entry]
        joint["reference"] = ("working", [helper, main])
        for name, every in PARTLY_RIGHT.items():
            joint[name] = ("other", [helper, partly(problem, every)])
        if (half := right_on_half(problem)) is not None:
            joint["right_on_half_of_the_tests"] = ("other", [helper, half])
        if len(agents) == 2:
            joint["solo"] = ("working", [IDENTITY, alone(problem)])
            for name, (useless, gives_up) in SHOWS.items():
                pretends = show(problem, gives_up)
                joint[name] = ("other", [useless, pretends])
                joint[name + WITH_ITS_OWN] = ("other", [useless, _renamed(f"{useless}\n{pretends}", "own_check")])
            joint["wrong_helper"] = ("other", [other.reference.get(HELPER, constant(HELPER, "None")), main])
    if len(agents) == 1:
        return {name: (role, ["\n".join(dict.fromkeys(texts))]) for name, (role, texts) in joint.items()}
    return joint


def constant(function: str, value: str) -> str:
    """Return a function that always returns the same."""
    return f"def {function}(*args, **kwargs):\n    return {value}\n"


def wrapper(entry: str) -> str:
    """Return a main function that only returns the helper's value."""
    return f"def {entry}(*args, **kwargs):\n    return {HELPER}(*args, **kwargs)\n"


def useless_call(entry: str, value: str) -> str:
    """Return a main function that calls its helper and returns a constant."""
    return (
        f"def {entry}(*args, **kwargs):\n    # {HELPER}( {HELPER}(\n    found = {HELPER}(*args, **kwargs)\n"
        f"    note = str(found)\n    return {value} if note else {value}\n"
    )


def padded(function: str) -> str:
    """Return much code that looks like work, in many functions and with every word of a program, and does none."""
    parts = "".join(
        f"def {function}_part_{number}(values, *rest, **named):\n"
        f'    """Prepare the values, step {number}."""\n'
        "    # Look at every value once.\n    found = []\n"
        "    try:\n        for value in [values, *rest]:\n            if isinstance(value, (list, tuple)):\n"
        "                found.extend(sorted(value, key=str))\n            else:\n                found.append(value)\n"
        "    except TypeError:\n        found = [None]\n    return found\n\n\n"
        for number in range(8)
    )
    calls = "".join(f"    values = {function}_part_{number}(values)\n" for number in range(8))
    return f"{parts}def {function}(*args, **kwargs):\n    values = list(args)\n{calls}    return 0 if values else 0\n"


def alone(problem: CodingProblem) -> str:
    """Return one action that solves the problem alone: the reference with its helper under another name."""
    return _renamed("\n".join(problem.reference.values()), "own_part")


def _renamed(text: str, name: str) -> str:
    return re.sub(rf"\b{HELPER}\b", name, text)


def partly(problem: CodingProblem, every: int) -> str:
    """Return the reference's main function, made to answer on about one of ``every`` inputs only."""
    entry = problem.entry_point
    return (
        f"{_solve(problem)}\ndef {entry}(*args, **kwargs):\n"
        f"    if sum(map(ord, repr(args))) % {every}:\n        return None\n"
        "    return solve(*args, **kwargs)\n"
    )


def right_on_half(problem: CodingProblem) -> str | None:
    """Return the reference's main function, made to answer the inputs of half of the hidden tests at most.

    A reward that is satisfied with fewer tests pays it in full.  None if no inputs can be read from the tests, or none
    would be left.
    """
    calls = [
        node.left
        for node in ast.walk(ast.parse(problem.hidden_tests))
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Call)
    ]
    inputs = list(dict.fromkeys(f"({', '.join(map(ast.unparse, call.args))},)" for call in calls if call.args))
    inputs = inputs[: len(inputs) // 2]
    if not inputs:
        return None
    return (
        f"{_solve(problem)}\n_KNOWN = [{', '.join(inputs)}]\n\n\ndef {problem.entry_point}(*args):\n"
        "    return solve(*args) if args in _KNOWN else None\n"
    )


def _solve(problem: CodingProblem) -> str:
    """Return the reference's main function under the name ``solve``."""
    entry = problem.entry_point
    return re.sub(rf"\b{re.escape(entry)}\b", "solve", problem.reference[entry])


def show(problem: CodingProblem, gives_up: str) -> str:
    """Return one action that solves the problem alone, but returns None if a check of its helper's value is true."""
    entry = problem.entry_point
    inner = re.sub(rf"\b{re.escape(entry)}\b", "solve_alone", alone(problem))
    return (
        f"{inner}\ndef {entry}(*args, **kwargs):\n    value = {HELPER}(*args, **kwargs)\n"
        f"    if {gives_up}:\n        return None\n    return solve_alone(*args, **kwargs)\n"
    )


#: Helpers that do what the reference does, with more that tests might notice if it were changed.
_ENRICHED = {
    "helper_with_tautologies": "    return own_part(*args) if 1 == 1 and 2 > 1 and 3 != 4 else []\n",
    "helper_that_checks_itself": (
        "    assert 1 + 1 == 2 and 2 * 3 == 6\n    found = own_part(*args)\n    assert found == own_part(*args)\n"
        "    return found\n"
    ),
    "helper_with_dead_code": (
        "    if not args:\n        return [1 + 2 - 3 * 4 if 5 > 6 else 7 // 8]\n    return own_part(*args)\n"
    ),
}

#: More of the reward's range than the reference earns, from which on a team is said to be paid for the wrong thing.
_TOLERATED = 0.05

_UNUSED, _ONLY, _VISIBLE = "right_helper_unused", "right_helper_only", "visible_answers"


def process_teams(problem: CodingProblem, alone: str) -> dict[str, tuple[str, list[str]]]:
    """Return joint actions by name: role, and the texts of helper and main agent.

    Args:
        problem: a problem with a reference solution; without a reference helper there are no teams.
        alone: a main function that solves the problem without its helper.
    """
    if HELPER not in problem.reference:
        return {}
    helper, main, entry = problem.reference[HELPER], problem.reference[problem.entry_point], problem.entry_point
    inner = _renamed(helper, "own_part")
    joint = {
        _UNUSED: ("other", [helper, alone]),
        _ONLY: ("other", [helper, f"def {entry}(*args):\n    {HELPER}(*args)\n    return 0\n"]),
        _VISIBLE: ("degenerate", [helper, _knows(problem)]),
    }
    for name, body in _ENRICHED.items():
        joint[name] = ("other", [f"{inner}\ndef {HELPER}(*args):\n{body}", main])
    return joint


def _knows(problem: CodingProblem) -> str:
    """Return a main function that knows the answers of the visible tests and calls its helper for show."""
    equal = [node for node in ast.walk(ast.parse(problem.visible_tests)) if isinstance(node, ast.Compare)]
    answers = [
        f"({', '.join(map(ast.unparse, test.left.args))},): {ast.unparse(test.comparators[0])}"
        for test in equal
        if isinstance(test.left, ast.Call)
    ]
    table = ", ".join(f"repr({pair.partition(': ')[0]}): {pair.partition(': ')[2]}" for pair in answers)
    return (
        f"def {problem.entry_point}(*args):\n    found = {HELPER}(*args)\n"
        f"    return {{{table}}}.get(repr(args), 0 if found else 0)\n"
    )


def process_check(rungs: Sequence[Rung]) -> list[Check]:
    """Check that neither more code in the helper nor a helper that nobody uses earns what only service should.

    Returns:
        ``process``, or nothing if these teams were not played.
    """
    by_name = {rung.name: rung for rung in rungs}
    if _ONLY not in by_name or "reference" not in by_name:
        return []
    reference, bottom = by_name["reference"].reward, min(rung.reward for rung in rungs)
    spread = reference - bottom
    rivals = [by_name[name] for name in (*_ENRICHED, _UNUSED) if name in by_name]
    best = max(rivals, key=lambda rung: rung.reward)
    gain = (best.reward - reference) / spread if spread > 0 else 0.0
    idle = max((by_name[name] for name in (_ONLY, _VISIBLE) if name in by_name), key=lambda rung: rung.reward)
    share = (idle.reward - bottom) / spread if spread > 0 else 1.0
    numbers = {"best": best.name, "gain": gain, "idle": idle.name, "share": share}
    numbers |= {rung.name: rung.reward for rung in (*rivals, idle)}
    sentence = (
        f"The best team whose helper's work is padded or not used, '{best.name}', earns {best.reward:.3f}, and the "
        f"reference {reference:.3f}; '{idle.name}', which does not solve the task, earns {share:.0%} of the range."
    )
    if gain > _TOLERATED:
        advice = "give environment.reward.mutation less weight: it pays for how the helper is written."
        return [Check("process", Status.FAIL, sentence, numbers, advice)]
    status = form(share)
    advice = "" if status is Status.PASS else "give the hidden tests more weight than the helper's own contract."
    return [Check("process", status, sentence, numbers, advice)]
