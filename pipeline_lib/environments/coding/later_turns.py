"""Demonstrations of later turns: an observation with feedback, as the environment makes it, and the repaired code.

Two agents write a draft each, with a convention drawn for each and often with a planted mistake.  The environment
executes the joint program on the visible tests, and its observations of the next turn are what is demonstrated.  The
repair follows the helper's convention: the helper keeps its own, and the main agent, who can often tell it from the
error of the failed test, adapts.  If agents are told nothing but their own code, each repairs it by its own convention.

An expert on a server is never asked: thousands of drafts would be too many questions.  A critic would be the base,
which is only being made: in its place a note has a further draft of the repair, in half of the demonstrations, because
the base as a critic reads no such note.  Some repairs contain a planted
mistake too.  Of a program that passes all visible tests, every agent repeats its part.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipeline_lib.environments.coding.demonstrations import (
    CONVENTIONS,
    MISTAKES,
    OTHERS,
    CodingDemonstration,
    plant,
    weighted,
    write,
)
from pipeline_lib.environments.coding.problems.generated import draw_problems, recipe_of
from pipeline_lib.environments.coding.problems.problem import AGENTS
from pipeline_lib.environments.coding.runtime import CodingEnvironment
from pipeline_lib.environments.coding.settings import SoundCodingReward
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environment_api.environment import Outcome
    from pipeline_lib.environments.coding.problems.problem import CodingProblem
    from pipeline_lib.environments.coding.problems.recipe import Recipe
    from pipeline_lib.environments.coding.runtime import CodingState
    from pipeline_lib.environments.coding.settings import CodingEnvironment as CodingSettings
    from pipeline_lib.sandbox import Executor

#: Share of drafts with a planted mistake.  The untrained base is wrong more often than its demonstrations are.
WRONG_DRAFTS = 0.5

#: Share of demonstrations with the note of a critic, if there is one.
CRITICISED = 0.5

#: Share of drafts by a single agent.  A draft of a pair gives two demonstrations, so this is a fifth of them.
SINGLE = 1 / 3


@dataclass(frozen=True, slots=True)
class _Draft:
    """What the agents of a team wrote in the first turn, each by its own convention."""

    problem: CodingProblem
    recipe: Recipe
    conventions: tuple[str, ...]
    actions: tuple[str, ...]


def demonstrate_later(
    problems: Sequence[CodingProblem],
    count: int,
    mistakes: float,
    seed: int,
    settings: CodingSettings,
    executor: Callable[[], Executor],
) -> list[CodingDemonstration]:
    """Return ``count`` demonstrations of the turn after the first; the same arguments give the same list.

    Args:
        problems: of the training split; for published ones, those of generated problems are returned.
        count: how many.
        mistakes: share in [0, 1) of repairs that get a planted mistake.
        seed: fixes every draw.
        settings: the ``environment`` section; it says what agents are told.
        executor: makes the sandbox in which the drafts run.

    Raises:
        ValueError: there are no problems, or the sandbox failed.
    """
    if not problems:
        raise ValueError("there are no problems to demonstrate")
    rng = random.Random(digest(["later turns", seed]))
    if any(problem.source != "generated" for problem in problems):
        problems = draw_problems("train", OTHERS, seed=seed)
    recipes = [(_shown_only(problem), recipe_of(problem)) for problem in problems]
    drafts: dict[str, list[_Draft]] = {"pair": [], "single": []}
    while sum(len(AGENTS[team]) * len(own) for team, own in drafts.items()) < count:
        team = "single" if rng.random() < SINGLE else "pair"
        drafts[team].append(_draft(*rng.choice(recipes), team, rng))
    sources = tuple(source for source in settings.feedback if source not in ("expert", "critic"))
    criticised = CRITICISED if "critic" in settings.feedback else 0.0
    found: list[CodingDemonstration] = []
    for team, own in drafts.items():
        form = settings.model_copy(
            update={"team": team, "reward": SoundCodingReward(), "feedback": sources, "expert": None}
        )
        with contextlib.closing(CodingEnvironment(form, executor)) as environment:
            starts = [environment.start(draft.problem) for draft in own]
            outcomes = environment.step(starts, [draft.actions for draft in own])
            for draft, outcome in zip(own, outcomes, strict=True):
                found += _repairs(environment, draft, outcome, bool(sources), criticised, mistakes, rng)
    rng.shuffle(found)
    return found[:count]


def _shown_only(problem: CodingProblem) -> CodingProblem:
    """Return the problem with its visible tests in place of the hidden ones, so that each draft runs once."""
    return replace(problem, hidden_tests=problem.visible_tests)


def _draft(problem: CodingProblem, recipe: Recipe, team: str, rng: random.Random) -> _Draft:
    conventions = tuple(weighted(CONVENTIONS, rng) for _ in AGENTS[team])
    actions = tuple(
        _written(recipe, role, convention, WRONG_DRAFTS, rng)[0]
        for role, convention in zip(AGENTS[team], conventions, strict=True)
    )
    return _Draft(problem, recipe, conventions, actions)


def _repairs(
    environment: CodingEnvironment,
    draft: _Draft,
    outcome: Outcome[CodingState],
    told: bool,
    criticised: float,
    mistakes: float,
    rng: random.Random,
) -> list[CodingDemonstration]:
    """Return what each agent sees after its draft, and writes then."""
    if outcome.details.get("status") == "infra_error":
        raise ValueError(f"the sandbox failed while drafts were run: {outcome.details['error']}")
    found = []
    repeated = told and bool(outcome.metrics.get("all_passed"))
    for number, role in enumerate(environment.agents(draft.problem)):
        convention, mistake = draft.conventions[0 if told else number], ""
        if repeated:
            action = draft.actions[number]
        else:
            action, mistake = _written(draft.recipe, role, convention, mistakes, rng)
        state = outcome.state
        if criticised and rng.random() < criticised:
            text = action if repeated else _written(draft.recipe, role, convention, WRONG_DRAFTS, rng)[0]
            state = environment.criticised(state, {number: text})
        seen = environment.observe(state, number)
        found.append(CodingDemonstration(seen, action, role, convention, mistake))
    return found


def _written(recipe: Recipe, role: str, convention: str, mistakes: float, rng: random.Random) -> tuple[str, str]:
    """Return an action, and the kind of its planted mistake or an empty text."""
    if rng.random() >= mistakes:
        return write(recipe, role, convention), ""
    mistake = weighted(MISTAKES, rng)
    return plant(mistake, recipe, role, convention, rng), mistake
