"""The contract of a generated problem's helper, as tests of the helper alone.

The helper's observation says which items to choose and what becomes of each.  The tests ask, on inputs that no other
test has, for the number of items and for the items themselves, so a helper that chooses rightly and changes nothing has
half.  Published problems say nothing about a helper: they have no contract.
"""

from __future__ import annotations

import functools
import random
from typing import Any

from pipeline_lib.environments.coding.problems.generated import recipe_of
from pipeline_lib.environments.coding.problems.problem import CodingProblem
from pipeline_lib.environments.coding.problems.recipe import HELPER, Recipe
from pipeline_lib.storage import digest

#: Chosen items of each input.  No two are alike and none is 0, so that a helper that ignores its input meets few tests.
_CHOSEN = (1, 2, 3, 4)

#: Range of the number of items of an input that are not chosen; at least one, so that returning the input is wrong.
_OTHERS = (1, 3)

#: Range of an item; the problem's own tests use the same.
_VALUES = range(-30, 31)


def contract(problem: CodingProblem) -> str:
    """Return the source of ``def check(candidate)`` for the helper, where ``candidate`` is ``aux``; empty if unknown.

    Only the problem's id is read, never its code: a client may have written that.
    """
    if problem.source != "generated":
        return ""
    try:
        return _tests(recipe_of(problem))
    except ValueError:  # an id that is no recipe's name
        return ""


@functools.lru_cache(maxsize=4096)
def _tests(recipe: Recipe) -> str:
    rng = random.Random(digest(["contract", recipe.name]))
    namespace: dict[str, Any] = {}
    exec(recipe.reference()[HELPER], namespace)
    helper = namespace[HELPER]
    inside, outside = [x for x in _VALUES if helper([x])], [x for x in _VALUES if not helper([x])]
    if not inside or not outside:  # no generated problem; a client's may be
        return ""
    lines = ["def check(candidate):"]
    for count in _CHOSEN:
        xs = rng.choices(inside, k=count) + rng.choices(outside, k=rng.randint(*_OTHERS))
        rng.shuffle(xs)
        lines.append(f"    assert len(candidate({xs})) == {count}")
        lines.append(f"    assert candidate({xs}) == {helper(xs)}")
    return "\n".join([*lines, ""])
