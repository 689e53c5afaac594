"""Demonstrations for the warm start of the embedded model: several conventions for sharing the work, and mistakes.

A demonstration is an observation and an action.  There are four conventions by which a helper and a main function can
share the work.  Each is correct if both agents follow it, and no two of them fit together (except if mapping twice
equals mapping once).  The convention is drawn independently for every demonstration, so a team that imitates them
mis-coordinates most of the time: reinforcement learning has to find an agreement.  A single agent writes both
functions, by one convention.

Some demonstrations contain one planted mistake.  Only problems of the training split may be demonstrated; the caller is
responsible for that.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.environments.coding.problems.concepts import FILTERS, KINDS, MAPS, REDUCTIONS, Piece
from pipeline_lib.environments.coding.problems.generated import draw_problems, recipe_of
from pipeline_lib.environments.coding.problems.problem import CodingProblem
from pipeline_lib.environments.coding.problems.recipe import ENTRY_POINT, HELPER, Recipe, helper_source, main_source
from pipeline_lib.storage import digest

#: How often each convention is drawn.
CONVENTIONS = {"list": 0.5, "keep": 0.15, "pred": 0.2, "skip": 0.15}

#: How often each role is demonstrated; a single agent's actions are twice as long.
ROLES = {"helper": 0.4, "main": 0.4, "single": 0.2}

#: How often each kind of planted mistake is drawn.
MISTAKES = {"concept": 0.3, "constant": 0.2, "bracket": 0.2, "return": 0.15, "name": 0.15}


@dataclass(frozen=True, slots=True)
class CodingDemonstration(Demonstration):
    """A function of one role.

    Attributes:
        role: ``helper``, ``main`` or ``single``.
        convention: the way of sharing the work that it follows.
        mistake: kind of the planted mistake, or empty.
    """

    role: str
    convention: str
    mistake: str


#: Number of generated problems that are demonstrated in place of problems without demonstrations.
OTHERS = 512


def demonstrate_others(
    problems: Sequence[CodingProblem], count: int, mistakes: float, seed: int
) -> list[CodingDemonstration]:
    """Return demonstrations on generated problems in place of ``problems``."""
    return demonstrate(draw_problems("train", OTHERS, seed=seed), count, mistakes, seed)


def demonstrate(problems: Sequence[CodingProblem], count: int, mistakes: float, seed: int) -> list[CodingDemonstration]:
    """Return ``count`` demonstrations on generated problems; the same arguments give the same list.

    Args:
        problems: generated problems, of the training split.
        count: how many, drawn with replacement.
        mistakes: share in [0, 1) that gets a planted mistake.
        seed: fixes every draw.

    Raises:
        ValueError: there are no problems, or one was not generated.
    """
    if not problems:
        raise ValueError("there are no problems to demonstrate")
    rng = random.Random(digest(["demonstrations", seed]))
    recipes = [(problem, recipe_of(problem)) for problem in problems]
    return [_draw(*rng.choice(recipes), mistakes, rng) for _ in range(count)]


def write_functions(recipe: Recipe, convention: str) -> dict[str, str]:
    """Return a right solution that shares the work by ``convention``, as source by function name.

    Raises:
        KeyError: there is no such convention.
    """
    mapped, condition = recipe.mapped, recipe.condition
    helper, chosen = {
        # the helper filters and maps, the main function reduces
        "list": (helper_source(f"[{mapped} for x in xs if {condition}]"), f"{HELPER}(xs)"),
        # the helper filters, the main function maps and reduces
        "keep": (helper_source(f"[x for x in xs if {condition}]"), f"[{mapped} for x in {HELPER}(xs)]"),
        # the helper is the condition for keeping an item, the main function does the rest
        "pred": (helper_source(condition, "x"), f"[{mapped} for x in xs if {HELPER}(x)]"),
        # the helper is the condition for dropping an item, the main function does the rest
        "skip": (helper_source(f"not ({condition})", "x"), f"[{mapped} for x in xs if not {HELPER}(x)]"),
    }[convention]
    return {HELPER: helper, ENTRY_POINT: main_source(recipe, chosen)}


def plant(mistake: str, recipe: Recipe, role: str, convention: str, rng: random.Random) -> str:
    """Return the action of ``role`` with one mistake in it.

    Args:
        mistake: a key of `MISTAKES`: another concept, a constant off by one, a lost bracket or colon, a lost
            ``return``, or a wrong function name.
        recipe: of the problem.
        role: of the action.
        convention: how the work is shared.
        rng: draws the place of the mistake.
    """
    if mistake in ("concept", "constant"):
        return _misread(recipe, role, convention, mistake == "constant", rng)
    text = write(recipe, role, convention)
    if mistake == "bracket":
        place = rng.choice([place for place, letter in enumerate(text) if letter in "()[]:"])
        return text[:place] + text[place + 1 :]
    lost, instead = ("return ", "") if mistake == "return" else (HELPER, "helper")
    place = rng.choice([place for place in range(len(text)) if text.startswith(lost, place)])
    return text[:place] + instead + text[place + len(lost) :]


def _draw(problem: CodingProblem, recipe: Recipe, mistakes: float, rng: random.Random) -> CodingDemonstration:
    role, convention = weighted(ROLES, rng), weighted(CONVENTIONS, rng)
    mistake = weighted(MISTAKES, rng) if rng.random() < mistakes else ""
    action = plant(mistake, recipe, role, convention, rng) if mistake else write(recipe, role, convention)
    return CodingDemonstration(problem.observations[role], action, role, convention, mistake)


def write(recipe: Recipe, role: str, convention: str) -> str:
    """Return the right action of a role by a convention."""
    functions = write_functions(recipe, convention)
    if role == "single":
        return "\n\n".join(functions.values())
    return functions[HELPER if role == "helper" else ENTRY_POINT]


def _misread(recipe: Recipe, role: str, convention: str, by_one: bool, rng: random.Random) -> str:
    """Return the action for the recipe with one piece replaced, or its constant off by one, if that changes the action.

    If no constant occurs in the action (the main function of convention ``list``), a piece is replaced.
    """
    right = write(recipe, role, convention)
    fields = ("filters", "maps", "reductions")
    places = [(field, number) for field in fields for number in range(len(getattr(recipe, field)))]
    rng.shuffle(places)
    for one in (True, False) if by_one else (False,):
        for field, number in places:
            pieces: tuple[Piece, ...] = getattr(recipe, field)
            old = pieces[number]
            if one and old.k is None:
                continue
            new = Piece(old.kind, (old.k or 0) + rng.choice((-1, 1))) if one else _another(old, rng)
            changed: dict[str, Any] = {field: (*pieces[:number], new, *pieces[number + 1 :])}
            action = write(replace(recipe, **changed), role, convention)
            if action != right:
                return action
    raise AssertionError(f"no piece of {recipe.name} shows in the action of {role}")


def _another(piece: Piece, rng: random.Random) -> Piece:
    """Return a random piece of another kind of the same sort."""
    table = next(kinds for kinds in (FILTERS, MAPS, REDUCTIONS) if piece.kind in kinds)
    kind = rng.choice([kind for kind in table if kind != piece.kind])
    constants = KINDS[kind].constants
    return Piece(kind, rng.choice(constants) if constants else None)


def weighted(table: dict[str, float], rng: random.Random) -> str:
    """Return a random key, with the values as weights."""
    return rng.choices(list(table), weights=list(table.values()))[0]
