"""Demonstrations for the warm start: several conventions for sharing the work, and mistakes.

A demonstration is an observation and an action.  There are four conventions by which a helper and a main function can
share the work.  Each is correct if both agents follow it, and no two of them fit together (except if mapping twice
equals mapping once).  The convention is drawn independently for every demonstration, so a team that imitates them
mis-coordinates most of the time: reinforcement learning has to find an agreement.  A single agent writes both
functions, by one convention.

Some demonstrations contain one planted mistake.  Only problems of the training split may be demonstrated; the caller is
responsible for that.

Later turns (`demonstrate_later`): an observation with feedback, as the environment makes it, and the repaired code.
Two agents write a draft each, with a convention drawn for each and often with a planted mistake.  The environment
executes the joint program on the visible tests, and its observations of the next turn are what is demonstrated.  The
repair follows the helper's convention: the helper keeps its own, and the main agent, who can often tell it from the
error of the failed test, adapts.  If agents are told nothing but their own code, each repairs it by its own convention.

The tool (`feedback.CALL`): two agents write a draft each, both call the tool, and repair their code after its result as
after feedback.  The first text, which calls the tool or answers at once, is demonstrated by itself, because drafts have
more mistakes than what a base should learn to write.  If agents may call again, so do most repairs of programs that
failed, and further drafts are followed by further calls.

An expert on a server is never asked: thousands of drafts would be too many questions.  A critic would be the base,
which is only being made: in its place a note has a further draft of the repair, in half of the demonstrations, because
the base as a critic reads no such note.  Some repairs contain a planted mistake too.  Of a program that passes all
visible tests, every agent repeats its part.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pipeline_lib.environment_api.environment import Outcome, ToolCall
from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.environment_kit.vocabulary import misread, spoiled
from pipeline_lib.environments.coding.feedback import CALL, result
from pipeline_lib.environments.coding.generated import draw_problems, recipe_of
from pipeline_lib.environments.coding.problem import AGENTS, CodingProblem
from pipeline_lib.environments.coding.program import Program
from pipeline_lib.environments.coding.recipe import (
    ENTRY_POINT,
    FILTERS,
    HELPER,
    MAPS,
    REDUCTIONS,
    Recipe,
    helper_source,
    main_source,
)
from pipeline_lib.environments.coding.runtime import CodingEnvironment, CodingState
from pipeline_lib.environments.coding.settings import CodingSettings, GeneratedProblems, SoundCodingReward
from pipeline_lib.sandbox import Executor, Status, Verdict
from pipeline_lib.storage import digest

#: How often each convention is drawn.
CONVENTIONS = {"list": 0.5, "keep": 0.15, "pred": 0.2, "skip": 0.15}

#: How often each role is demonstrated; a single agent's actions are twice as long.
ROLES = {"helper": 0.4, "main": 0.4, "single": 0.2}

#: How often each kind of planted mistake is drawn: another concept, a constant off by one, a lost bracket or colon, a
#: lost ``return``, a wrong function name.
MISTAKES = {"concept": 0.3, "constant": 0.2, "bracket": 0.2, "return": 0.15, "name": 0.15}


@dataclass(frozen=True, slots=True)
class CodingDemonstration(Demonstration):
    """A function of one role."""

    role: str  #: ``helper``, ``main`` or ``single``
    convention: str  #: the way of sharing the work that it follows
    mistake: str  #: kind of the planted mistake, or empty


#: Number of generated problems that are demonstrated in place of problems without demonstrations.
OTHERS = 512


def demonstrate_others(
    problems: Sequence[CodingProblem], count: int, mistakes: float, seed: int
) -> list[CodingDemonstration]:
    """Return demonstrations on generated problems in place of ``problems``."""
    return demonstrate(_other_problems(seed), count, mistakes, seed)


def _other_problems(seed: int) -> list[CodingProblem]:
    rng = random.Random(digest(["problems", seed, "train"]))
    return draw_problems("train", OTHERS, GeneratedProblems(seed=seed), rng)


def demonstrate(problems: Sequence[CodingProblem], count: int, mistakes: float, seed: int) -> list[CodingDemonstration]:
    """Return demonstrations on generated problems, as `Task.demonstrate`.

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
    """Return the action of ``role`` with one mistake in it, a key of `MISTAKES`."""
    if mistake in ("concept", "constant"):
        fields, tables = ("filters", "maps", "reductions"), (FILTERS, MAPS, REDUCTIONS)
        return misread(recipe, fields, tables, lambda other: write(other, role, convention), mistake == "constant", rng)
    return spoiled(write(recipe, role, convention), mistake, HELPER, "helper", rng)


