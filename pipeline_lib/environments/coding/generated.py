"""Generated coding problems that need two functions and two agents.

``main(xs)`` filters a list of integers, maps the remaining items and reduces them to one integer.  The helper's
observation has the filter and the map but not the reduction, the main agent's has the map and the reduction but not the
filter.  In this Dec-POMDP neither can solve a problem alone, because problems with the same observation have different
answers.  A single agent sees everything.

Tests come from running the reference solution on inputs that are chosen to detect almost correct programs (a missing
filter, a map left out or applied twice, a constant off by one, another reduction); the choice depends on the recipe
only.  At least two items always remain after the filters, so reductions never see an empty list.  Splits are kept apart
by family: the combination of kinds of a test problem never occurs in training, although each kind does.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pipeline_lib.environment_kit.vocabulary import PROGRAM_ERRORS, Test, check_source, choose_tests, compiled, fails
from pipeline_lib.environments.coding.problem import CodingProblem
from pipeline_lib.environments.coding.recipe import (
    ENTRY_POINT,
    FILTERS,
    HELPER,
    REDUCTIONS,
    ListPiece,
    Recipe,
    draw,
    pieces,
)
from pipeline_lib.environments.coding.settings import GeneratedProblems
from pipeline_lib.problems.splitting import FAMILY_SHARES, draw_distinct, split_of
from pipeline_lib.settings.problems import Prompt
from pipeline_lib.storage import digest

_VALUES = range(-30, 31)
_CANDIDATES = 16

_Program = Callable[[list[int]], int]


def choose_inputs(recipe: Recipe, hidden: int, visible: int) -> list[list[int]] | None:
    """Return inputs for the hidden and, after them, the visible tests, or None when the recipe is degenerate.

    The hidden inputs are the more informative ones (`choose_tests`).
    """
    candidates = _candidates(recipe, max(_CANDIDATES, 2 * (hidden + visible)))
    if candidates is None:
        return None
    parts = [_program(part) for part in recipe.parts()]
    if any(2 * sum(fails(part, test) for test in candidates) < hidden for part in parts):
        return None
    others = [*recipe.neighbours()]
    if recipe.switch is None:
        # the result if both helper and main function map
        others.append(replace(recipe, maps=recipe.maps * 2))
    near_misses = [*parts, *(_program(other) for other in others)]
    found_by = [[fails(program, test) for test in candidates] for program in near_misses]
    chosen = choose_tests(candidates, found_by, hidden + visible)
    if _too_easy(recipe, [candidates[number] for number in chosen[:hidden]]):
        return None
    return [candidates[number][0] for number in chosen]


def _candidates(recipe: Recipe, count: int) -> list[Test] | None:
    """Return random inputs with a few items inside the filter and a few outside, or None if values are too few."""
    rng = random.Random(digest(["inputs", recipe.name]))
    kept = _kept(recipe)
    inside = [x for x in _VALUES if x in kept]
    outside = [x for x in _VALUES if x not in kept]
    if len(inside) < 3 or len(outside) < 3:
        return None
    edges = _edges(recipe)
    program = _program(recipe)
    answers: dict[tuple[int, ...], int] = {}
    for _ in range(count):
        xs = _pick(inside, edges, rng.randint(3, 4), rng) + _pick(outside, edges, rng.randint(2, 3), rng)
        rng.shuffle(xs)
        answers[tuple(xs)] = program(xs)
    return [(list(xs), answer) for xs, answer in answers.items()]


def _edges(recipe: Recipe) -> set[int]:
    """Return the values for which a filter's result changes if its constant changes by one."""
    others = [_kept(other) for other in recipe.neighbours() if other.filters != recipe.filters]
    return set().union(*(_kept(recipe) ^ other for other in others))


def _pick(values: list[int], edges: set[int], count: int, rng: random.Random) -> list[int]:
    """Return up to ``count`` different values, half of the time one of them from the edges."""
    near = [x for x in values if x in edges]
    first = [rng.choice(near)] if near and rng.random() < 0.5 else []
    rest = [x for x in values if x not in first]
    return first + rng.sample(rest, min(len(rest), count - len(first)))


