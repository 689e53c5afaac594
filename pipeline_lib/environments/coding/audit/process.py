"""Attempts to be paid for a helper's process without its service: for rewards that judge the helper itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from pipeline_lib.audit.claims import form
from pipeline_lib.audit.result import Check, Rung, Status
from pipeline_lib.environments.coding.problems.problem import CodingProblem
from pipeline_lib.environments.coding.program import HELPER

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
    inner = re.sub(rf"\b{HELPER}\b", "own_part", helper)
    found = {
        _UNUSED: ("other", [helper, alone]),
        _ONLY: ("other", [helper, f"def {entry}(*args):\n    {HELPER}(*args)\n    return 0\n"]),
        _VISIBLE: ("degenerate", [helper, _knows(problem)]),
    }
    for name, body in _ENRICHED.items():
        found[name] = ("other", [f"{inner}\ndef {HELPER}(*args):\n{body}", main])
    return found


def _knows(problem: CodingProblem) -> str:
    """Return a main function that knows the answers of the visible tests and calls its helper for show."""
    equal = [node for node in ast.walk(ast.parse(problem.visible_tests)) if isinstance(node, ast.Compare)]
    known = [
        f"({', '.join(map(ast.unparse, test.left.args))},): {ast.unparse(test.comparators[0])}"
        for test in equal
        if isinstance(test.left, ast.Call)
    ]
    table = ", ".join(f"repr({pair.partition(': ')[0]}): {pair.partition(': ')[2]}" for pair in known)
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
