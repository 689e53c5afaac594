"""A coding problem that a person types: a function with a docstring, and asserts below it.

    def double_even(xs):
        "Return twice the sum of the even numbers of xs."

    assert double_even([1, 2, 4]) == 12

The agents get the same prompts as for a published problem.  The asserts are hidden tests; without any, the team answers
and nothing is run.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from pipeline_lib.environments.coding.problems.datasets import problem_of_prompt
from pipeline_lib.environments.coding.problems.problem import CodingProblem
from pipeline_lib.environments.coding.problems.tests_split import as_check, split_tests
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.storage import digest

_FIRST_ASSERT = re.compile(r"^assert\b", re.MULTILINE)
_FUNCTION = re.compile(r"^def (\w+)", re.MULTILINE)


def typed_problem(text: str) -> CodingProblem:
    """Return the problem; the last function that is defined is the one asked for.

    Raises:
        ProblemsError: there is no function, the text is not Python, or the asserts test nothing.
    """
    found = _FIRST_ASSERT.search(text)
    prompt, tests = (text[: found.start()], text[found.start() :]) if found else (text, "")
    functions = _FUNCTION.findall(prompt)
    if not functions:
        raise ProblemsError(
            "the problem has no function; type `def name(arguments):` with a docstring that says what it does"
        )
    problem, _ = problem_of_prompt(f"typed/{digest([text])[:8]}", "typed", f"{prompt.rstrip()}\n", functions[-1])
    if not tests.strip():
        return problem
    try:
        ast.parse(tests)
    except SyntaxError as error:
        raise ProblemsError(f"the text after the first assert is not Python ({error})") from None
    _, hidden = split_tests(as_check(tests, problem.entry_point), problem.entry_point, 0)
    return replace(problem, hidden_tests=hidden)