def _too_easy(recipe: Recipe, tests: Sequence[Test]) -> bool:
    """Return whether a program that ignores a part of the recipe passes too many tests.

    A constant, or a program without the filters or without the maps, must fail most; one that leaves out a single
    piece must fail half.
    """

    def passes(other: Recipe) -> int:
        program = _program(other)
        return sum(not fails(program, test) for test in tests)

    if len(tests) == 1:
        return False
    constant = Counter(answer for _, answer in tests).most_common(1)[0][1]
    ignorant = max(constant, passes(replace(recipe, filters=())), passes(replace(recipe, maps=(), switch=None)))
    return 2 * ignorant >= max(len(tests), 3) or any(2 * passes(part) > len(tests) for part in recipe.parts())


def _program(recipe: Recipe) -> _Program:
    """Return the recipe as a function; put together from its pieces, which is faster than compiling its source."""
    table = _table(
        tuple(piece.code for piece in recipe.filters),
        tuple(piece.code for piece in recipe.maps),
        recipe.switch.code if recipe.switch else None,
    )
    first, *others = [compiled("ys", piece.code) for piece in recipe.reductions]

    def program(xs: list[int]) -> int:
        ys = [y for x in xs if (y := table[x]) is not None]
        return int(first(ys) - sum(other(ys) for other in others)) if others else int(first(ys))

    return program


class _Items(dict[int, int | None]):
    """Maps each item to its result, or None if a filter drops it; computed once per item."""

    def __init__(self, becomes: Callable[[int], int | None]) -> None:
        super().__init__()
        self._becomes = becomes

    def __missing__(self, x: int) -> int | None:
        self[x] = self._becomes(x)
        return self[x]


@lru_cache(maxsize=4096)
def _table(filters: tuple[str, ...], maps: tuple[str, ...], switch: str | None) -> _Items:
    """Return the results of filters and maps, given by their code, by item."""
    conditions = [compiled("x", code) for code in filters]
    changes = [compiled("x", code) for code in maps]
    choose = compiled("x", switch) if switch else None

    def becomes(x: int) -> int | None:
        if not all(holds(x) for holds in conditions):
            return None
        if choose is not None:
            yes, no = changes
            return int(yes(x) if choose(x) else no(x))
        for change in changes:
            x = change(x)
        return x

    return _Items(becomes)


def _kept(recipe: Recipe) -> frozenset[int]:
    return _passing(tuple(piece.code for piece in recipe.filters))


@lru_cache(maxsize=4096)
def _passing(filters: tuple[str, ...]) -> frozenset[int]:
    conditions = [compiled("x", code) for code in filters]
    return frozenset(x for x in _VALUES if all(holds(x) for holds in conditions))


#: The part of a recipe that is not in the observation of each role of a pair.
_HIDDEN_PARTS = {"helper": ("reductions", REDUCTIONS), "main": ("filters", FILTERS)}


def generate(settings: GeneratedProblems) -> dict[str, list[CodingProblem]]:
    """Return the problems of all splits; the same settings give the same problems.

    Raises:
        ValueError: a split is larger than the number of distinct problems that can be found for it.
    """
    rng = random.Random(digest(["problems", settings.seed]))
    return {split: draw_problems(split, getattr(settings.sizes, split), settings, rng) for split in FAMILY_SHARES}


def draw_problems(split: str, size: int, settings: GeneratedProblems, rng: random.Random) -> list[CodingProblem]:
    """Return different problems of one split, the same number of each level; raises as `generate`."""
    levels, seen = settings.levels, set()
    is_open: dict[str, bool] = {}

    def one(count: int) -> CodingProblem | None:
        recipe = draw(levels[count % len(levels)], rng)
        if recipe.name in seen or split_of(recipe.family, settings.seed, settings.apart_from) != split:
            return None
        seen.add(recipe.name)
        problem = make_problem(recipe, settings.visible_tests, settings.hidden_tests, settings.prompt)
        if problem is None or not all(_leaves_open(role, recipe, problem, is_open) for role in _HIDDEN_PARTS):
            return None
        return problem

    return draw_distinct(split, size, one, f"ask for fewer, or add to levels {list(levels)}")


