"""Demonstrations for the warm start: modules in both ways, and mistakes.

The way in which a module treats the steps (`generated.Design`) is drawn independently for every demonstration, so the
agents of a team that imitates them rarely follow the same one: reinforcement learning has to find an agreement.  A
single agent writes all modules in one way.  Some demonstrations contain one planted mistake.

A lead that hands out modules (`demonstrate_later`) draws a way for each line, or none, and mostly another worker for
each module.  A worker follows the way that it is told.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.environment_kit.vocabulary import misread, spoiled
from pipeline_lib.environments.modules.generated import (
    CHANGES,
    CONDITIONS,
    EARLY,
    FUNCTION,
    LATE,
    REDUCTIONS,
    SOURCE,
    Design,
    design_of,
    observations,
)
from pipeline_lib.environments.modules.hand_out import (
    LEAD,
    WORKERS,
    HandOut,
    descriptions,
    hand_out_text,
    is_plain,
    led,
    read_hand_out,
    worked,
)
from pipeline_lib.environments.modules.problem import SINGLE, ModulesProblem
from pipeline_lib.environments.modules.program import join_single
from pipeline_lib.storage import digest

#: How often each way is drawn.
WAYS = {EARLY: 0.55, LATE: 0.45}

#: How often all modules of a single agent are demonstrated; they are as long as those of a team together.
SINGLE_SHARE = 0.1

#: How often each kind of planted mistake is drawn: another piece, a constant off by one, a lost bracket or colon, a
#: lost ``return``, a wrong name of a function.
MISTAKES = {"piece": 0.35, "constant": 0.25, "bracket": 0.2, "return": 0.1, "name": 0.1}

#: How often a lead tells each way, or none.
TOLD_WAYS = {EARLY: 0.3, LATE: 0.3, "": 0.4}

#: How often a lead gives each module to another worker, all to one, and each to any.
SHARED_OUT = {"one each": 0.8, "all to one": 0.1, "any": 0.1}

#: How often each kind of a lead's mistake is drawn: another piece, a constant off by one, a module left out.
LEADS_MISTAKES = {"piece": 0.4, "constant": 0.3, "left out": 0.3}

#: How often what the lead writes is demonstrated; the other actions of an orchestrated team are of workers.
LEADS_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class ModulesDemonstration(Demonstration):
    """A module, all modules of a single agent, a hand-out, or the modules that a worker was given."""

    role: str  #: name of the module, `SINGLE`, `LEAD` or a name of a worker
    way: str  #: in which it treats the steps; of a lead or a worker empty
    mistake: str  #: kind of the planted mistake, or empty


def demonstrate(
    problems: Sequence[ModulesProblem], count: int, mistakes: float, seed: int
) -> list[ModulesDemonstration]:
    """Return demonstrations on generated problems, as `Task.demonstrate`.

    Raises:
        ValueError: there are no problems, or one was not generated.
    """
    rng = random.Random(digest(["demonstrations", seed]))
    designs = _designs(problems)
    return [_draw(*rng.choice(designs), "", mistakes, rng) for _ in range(count)]


def demonstrate_later(
    problems: Sequence[ModulesProblem], count: int, mistakes: float, seed: int
) -> list[ModulesDemonstration]:
    """Return demonstrations of an orchestrated team, and of a single agent, as `Task.demonstrate_later`."""
    rng = random.Random(digest(["hand-outs", seed]))
    designs = _designs(problems)
    return [
        _draw(*rng.choice(designs), SINGLE, mistakes, rng)
        if rng.random() < SINGLE_SHARE
        else _draw_orchestrated(*rng.choice(designs), mistakes, rng)
        for _ in range(count)
    ]


def ways_told(hand_out: HandOut, worker: str) -> dict[str, str]:
    """Return by file of a worker the way that it is told in the line that names the file; empty if none is."""
    lines = hand_out.told[worker].splitlines()
    of_lines = {part: next(line for line in lines if f"{part}.py" in line) for part in hand_out.files(worker)}
    found = {part: re.search(rf"\b({EARLY}|{LATE})\b", line) for part, line in of_lines.items()}
    return {part: way[1] if way else "" for part, way in found.items()}


def _designs(problems: Sequence[ModulesProblem]) -> list[tuple[ModulesProblem, Design]]:
    if not problems:
        raise ValueError("there are no problems to demonstrate")
    if problems[0].source != SOURCE:
        raise ValueError("classes have no demonstrations; use a pretrained policy without a warm start")
    return [(problem, design_of(problem)) for problem in problems]


def plant(mistake: str, design: Design, role: str, way: str, rng: random.Random) -> str:
    """Return the action of a role with one mistake in it, a key of `MISTAKES`."""
    if mistake in ("piece", "constant"):
        fields, tables = ("own", "steps", "end"), (CONDITIONS, CHANGES, REDUCTIONS)
        return misread(design, fields, tables, lambda other: _action(other, role, way), mistake == "constant", rng)
    return spoiled(_action(design, role, way), mistake, FUNCTION, "start", rng)


def _draw(
    problem: ModulesProblem, design: Design, role: str, mistakes: float, rng: random.Random
) -> ModulesDemonstration:
    """Return what ``role`` writes; if it is empty, it is drawn."""
    role = role or (SINGLE if rng.random() < SINGLE_SHARE else rng.choice(problem.parts))
    way = _one_of(WAYS, rng)
    mistake = _one_of(MISTAKES, rng) if rng.random() < mistakes else ""
    action = plant(mistake, design, role, way, rng) if mistake else _action(design, role, way)
    return ModulesDemonstration(problem.observations[role], action, role, way, mistake)


def _action(design: Design, role: str, way: str) -> str:
    return join_single(design.solution(way)) if role == SINGLE else design.source(role, way)


def _draw_orchestrated(
    problem: ModulesProblem, design: Design, mistakes: float, rng: random.Random
) -> ModulesDemonstration:
    ways = {part: _one_of(TOLD_WAYS, rng) for part in problem.parts}
    workers = WORKERS[: len(problem.parts)]
    sharing = _one_of(SHARED_OUT, rng)
    any_worker = rng.choice(workers)
    drawn = {
        "one each": workers,
        "all to one": [any_worker] * len(workers),
        "any": rng.choices(workers, k=len(workers)),
    }
    owners = dict(zip(problem.parts, drawn[sharing], strict=True))
    wrong = rng.random() < mistakes
    if rng.random() < LEADS_SHARE:
        mistake = _one_of(LEADS_MISTAKES, rng) if wrong else ""
        action = _handed_out(problem, design, ways, owners, mistake, rng)
        return ModulesDemonstration(led(problem), action, LEAD, "", mistake)
    hand_out = read_hand_out(hand_out_text(descriptions(problem.observations), ways, owners), problem.parts)
    worker = rng.choice(sorted({*owners.values()}))
    followed = {part: way or _one_of(WAYS, rng) for part, way in ways_told(hand_out, worker).items()}
    sources = {part: design.source(part, way) for part, way in followed.items()}
    mistake = _one_of(MISTAKES, rng) if wrong else ""
    if mistake:
        part = rng.choice(list(sources))
        sources[part] = plant(mistake, design, part, followed[part], rng)
    return ModulesDemonstration(worked(problem, worker, hand_out), join_single(sources), worker, "", mistake)


def _handed_out(
    problem: ModulesProblem,
    design: Design,
    ways: Mapping[str, str],
    owners: Mapping[str, str],
    mistake: str,
    rng: random.Random,
) -> str:
    """Return what a lead writes, with a mistake in it, a key of `LEADS_MISTAKES`, or without one."""
    lines = descriptions(problem.observations)
    if mistake == "left out":
        del lines[rng.choice(problem.parts)]
    if mistake in ("", "left out"):
        return hand_out_text(lines, ways, owners)

    def written(other: Design) -> str:
        said = observations(other, "plain" if is_plain(problem) else "compact")
        return hand_out_text(descriptions(said), ways, owners)

    fields, tables = ("own", "steps", "end"), (CONDITIONS, CHANGES, REDUCTIONS)
    return misread(design, fields, tables, written, mistake == "constant", rng)


def _one_of(shares: Mapping[str, float], rng: random.Random) -> str:
    (drawn,) = rng.choices(list(shares), weights=list(shares.values()))
    return drawn
