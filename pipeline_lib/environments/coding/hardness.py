"""How hard each test of a problem is: the share of almost right programs that fail it.

The almost right programs are mutants of the problem's known solution, so the numbers depend on the problem only, not on
a model or a seed.  They run once per problem and process.  Without a known solution all tests are equally hard.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipeline_lib.environments.coding.mutants import mutants
from pipeline_lib.environments.coding.problems.problem import CodingProblem
from pipeline_lib.sandbox import Verdict

#: Greatest number of mutants of a solution.
LADDER = 12


def almost_right(problem: CodingProblem) -> tuple[str, ...]:
    """Return mutants of the problem's known solution as source; none if there is no solution that parses."""
    return mutants("\n\n".join(problem.reference.values()), LADDER)


def passed_cases(verdict: Verdict) -> frozenset[int]:
    """Return the numbers of the tests that a program passes."""
    return frozenset(case.index for case in verdict.cases if case.result == "ok") if verdict.passed else frozenset()


def hardness_of_tests(ladder: Sequence[Verdict], total: int) -> tuple[float, ...]:
    """Return for each of ``total`` tests the share of the programs that fail it, in [0, 1]; 0 without programs."""
    passed = [passed_cases(verdict) for verdict in ladder]
    return tuple(sum(test not in cases for cases in passed) / max(1, len(passed)) for test in range(total))


def weighted_share(passed: frozenset[int], hardness: Sequence[float], extra: float) -> float:
    """Return the share of the tests passed, where a test of hardness h weighs 1 + ``extra`` h; 1.0 if all are passed.

    Args:
        passed: numbers of the tests passed.
        hardness: of each test, in [0, 1].
        extra: at least 0; 0 gives every test the same weight.
    """
    weights = [1.0 + extra * hard for hard in hardness]
    total = math.fsum(weights)
    return math.fsum(weights[number] for number in sorted(passed)) / total if total else 0.0


def noticed(verdict: Verdict, ablated: Sequence[Verdict]) -> float:
    """Return the share of a helper's mutants that the tests notice, in [0, 1]; 0 without mutants that could be judged.

    A mutant is noticed if a test that the program passes gets a wrong value from it, and unnoticed if it passes all
    that the program passes.  One that only stops with an error says nothing and is left out: otherwise a helper would
    gain by checking itself.

    Args:
        verdict: of the program.
        ablated: of the program with each mutant in place of its helper.
    """
    passed, found = passed_cases(verdict), []
    for other in ablated:
        wrong = {case.index for case in other.cases if case.result == "fail"}
        if passed & wrong:
            found.append(True)
        elif passed <= passed_cases(other):
            found.append(False)
    return sum(found) / len(found) if found else 0.0
