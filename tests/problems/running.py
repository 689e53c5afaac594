"""Runs trusted sources of this project in the test's own process."""

import ast
from collections.abc import Iterable
from typing import Any

from pipeline_lib.environments.coding.problem import CodingProblem


def cases(tests: str) -> list[tuple[list[int], int]]:
    """Return input and expected answer of every test of a generated problem."""
    found = []
    for node in ast.walk(ast.parse(tests)):
        if isinstance(node, ast.Assert):
            assert isinstance(node.test, ast.Compare) and isinstance(node.test.left, ast.Call)
            found.append((ast.literal_eval(node.test.left.args[0]), ast.literal_eval(node.test.comparators[0])))
    return found


def load(sources: Iterable[str], entry_point: str = "main") -> Any:
    """Return the entry point that the sources define."""
    namespace: dict[str, Any] = {}
    for source in sources:
        exec(source, namespace)
    return namespace[entry_point]


def passed(problem: CodingProblem, sources: Iterable[str]) -> float:
    """Return the fraction of a problem's hidden tests that a program passes."""
    tests = cases(problem.hidden_tests)
    try:
        program = load(sources)
    except Exception:
        return 0.0
    right = 0
    for xs, answer in tests:
        try:
            right += program(list(xs)) == answer
        except Exception:
            continue
    return right / len(tests)
