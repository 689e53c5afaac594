"""Parting tests: every case once, visible first, whatever the source looks like."""

import pytest

from pipeline_lib.environments.coding.datasets import as_check, split_tests
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.sandbox.tests_source import count_cases

SOURCE = """
import math
SIZE = 3

def check(candidate):
    assert True, "a constant is no case"
    assert candidate(
        1
    ) == 2, "over several lines"
    offset = 5
    for n in range(SIZE):
        value = candidate(n)
        assert value == n + 1
    assert candidate(offset) == 6
    if SIZE:
        assert math.isclose(candidate(2), 3)
"""


def _run(tests: str, candidate: object) -> None:
    namespace: dict[str, object] = {}
    exec(tests, namespace)
    namespace["check"](candidate)  # type: ignore[operator]


@pytest.mark.parametrize(("asked", "seen"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (16, 3)])
def test_every_case_is_in_one_part_and_one_is_always_hidden(asked: int, seen: int):
    visible, hidden = split_tests(SOURCE, "f", asked)
    assert (count_cases(visible) if visible else 0) == seen
    assert count_cases(hidden) == 4 - seen


def test_the_first_cases_are_the_visible_ones():
    visible, hidden = split_tests(SOURCE, "f", 2)
    assert "candidate(1) == 2" in visible and "value == n + 1" in visible
    assert "candidate(offset)" in hidden and "isclose" in hidden and "candidate(1) == 2" not in hidden


@pytest.mark.parametrize("wrong_at", [1, 2, 5])
def test_both_parts_run_and_each_finds_its_own_mistakes(wrong_at: int):
    visible, hidden = split_tests(SOURCE, "f", 2)
    for part in (visible, hidden):
        _run(part, lambda x: x + 1)

    def wrong(x: int) -> int:
        return 0 if x == wrong_at else x + 1

    failing = {1: visible, 2: hidden, 5: hidden}[wrong_at]
    with pytest.raises(AssertionError):
        _run(failing, wrong)


def test_bare_asserts_are_put_into_a_check_that_calls_the_candidate():
    source = as_check('data = ["f(1)", "a\\nb"]\nassert f(1) == 2\nassert [f(x) for x in (1, 2)] == [2, 3]', "f")
    _run(source, lambda x: x + 1)
    with pytest.raises(AssertionError):
        _run(source, lambda x: x)
    assert count_cases(source) == 2


def test_a_check_is_left_as_it_is():
    assert as_check(SOURCE, "f") == SOURCE


@pytest.mark.parametrize("source", ["def check(candidate):\n    assert True\n", "def check(candidate):\n    pass\n"])
def test_tests_without_a_case_are_refused(source: str):
    with pytest.raises(ProblemsError, match="no assert that a program could fail"):
        split_tests(source, "f", 1)


def test_tests_that_are_not_python_are_refused():
    with pytest.raises(ProblemsError, match="do not parse"):
        split_tests("def check(candidate:\n", "f", 1)
    with pytest.raises(ProblemsError, match="do not parse"):
        as_check("assert f(1 == 2", "f")


def test_an_assert_of_a_tuple_is_named() -> None:
    with pytest.raises(ProblemsError, match=r"line 3: assert \(condition, message\) holds for every"):
        split_tests("def check(f):\n    assert f(1) == 2\n    assert (f(2) == 3, 'wrong')\n", "f", 1)
