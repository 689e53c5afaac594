"""Generated coding problems that need two functions and two agents.

``main(xs)`` filters a list of integers, maps the remaining items and reduces them to one integer.  The helper's
observation has the filter and the map but not the reduction, the main agent's has the map and the reduction but not the
filter.  In this Dec-POMDP neither can solve a problem alone, because problems with the same observation have different
answers.  A single agent sees everything.

Tests come from running the reference solution on inputs that are chosen to detect almost correct programs (a missing
filter, a map left out or applied twice, a constant off by one, another reduction).  At least two items always remain
after the filters, so reductions never see an empty list.  Splits are kept apart by family: the combination of kinds of
a test problem never occurs in training, although each kind does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline_lib.environments.coding.problems.concepts import FILTERS, REDUCTIONS, Piece, pieces
from pipeline_lib.environments.coding.problems.inputs import PROGRAM_ERRORS, choose_inputs
from pipeline_lib.environments.coding.problems.problem import CodingProblem
from pipeline_lib.environments.coding.problems.recipe import ENTRY_POINT, HELPER, Recipe, draw
from pipeline_lib.problems.drawing import FAMILY_SHARES, draw_distinct, split_of
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environments.coding.settings import GeneratedProblems

#: The part of a recipe that is not in the observation of each role of a pair.
_HIDDEN_PARTS = {"helper": ("reductions", REDUCTIONS), "main": ("filters", FILTERS)}


def generate(settings: GeneratedProblems) -> dict[str, list[CodingProblem]]:
    """Return the problems of all splits; the same settings give the same problems.

    Raises:
        ValueError: a split is larger than the number of distinct problems that can be found for it.
    """
    rng = random.Random(digest(["problems", settings.seed]))
    tests = (settings.visible_tests, settings.hidden_tests)
    return {
        split: draw_problems(
            split, getattr(settings.sizes, split), settings.levels, settings.seed, rng, tests, settings.apart_from
        )
        for split in FAMILY_SHARES
    }


def draw_problems(
    split: str,
    size: int,
    levels: Sequence[int] = (1,),
    seed: int = 0,
    rng: random.Random | None = None,
    tests: tuple[int, int] = (2, 6),
    apart_from: int | None = None,
) -> list[CodingProblem]:
    """Return different problems of one split.

    Args:
        split: ``train``, ``validation`` or ``test``; only its families are used.
        size: number of problems.
        levels: levels to draw from, in turn, so that each has the same share.
        seed: fixes which split a family belongs to.
        rng: random numbers; by default seeded from ``seed``.
        tests: numbers of visible and hidden tests.
        apart_from: see `split_of`.

    Raises:
        ValueError: there are fewer; the message gives their number.
    """
    rng = rng or random.Random(digest(["problems", seed, split]))
    seen: set[str] = set()
    known_open: dict[str, bool] = {}

    def one(found: int) -> CodingProblem | None:
        recipe = draw(levels[found % len(levels)], rng)
        if recipe.name in seen or split_of(recipe.family, seed, apart_from) != split:
            return None
        seen.add(recipe.name)
        problem = make_problem(recipe, *tests)
        if problem is None or not all(_leaves_open(role, recipe, problem, known_open) for role in _HIDDEN_PARTS):
            return None
        return problem

    return draw_distinct(split, size, one, f"ask for fewer, or add to levels {list(levels)}")


def recipe_of(problem: CodingProblem) -> Recipe:
    """Return what a generated problem was made from.

    Raises:
        ValueError: the problem was not generated.
    """
    return Recipe.parse(problem.id.removeprefix("generated/"))


def make_problem(recipe: Recipe, visible: int, hidden: int) -> CodingProblem | None:
    """Return a problem with tests, or None when the recipe is degenerate.

    A recipe is degenerate if there are no inputs for it (contradicting filters), or if a program that ignores a part of
    it passes too many hidden tests.  The inputs depend only on the recipe.
    """
    chosen = choose_inputs(recipe, hidden, visible)
    if chosen is None:
        return None
    reference = recipe.reference()
    solve = _run_reference(reference)
    tests = [(xs, solve(list(xs))) for xs in chosen]
    return CodingProblem(
        id=f"generated/{recipe.name}",
        source="generated",
        family=recipe.family,
        level=recipe.level,
        entry_point=ENTRY_POINT,
        observations=observations(recipe),
        prelude="",
        visible_tests=_check_source(tests[hidden:]),
        hidden_tests=_check_source(tests[:hidden]),
        reference=reference,
    )


def _leaves_open(role: str, recipe: Recipe, problem: CodingProblem, known: dict[str, bool]) -> bool:
    """Return whether there is another problem with the role's observation and other answers.

    ``known`` caches the results by observation.
    """
    observation = problem.observations[role]
    if observation not in known:
        field, kinds = _HIDDEN_PARTS[role]
        rest: tuple[Piece, ...] = getattr(recipe, field)[1:]
        visible, hidden = (tests.count("assert") for tests in (problem.visible_tests, problem.hidden_tests))
        changes: list[dict[str, Any]] = [{field: (piece, *rest)} for piece in pieces(kinds)]
        twins = (make_problem(replace(recipe, **change), visible, hidden) for change in changes)
        known[observation] = any(
            twin is not None and not _solves(problem, twin) and not _solves(twin, problem) for twin in twins
        )
    return known[observation]


def _solves(solved: CodingProblem, other: CodingProblem) -> bool:
    """Return whether one problem's reference passes the other's hidden tests."""
    namespace: dict[str, Any] = {}
    exec(other.hidden_tests, namespace)
    try:
        namespace["check"](_run_reference(solved.reference))
    except (AssertionError, *PROGRAM_ERRORS):
        return False
    return True


def observations(recipe: Recipe) -> dict[str, str]:
    """Return the observations by role; short, because the embedded model reads them on a CPU."""
    return {
        "helper": f"{HELPER}: {recipe.filter_phrase}, {recipe.map_phrase}\n",
        "main": f"{ENTRY_POINT}: chosen items, {recipe.map_phrase}, {recipe.reduce_phrase}\n",
        "single": f"both: {recipe.filter_phrase}, {recipe.map_phrase}, {recipe.reduce_phrase}\n",
    }


def _run_reference(reference: Mapping[str, str]) -> Callable[[list[int]], int]:
    namespace: dict[str, Any] = {}
    for source in reference.values():
        exec(source, namespace)
    program: Callable[[list[int]], int] = namespace[ENTRY_POINT]
    return program


def _check_source(tests: Sequence[tuple[list[int], int]]) -> str:
    if not tests:
        return ""
    lines = [f"    assert candidate({xs}) == {answer}" for xs, answer in tests]
    return "\n".join(["def check(candidate):", *lines, ""])
