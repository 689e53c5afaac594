"""The sandbox's verdicts beside plain Python's, on a sample of the pairs of ``python -m benchmarks.differential``."""

from dataclasses import replace
from itertools import islice

import pytest

from benchmarks.differential import compare, plain_verdicts
from benchmarks.differential_pairs import Pair, pairs
from benchmarks.differential_parts import ENDINGS, SHAPES, SLOW
from tests.human_eval import HUMAN_EVAL

RIGHT = Pair("right", "loop", "goes on", "def f(x):\n    return x\n", "def check(c):\n    assert c(1) == 1\n", "f")


def test_no_verdict_is_higher_than_plain_pythons_and_none_lower_without_a_reason() -> None:
    sample = [pair for pair in islice(pairs(5, HUMAN_EVAL), 260) if pair.ending not in SLOW]
    counts, wrong = compare(sample, slots=2)
    assert not wrong
    assert counts["passed by both"] > 50
    assert counts["failed by both"] > 50


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        ("def f(x):\n    return x\n", True),
        ("def f(x):\n    return 2\n", False),
        ("import os\ndef f(x):\n    os._exit(0)\n", False),
        ("def f(x):\n    raise SystemExit\n", False),
        ("def f(x:\n", False),
    ],
)
def test_what_plain_python_says(code: str, passes: bool) -> None:
    assert plain_verdicts([replace(RIGHT, code=code)]) == [passes]


def test_a_verdict_that_differs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(RIGHT, code="def f(x):\n    return 2\n")
    monkeypatch.setattr("benchmarks.differential.plain_verdicts", lambda wanted: [False, True])
    _, lines = compare([RIGHT, wrong], slots=1)
    assert [line.partition(":")[0] for line in lines] == ["higher than plain Python", "lower than plain Python"]


def test_pairs_are_made_by_their_seed_and_come_in_every_shape_and_ending() -> None:
    made = list(islice(pairs(0, None), 1500))
    assert made[:50] == list(islice(pairs(0, None), 50))
    assert made[:50] != list(islice(pairs(1, None), 50))
    assert {pair.shape for pair in made} == set(SHAPES)
    assert {pair.ending for pair in made} == {*ENDINGS, "mutated"}