def _draw(problem: CodingProblem, recipe: Recipe, mistakes: float, rng: random.Random) -> CodingDemonstration:
    role, convention = weighted(ROLES, rng), weighted(CONVENTIONS, rng)
    action, mistake = _written(recipe, role, convention, mistakes, rng)
    return CodingDemonstration(problem.observations[role], action, role, convention, mistake)


def write(recipe: Recipe, role: str, convention: str) -> str:
    """Return the right action of a role by a convention."""
    functions = write_functions(recipe, convention)
    if role == "single":
        return "\n\n".join(functions.values())
    return functions[HELPER if role == "helper" else ENTRY_POINT]


def weighted(table: dict[str, float], rng: random.Random) -> str:
    """Return a random key, with the values as weights."""
    return rng.choices(list(table), weights=list(table.values()))[0]


#: Share of drafts with a planted mistake.  The untrained base is wrong more often than its demonstrations are.
WRONG_DRAFTS = 0.5

#: Share of first texts that call the tool, if there is one.
CALLING = 0.75

#: Share of demonstrations with the note of a critic, if there is one.
CRITICISED = 0.5

#: Share of drafts by a single agent.  A draft of a pair gives two demonstrations, so this is a fifth of them.
SINGLE = 1 / 3


@dataclass(frozen=True, slots=True)
class _Draft:
    """What the agents of a team wrote, each by its own convention."""

    problem: CodingProblem
    recipe: Recipe
    conventions: tuple[str, ...]
    actions: tuple[str, ...]
    read: tuple[tuple[tuple[str, str], ...], ...]  #: by agent, the calls before in this turn, each with its result

    @property
    def calling(self) -> tuple[str, ...]:
        """Return the same with a call of the tool."""
        return tuple(f"{text}\n{CALL}" for text in self.actions)


def demonstrate_later(
    problems: Sequence[CodingProblem],
    count: int,
    mistakes: float,
    seed: int,
    settings: CodingSettings,
    executor: Callable[[], Executor],
) -> list[CodingDemonstration]:
    """Return demonstrations of the turn after the first and of the tool, if there are such, as
    `Task.demonstrate_later`; for published problems those of generated ones.

    Raises:
        ValueError: there are no problems, or the sandbox failed.
    """
    if not problems:
        raise ValueError("there are no problems to demonstrate")
    rng = random.Random(digest(["later turns", seed]))
    if any(problem.source != "generated" for problem in problems):
        problems = _other_problems(seed)
    # Visible tests stand in place of hidden ones, so that each draft runs once.
    recipes = [(replace(problem, hidden_tests=problem.visible_tests), recipe_of(problem)) for problem in problems]
    drafts: dict[str, list[_Draft]] = {"pair": [], "single": []}
    each = (settings.turns > 1) + 2 * (settings.tools is not None)  # demonstrations of an agent's draft, at least
    while each * sum(len(AGENTS[team]) * len(written) for team, written in drafts.items()) < count:
        team = "single" if rng.random() < SINGLE else "pair"
        drafts[team].append(_write_draft(*rng.choice(recipes), team, rng))
    sources = tuple(source for source in settings.feedback if source not in ("expert", "critic"))
    criticised = CRITICISED if "critic" in settings.feedback else 0.0
    plain = {"reward": SoundCodingReward(), "feedback": sources, "expert": None}
    repairs: list[CodingDemonstration] = []
    for team, written in drafts.items():
        form = settings.model_copy(update={"team": team, **plain})
        with contextlib.closing(CodingEnvironment(form, executor)) as environment:
            starts = [environment.start(draft.problem) for draft in written]
            if settings.turns > 1:
                outcomes = environment.step(starts, [draft.actions for draft in written])
                for draft, outcome in zip(written, outcomes, strict=True):
                    repairs += _repairs(environment, draft, outcome, bool(sources), criticised, mistakes, rng)
            for left in reversed(range(environment.tool_calls)):
                calls = [
                    ToolCall(environment.start(draft.problem), number, draft.calling)
                    for draft in written
                    for number in range(len(draft.actions))
                ]
                told = zip(calls, environment.run_visible(calls), strict=True)
                found = [
                    _with_tool(environment, draft, [next(told) for _ in draft.actions], left > 0, mistakes, rng)
                    for draft in written
                ]
                repairs += [one for shown, _ in found for one in shown]
                written = [draft for _, draft in found if draft is not None]
    rng.shuffle(repairs)
    return repairs[:count]


