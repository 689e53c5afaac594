"""Demonstrations for the warm start: modules in both ways, and mistakes.

The way in which a module treats the steps (`problems.design`) is drawn independently for every demonstration, so the
agents of a team that imitates them rarely follow the same one: reinforcement learning has to find an agreement.  A
single agent writes all modules in one way.  Some demonstrations contain one planted mistake.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.environment_kit.vocabulary import misread, spoiled
from pipeline_lib.environments.modules.problems.design import (
    CHANGES,
    CONDITIONS,
    EARLY,
    FUNCTION,
    LATE,
    REDUCTIONS,
    Design,
)
from pipeline_lib.environments.modules.problems.generated import SOURCE, design_of
from pipeline_lib.environments.modules.problems.problem import SINGLE, ModulesProblem
from pipeline_lib.environments.modules.program import join_single
from pipeline_lib.storage import digest

#: How often each way is drawn.
WAYS = {EARLY: 0.55, LATE: 0.45}

#: How often all modules of a single agent are demonstrated; they are as long as those of a team together.
SINGLE_SHARE = 0.1

#: How often each kind of planted mistake is drawn: another piece, a constant off by one, a lost bracket or colon, a
#: lost ``return``, a wrong name of a function.
MISTAKES = {"piece": 0.35, "constant": 0.25, "bracket": 0.2, "return": 0.1, "name": 0.1}


@dataclass(frozen=True, slots=True)
class ModulesDemonstration(Demonstration):
    """A module, or all modules of a single agent.

    Attributes:
        role: name of the module, or `SINGLE`.
        way: in which it treats the steps.
        mistake: kind of the planted mistake, or empty.
    """

    role: str
    way: str
    mistake: str


def demonstrate(
    problems: Sequence[ModulesProblem], count: int, mistakes: float, seed: int
) -> list[ModulesDemonstration]:
    """Return demonstrations on generated problems, as `Task.demonstrate`.

    Raises:
        ValueError: there are no problems, or one was not generated.
    """
    if not problems:
        raise ValueError("there are no problems to demonstrate")
    if problems[0].source != SOURCE:
        raise ValueError("classes have no demonstrations; use a pretrained policy without a warm start")
    rng = random.Random(digest(["demonstrations", seed]))
    designs = [(problem, design_of(problem)) for problem in problems]
    return [_draw(*rng.choice(designs), mistakes, rng) for _ in range(count)]


def plant(mistake: str, design: Design, role: str, way: str, rng: random.Random) -> str:
    """Return the action of a role with one mistake in it, a key of `MISTAKES`."""
    if mistake in ("piece", "constant"):
        fields, tables = ("own", "steps", "end"), (CONDITIONS, CHANGES, REDUCTIONS)
        return misread(design, fields, tables, lambda other: _action(other, role, way), mistake == "constant", rng)
    return spoiled(_action(design, role, way), mistake, FUNCTION, "start", rng)


def _draw(problem: ModulesProblem, design: Design, mistakes: float, rng: random.Random) -> ModulesDemonstration:
    role = SINGLE if rng.random() < SINGLE_SHARE else rng.choice(problem.parts)
    (way,) = rng.choices(list(WAYS), weights=list(WAYS.values()))
    mistake = ""
    if rng.random() < mistakes:
        (mistake,) = rng.choices(list(MISTAKES), weights=list(MISTAKES.values()))
    action = plant(mistake, design, role, way, rng) if mistake else _action(design, role, way)
    return ModulesDemonstration(problem.observations[role], action, role, way, mistake)


def _action(design: Design, role: str, way: str) -> str:
    return join_single(design.solution(way)) if role == SINGLE else design.source(role, way)
