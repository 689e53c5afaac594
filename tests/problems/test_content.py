"""Sameness of problems: what counts, and what does not."""

import dataclasses

import pytest

from pipeline_lib.environments.coding.problem import CodingProblem
from pipeline_lib.problems.content import ProblemsError, check_disjoint, normalised_code

PROMPT = 'def double(x: int) -> int:\n    """Return twice x.\n    >>> double(2)\n    4\n    """\n'


def _problem(**changes: object) -> CodingProblem:
    observations = {role: f"You are {role}.\n{PROMPT}" for role in ("helper", "main", "single")}
    problem = CodingProblem("a", "humaneval", "a", 1, "double", observations, "import math\n", "", "def check(c): ...")
    return dataclasses.replace(problem, **changes)


@pytest.mark.parametrize(
    "copy",
    [
        PROMPT.replace("    ", "\t"),
        PROMPT.replace("Return twice x.", "Return   TWICE\n    x."),
        PROMPT.replace('"""', "'''"),
        "# another file\n" + PROMPT.replace("-> int:", "-> int:  # the type"),
        PROMPT.replace("(x: int)", "( x:int )"),
    ],
)
def test_a_copy_in_other_clothes_is_the_same_problem(copy: str):
    observations = {role: f"You are {role}.\n\n{copy}" for role in ("helper", "main", "single")}
    assert _problem(observations=observations).content_hash == _problem().content_hash


def test_name_tests_and_solution_do_not_make_another_problem():
    other = _problem(id="b", family="b", hidden_tests="def check(c): assert c(1) == 2", reference={"double": "..."})
    assert other.content_hash == _problem().content_hash


def test_what_is_asked_and_what_is_given_do():
    told = {role: text.replace("twice", "thrice") for role, text in _problem().observations.items()}
    assert _problem(observations=told).content_hash != _problem().content_hash
    assert _problem(prelude="import cmath\n").content_hash != _problem().content_hash


def test_code_is_compared_by_its_syntax_tree():
    assert normalised_code("x=[1,2]# two\n\n\ny = (x)") == normalised_code("x = [1, 2]\ny=x")
    assert normalised_code("x = 1") != normalised_code("x = 2")
    assert normalised_code("not python at all") == normalised_code("Not  python at all")


def test_a_problem_in_two_splits_is_named_with_both():
    splits = {"train": [("a", "1"), ("b", "2")], "validation": [("c", "3")], "test": [("d", "2")]}
    with pytest.raises(ProblemsError, match=r"'d' of the test split is problem 'b' of the train split"):
        check_disjoint(splits)
    check_disjoint({"train": [("a", "1"), ("copy of a", "1")], "test": [("d", "2")]})
