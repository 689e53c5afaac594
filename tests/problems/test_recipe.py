"""Recipes: what they are made of, how they are written, and that their names say it all."""

import doctest
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.environment_kit import vocabulary
from pipeline_lib.environment_kit.vocabulary import substitute
from pipeline_lib.environments.coding.recipe import (
    FILTERS,
    KINDS,
    LEVELS,
    MAPS,
    REDUCTIONS,
    ListPiece,
    Recipe,
    draw,
)
from tests.problems.running import load


def test_examples_in_the_documentation_hold():
    assert doctest.testmod(vocabulary).failed == 0


def test_substitution_keeps_the_order_of_operations():
    assert eval(substitute("x * 3", "x", "y + 1"), {"y": 4}) == 15
    assert eval(substitute("-x", "x", "y - 5"), {"y": 2}) == 3
    assert eval(substitute("abs(x)", "x", "y - 5"), {"y": 2}) == 3
    assert substitute("max(ys) - min(ys)", "ys", "aux(xs)") == "max(aux(xs)) - min(aux(xs))"


@given(st.sampled_from(LEVELS), st.integers(0, 2**32))
def test_a_name_can_be_read_back(level: int, seed: int):
    recipe = draw(level, random.Random(seed))
    assert recipe.level == level
    assert Recipe.parse(recipe.name) == recipe


def test_levels_compose_more_and_more():
    rng = random.Random(0)
    for _ in range(100):
        one, two, three, four = (draw(level, rng) for level in LEVELS)
        assert (len(one.filters), len(one.maps), len(one.reductions), one.switch) == (1, 1, 1, None)
        assert (len(two.filters), len(two.maps)) in ((1, 2), (2, 1)) and two.switch is None
        assert (len(three.filters), len(three.maps), three.switch) == (2, 2, None)
        assert (len(four.filters), len(four.maps), len(four.reductions)) == (2, 2, 2) and four.switch is not None


def test_filters_come_in_one_order_so_that_a_problem_has_one_name():
    rng = random.Random(0)
    orders = {tuple(piece.kind for piece in draw(3, rng).filters) for _ in range(500)}
    assert all(tuple(reversed(order)) not in orders for order in orders)


@pytest.mark.parametrize(
    ("name", "xs", "answer"),
    [
        ("over3/square/sum", [1, 4, 3, 5], 41),
        ("odd/minus2/spread", [1, 2, 7, -3], 10),
        ("even+under5/negate+times3/largest", [4, -8, 6, 1], 24),
        ("divisible3+within9/odd:plus2+negate/sum+first", [6, 3, 9, 1], 5),
    ],
)
def test_the_reference_does_what_the_name_says(name: str, xs: list[int], answer: int):
    assert load(Recipe.parse(name).reference().values())(xs) == answer


@pytest.mark.parametrize("name", ["over3/square", "over/square/sum", "even3/square/sum", "over99/square/sum", "x/y/z"])
def test_other_names_are_refused(name: str):
    with pytest.raises(ValueError, match=r"not a recipe|names no piece|accepted constants"):
        Recipe.parse(name)


def test_there_is_no_level_five():
    with pytest.raises(ValueError, match="levels are 1, 2, 3, 4"):
        draw(5, random.Random(0))


def test_leaving_out_a_part_gives_a_program_that_still_runs():
    for level in LEVELS:
        for part in draw(level, random.Random(1)).parts():
            load(part.reference().values())([3, 5, 8, -4, 9, 12, 21, -7, 30, 6])


def test_neighbours_differ_in_one_constant_or_one_reduction():
    recipe = Recipe.parse("over3/plus4/sum")
    names = {other.name for other in recipe.neighbours()}
    assert {"over2/plus4/sum", "over4/plus4/sum", "over3/plus3/sum", "over3/plus5/sum"} <= names
    assert len(names) == 4 + len(REDUCTIONS) - 1


def test_no_two_concepts_are_the_same():
    values = range(-30, 31)
    meanings = {}
    for kinds in (FILTERS, MAPS):
        for kind, definition in kinds.items():
            for k in definition.constants or (None,):
                piece = ListPiece(kind, k)
                meaning = (kinds is MAPS, tuple(eval(piece.code, {"x": x}) for x in values))
                assert meaning not in meanings, f"{piece.label} is {meanings.get(meaning)}"
                meanings[meaning] = piece.label
    assert len(KINDS) == len(FILTERS) + len(MAPS) + len(REDUCTIONS)