def recipe_of(problem: CodingProblem) -> Recipe:
    """Return what a generated problem was made from; raises ValueError if the problem was not generated."""
    return Recipe.parse(problem.id.removeprefix("generated/"))


def make_problem(recipe: Recipe, visible: int, hidden: int, prompt: Prompt = "compact") -> CodingProblem | None:
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
        observations=observations(recipe, prompt),
        prelude="",
        visible_tests=check_source(tests[hidden:]),
        hidden_tests=check_source(tests[:hidden]),
        reference=reference,
    )


def _leaves_open(role: str, recipe: Recipe, problem: CodingProblem, is_open: dict[str, bool]) -> bool:
    """Return whether there is another problem with the role's observation and other answers; kept in ``is_open``."""
    observation = problem.observations[role]
    if observation not in is_open:
        field, kinds = _HIDDEN_PARTS[role]
        rest: tuple[ListPiece, ...] = getattr(recipe, field)[1:]
        counts = (problem.visible_tests.count("assert"), problem.hidden_tests.count("assert"))
        changes: list[dict[str, Any]] = [{field: (piece, *rest)} for piece in pieces(kinds)]
        twins = (make_problem(replace(recipe, **change), *counts) for change in changes)
        is_open[observation] = any(
            twin is not None and not _solves(problem, twin) and not _solves(twin, problem) for twin in twins
        )
    return is_open[observation]


def _solves(solved: CodingProblem, other: CodingProblem) -> bool:
    namespace: dict[str, Any] = {}
    exec(other.hidden_tests, namespace)
    try:
        namespace["check"](_run_reference(solved.reference))
    except (AssertionError, *PROGRAM_ERRORS):
        return False
    return True


def observations(recipe: Recipe, prompt: Prompt = "compact") -> dict[str, str]:
    """Return the observations by role.

    Args:
        recipe: of the problem.
        prompt: ``compact``, short, because the embedded model reads it on a CPU; or ``plain`` English.
    """
    if prompt == "plain":
        return _in_plain_english(recipe)
    return {
        "helper": f"{HELPER}: {recipe.filter_phrase}, {recipe.map_phrase}\n",
        "main": f"{ENTRY_POINT}: chosen items, {recipe.map_phrase}, {recipe.reduce_phrase}\n",
        "single": f"both: {recipe.filter_phrase}, {recipe.map_phrase}, {recipe.reduce_phrase}\n",
    }


def _in_plain_english(recipe: Recipe) -> dict[str, str]:
    chosen = f"Choose the items of the list xs that are {recipe.plain_filter}. "
    mapped = f"From each chosen item x make a new one: {recipe.plain_map}. "
    reduced = f"Return {recipe.plain_reduction}. "
    both = "Two programmers write one Python program about a list xs of integers. "
    only = "Answer with Python code only.\n"
    return {
        "helper": (
            f"{both}{chosen}{mapped}"
            f"You write the function {HELPER}; the other programmer knows the last step, and writes {ENTRY_POINT}(xs), "
            f"which calls {HELPER}. {only}"
        ),
        "main": (
            f"{both}The other programmer knows which items are chosen, and writes the function {HELPER}. "
            f"{mapped}{reduced}You write {ENTRY_POINT}(xs), which calls {HELPER}. {only}"
        ),
        "single": (
            f"Write a Python program about a list xs of integers. {chosen}{mapped}{reduced}"
            f"Write a function {HELPER}, and {ENTRY_POINT}(xs), which calls it. {only}"
        ),
    }


def _run_reference(reference: Mapping[str, str]) -> Callable[[list[int]], int]:
    namespace: dict[str, Any] = {}
    for source in reference.values():
        exec(source, namespace)
    program: Callable[[list[int]], int] = namespace[ENTRY_POINT]
    return program
