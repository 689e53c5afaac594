"""Generated problems with a module for each agent, and their tests.

A module's agent is told what its own module does and the steps at its ends, nothing of the others, so problems with the
same observation have different answers and nobody can write the program alone.  The tests of a module accept both ways
to treat the steps (`design`), because its specification leaves them open; only the system tests tell whether all
modules follow the same one.

Inputs are chosen to find almost correct programs (a condition or change left out, a step made never or twice, a
constant off by one, another reduction) and depend on the design only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pipeline_lib.environment_kit.vocabulary import Test, check_source, choose_tests, fails
from pipeline_lib.environments.modules.problems.design import EARLY, FUNCTION, LATE, TOP, Design, draw_design
from pipeline_lib.environments.modules.problems.problem import PACKAGE, SINGLE, ModulesProblem
from pipeline_lib.problems.splitting import FAMILY_SHARES, draw_distinct, split_of
from pipeline_lib.settings.problems import Prompt
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environments.modules.settings import GeneratedModules

SOURCE = "module_graphs"

#: Inputs have numbers from this range; so many are drawn for the tests to be chosen from.
_VALUES, _CANDIDATES = range(-20, 21), 24
#: Items that every list of the right program must have, so that every reduction has a value.
_FEWEST = 2


def generate(settings: GeneratedModules) -> dict[str, list[ModulesProblem]]:
    """Return the problems of all splits; the same settings give the same problems.

    Raises:
        ValueError: a split is larger than the number of distinct problems that can be found for it.
    """
    rng = random.Random(digest([SOURCE, settings.seed]))
    return {split: draw_problems(split, getattr(settings.sizes, split), settings, rng) for split in FAMILY_SHARES}


def draw_problems(split: str, size: int, settings: GeneratedModules, rng: random.Random) -> list[ModulesProblem]:
    """Return different problems of one split, the same number of each level; raises as `generate`."""
    levels = settings.levels

    def one(count: int) -> ModulesProblem | None:
        design = draw_design(settings.modules, levels[count % len(levels)], rng)
        if split_of(design.family, settings.seed, settings.apart_from) != split:
            return None
        return make_problem(design, settings.unit_tests, settings.system_tests, settings.prompt)

    return draw_distinct(split, size, one, f"ask for fewer, or add to levels {list(levels)}")


def design_of(problem: ModulesProblem) -> Design:
    """Return what a generated problem was made from.

    Raises:
        ValueError: the problem was not generated.
    """
    return Design.parse(problem.id.removeprefix(f"{SOURCE}/"))


def make_problem(design: Design, unit: int, system: int, prompt: Prompt = "compact") -> ModulesProblem | None:
    """Return a problem with tests, or None if the design is degenerate.

    It is if lists become too short, or if programs that leave out a piece, or make a step never or twice, pass half of
    the system tests.
    """
    inputs = _inputs(design)
    if inputs is None:
        return None
    chosen = _system_tests(design, inputs, system)
    if chosen is None:
        return None
    others = [xs for xs in inputs if xs not in [test[0] for test in chosen]]
    units = {module: _unit_tests(design, module, others, unit) for module in design.needs}
    return ModulesProblem(
        id=f"{SOURCE}/{design.name}",
        source=SOURCE,
        family=design.family,
        level=design.depth - 1,
        layout="package",
        entry_point=FUNCTION,
        parts=tuple(design.needs),
        needs=design.needs,
        defines=dict.fromkeys(design.needs, (FUNCTION,)),
        observations=observations(design, prompt),
        unit_tests={module: check_source(tests) for module, tests in units.items()},
        system_tests=check_source(chosen),
        references=(design.solution(EARLY), design.solution(LATE)),
    )


def observations(design: Design, prompt: Prompt = "compact") -> dict[str, str]:
    """Return what each agent is told; ``compact`` is short, because the embedded model reads it on a CPU."""
    if prompt == "plain":
        only = "Answer with Python code only.\n"
        parts = {module: design.said_plainly(module) for module in design.needs}
        begin = f"Several programmers write the Python package {PACKAGE}, a file each."
        told = {module: f"{begin} You write {module}.py. {text} {only}" for module, text in parts.items()}
        all_in_one = f"Write the Python package {PACKAGE}. Begin each file with its name in a comment, as # {TOP}.py."
        return {**told, SINGLE: "\n".join([all_in_one, *parts.values(), only])}
    said = {module: design.said(module) for module in design.needs}
    return {**{module: f"{text}\n" for module, text in said.items()}, SINGLE: "\n".join([*said.values(), ""])}


def _inputs(design: Design) -> list[list[int]] | None:
    """Return random inputs on which every list of the right program has some items, or None if there are too few."""
    rng = random.Random(digest(["inputs", design.name]))
    inputs: dict[tuple[int, ...], None] = {}
    for _ in range(4 * _CANDIDATES):
        xs = rng.sample(_VALUES, rng.randint(6, 9))
        before, _ = design.lists(xs)
        if all(len(items) >= _FEWEST for items in before.values()):
            inputs[tuple(xs)] = None
        if len(inputs) == _CANDIDATES:
            return [list(xs) for xs in inputs]
    return None


def _system_tests(design: Design, inputs: Sequence[list[int]], count: int) -> list[Test] | None:
    tests = [(xs, design.answer(xs)) for xs in inputs]
    wrong: list[Callable[[list[int]], int]] = []
    for module in design.needs:
        if module != TOP:
            wrong += [partial(design.answer, times={module: times}) for times in (0, 2)]
            wrong.append(partial(design.answer, idle=module))
    for layer in _layers(design):
        wrong += [partial(design.answer, times=dict.fromkeys(layer, times)) for times in (0, 2)]
    found_by = [[fails(program, test) for test in tests] for program in wrong]
    if any(2 * sum(one) < len(tests) for one in found_by):
        return None
    found_by += [[fails(neighbour.answer, test) for test in tests] for neighbour in design.neighbours()]
    chosen = choose_tests(tests, found_by, count)
    if any(2 * sum(one[n] for n in chosen) < len(chosen) for one in found_by[: len(wrong)]):
        return None
    return [tests[n] for n in chosen]


def _layers(design: Design) -> list[tuple[str, ...]]:
    """Return the layers of several modules, whose steps may all be made never or twice."""
    return [needs for needs in dict.fromkeys(design.needs.values()) if len(needs) > 1]


def _unit_tests(design: Design, module: str, inputs: Sequence[list[int]], count: int) -> list[Test]:
    """Return tests of a module; of one that hands on, the right value is a tuple of the two that are allowed."""
    if module == TOP:
        return [(xs, design.answer(xs)) for xs in inputs[:count]]
    return [(xs, tuple(lists[module] for lists in design.lists(xs))) for xs in inputs[:count]]