def _write_draft(problem: CodingProblem, recipe: Recipe, team: str, rng: random.Random) -> _Draft:
    conventions = tuple(weighted(CONVENTIONS, rng) for _ in AGENTS[team])
    followed = zip(AGENTS[team], conventions, strict=True)
    actions = tuple(_written(recipe, role, convention, WRONG_DRAFTS, rng)[0] for role, convention in followed)
    return _Draft(problem, recipe, conventions, actions, ((),) * len(actions))


def _repairs(
    environment: CodingEnvironment,
    draft: _Draft,
    outcome: Outcome[CodingState],
    told: bool,
    criticised: float,
    mistakes: float,
    rng: random.Random,
) -> list[CodingDemonstration]:
    if outcome.details.get("status") == "infra_error":
        raise ValueError(f"the sandbox failed while drafts were run: {outcome.details['error']}")
    repairs = []
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
        repairs.append(CodingDemonstration(seen, action, role, convention, mistake))
    return repairs


def _with_tool(
    environment: CodingEnvironment,
    draft: _Draft,
    told: Sequence[tuple[ToolCall[CodingState], tuple[Program, Verdict | None]]],
    further: bool,
    mistakes: float,
    rng: random.Random,
) -> tuple[list[CodingDemonstration], _Draft | None]:
    """Return for each agent what it writes first, unless it has called before, and what it writes after this call; and
    the next draft, if there may be a ``further`` call and this program failed.
    """
    found, read, again = [], [], []
    passed = all(verdict is not None and verdict.status is Status.PASSED for _, (_, verdict) in told)
    for role, (call, (program, verdict)) in zip(environment.agents(draft.problem), told, strict=True):
        seen, own = environment.observe(call.state, call.agent), draft.conventions[call.agent]
        before = draft.read[call.agent]
        if not before:
            action, mistake = _written(draft.recipe, role, own, mistakes, rng)
            first = f"{action}\n{CALL}" if rng.random() < CALLING else action
            found.append(CodingDemonstration(seen, first, role, own, mistake))
        answer = result(call.agent, program, verdict)
        if answer.text is None:
            raise ValueError(f"the sandbox failed while drafts were run: {answer.error}")
        convention, mistake = draft.conventions[0], ""
        if passed:
            action = draft.actions[call.agent]
        else:
            action, mistake = _written(draft.recipe, role, convention, mistakes, rng)
            if further:
                again.append(_written(draft.recipe, role, convention, WRONG_DRAFTS, rng)[0])
                action = f"{action}\n{CALL}" if rng.random() < CALLING else action
        read.append((*before, (call.text, answer.text)))
        most = environment.tool_tokens
        found.append(CodingDemonstration(seen, action, role, convention, mistake, calls=read[-1], tool_tokens=most))
    if not again:
        return found, None
    return found, replace(draft, conventions=(convention,) * len(again), actions=tuple(again), read=tuple(read))


def _written(recipe: Recipe, role: str, convention: str, mistakes: float, rng: random.Random) -> tuple[str, str]:
    """Return an action, and the kind of its planted mistake or an empty text."""
    if rng.random() >= mistakes:
        return write(recipe, role, convention), ""
    mistake = weighted(MISTAKES, rng)
    return plant(mistake, recipe, role, convention, rng), mistake
