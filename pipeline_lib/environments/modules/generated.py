"""Generated problems with a module for each agent: dependency graph, what each module does, vocabulary, and tests.

Conditions and changes act on one integer ``x``, reductions on a non-empty list ``ys`` of at least two integers.

The modules form layers.  Those at the bottom keep some items of the list ``xs``, those in between change each item, and
the last one puts the lists of the modules that it imports together and reduces them to a number.

Between two layers there is a *step*, a change that must be made once to each item on the way.  Both sides know the step
and not who makes it: ``early``, the modules that hand on, or ``late``, the modules that import them.  Both ways are
right if all modules follow the same one.

A module's agent is told what its own module does and the steps at its ends, nothing of the others, so problems with the
same observation have different answers and nobody can write the program alone.  The tests of a module accept both ways
to treat the steps, because its specification leaves them open; only the system tests tell whether all
modules follow the same one.

Inputs are chosen to find almost correct programs (a condition or change left out, a step made never or twice, a
constant off by one, another reduction) and depend on the design only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_kit.vocabulary import (
    DIGITS,
    Kind,
    Piece,
    Test,
    check_source,
    choose_tests,
    compiled,
    fails,
    neighbours_of,
    substitute,
)
from pipeline_lib.environments.modules.problem import PACKAGE, SINGLE, ModulesProblem
from pipeline_lib.problems.splitting import FAMILY_SHARES, draw_distinct, split_of
from pipeline_lib.settings.problems import Prompt
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environments.modules.settings import GeneratedModules


CONDITIONS: Mapping[str, Kind] = {
    "even": Kind("even", "x % 2 == 0", "even"),
    "odd": Kind("odd", "x % 2 == 1", "odd"),
    "over": Kind("over {k}", "x > {k}", "greater than {k}", DIGITS),
    "under": Kind("under {k}", "x < {k}", "less than {k}", DIGITS),
    "beyond": Kind("beyond {k}", "abs(x) > {k}", "greater than {k} in absolute value", DIGITS),
    "within": Kind("within {k}", "abs(x) < {k}", "less than {k} in absolute value", tuple(range(4, 10))),
}

CHANGES: Mapping[str, Kind] = {
    "squared": Kind("squared", "x * x", "square it"),
    "negated": Kind("negated", "-x", "negate it"),
    "plus": Kind("plus {k}", "x + {k}", "add {k}", DIGITS),
    "minus": Kind("minus {k}", "x - {k}", "subtract {k}", DIGITS),
    "times": Kind("times {k}", "x * {k}", "multiply it by {k}", DIGITS),
    "modulo": Kind("modulo {k}", "x % {k}", "take it modulo {k}", tuple(range(3, 10))),
}

REDUCTIONS: Mapping[str, Kind] = {
    "sum": Kind("sum", "sum(ys)", "the sum of the items"),
    "rest": Kind("sum but first", "sum(ys[1:])", "the sum of all items but the first"),
    "start": Kind("sum but last", "sum(ys[:-1])", "the sum of all items but the last"),
    "half": Kind("sum of every second", "sum(ys[::2])", "the sum of every second item, beginning with the first"),
    "largest": Kind("largest", "max(ys)", "the largest item"),
    "smallest": Kind("smallest", "min(ys)", "the smallest item"),
    "top": Kind("second largest", "sorted(ys)[-2]", "the second largest item"),
    "bottom": Kind("second smallest", "sorted(ys)[1]", "the second smallest item"),
}

KINDS: Mapping[str, Kind] = {**CONDITIONS, **CHANGES, **REDUCTIONS}


class ModulePiece(Piece):
    """One condition, change or reduction; the first two are expressions over ``x``, reductions over ``ys``."""

    kinds = KINDS


#: The modules that hand a list on, and the last one.
LOWER, TOP = ("one", "two", "three"), "main"
#: The function that each module defines.
FUNCTION = "run"
EARLY, LATE = "early", "late"

_Function = Callable[[Any], Any]


@lru_cache
def graph(modules: int, depth: int) -> dict[str, tuple[str, ...]]:
    """Return for each module the modules that it imports.

    Args:
        modules: number of modules, 2 to 4.
        depth: number of layers, 2 to ``modules``; all have one module, except the one below the last.
    """
    layers = [1] * (depth - 2) + [modules - depth + 1, 1]
    names = [*LOWER[: modules - 1], TOP]
    imports: dict[str, tuple[str, ...]] = {}
    below: tuple[str, ...] = ()
    for size in layers:
        layer, names = tuple(names[:size]), names[size:]
        imports |= dict.fromkeys(layer, below)
        below = layer
    return imports


@dataclass(frozen=True, slots=True)
class Design:
    """What each module does."""

    depth: int  #: number of layers of the graph
    own: tuple[ModulePiece, ...]  #: for each module except the last, the condition or change that is its own
    steps: tuple[ModulePiece, ...]  #: for each layer except the last, the step on the way to the next one
    end: ModulePiece  #: how the last module reduces its list

    @property
    def needs(self) -> dict[str, tuple[str, ...]]:
        return graph(len(self.own) + 1, self.depth)

    @property
    def name(self) -> str:
        """Return the text that `parse` reads back."""
        return self._join(lambda piece: piece.label)

    @property
    def family(self) -> str:
        """Return the name without constants: the unit that splits keep apart."""
        return self._join(lambda piece: piece.kind)

    def _join(self, said: Callable[[ModulePiece], str]) -> str:
        fields = (self.own, self.steps, (self.end,))
        return "/".join([str(self.depth), *("+".join(map(said, pieces)) for pieces in fields)])

    @classmethod
    def parse(cls, name: str) -> Design:
        """Rebuild a design from `name`; raises ValueError if the text is not the name of a design."""
        depth, *fields = name.split("/")
        if len(fields) != 3 or not depth.isdigit():
            raise ValueError(f"{name!r} is no design; expected depth/pieces/steps/end, such as 2/even/plus3/sum")
        own, steps, (end,) = (tuple(map(ModulePiece.parse, field.split("+"))) for field in fields)
        return cls(int(depth), own, steps, end)

    def piece(self, module: str) -> ModulePiece:
        """Return the condition or change of a module other than the last."""
        return self.own[LOWER.index(module)]

    def step(self, module: str) -> ModulePiece:
        layer = 0
        while below := self.needs[module]:
            module, layer = below[0], layer + 1
        return self.steps[layer]

    def said(self, module: str) -> str:
        """Return what a module must do, as its agent is told."""
        needs = self.needs[module]
        clauses = [f"from {', '.join(needs)} {self.step(needs[0]).phrase}"] if needs else []
        if module == TOP:
            clauses.append(self.end.phrase)
        else:
            clauses += [
                f"{'change' if needs else 'keep'} {self.piece(module).phrase}",
                f"hand on {self.step(module).phrase}",
            ]
        return f"{module}.py: {'; '.join(clauses)}"

    def said_plainly(self, module: str) -> str:
        """Return `said` in plain English."""
        needs = self.needs[module]
        sentences = [f"{module}.py defines the function {FUNCTION}(xs) of a list xs of integers."]
        if needs:
            names = " and ".join(needs)
            lists = (
                f"the list that {FUNCTION}(xs) of {names} returns"
                if len(needs) == 1
                else (f"the lists that {FUNCTION}(xs) of {names} return, one after the other")
            )
            sentences.append(
                f"It imports {names} from the package {PACKAGE}, and takes {lists}. Between {names} and {module}, one "
                f"side must do this to each item x: {self.step(needs[0]).plain}."
            )
        if module == TOP:
            sentences.append(f"It returns {self.end.plain}.")
            return " ".join(sentences)
        piece = self.piece(module).plain
        sentences.append(
            f"Then it does this to each item x: {piece}." if needs else f"It keeps the items that are {piece}."
        )
        sentences.append(
            f"It returns the new list. Between {module} and what imports it, one side must do this to each item x: "
            f"{self.step(module).plain}."
        )
        return " ".join(sentences)

    def source(self, module: str, way: str) -> str:
        """Return a right module that treats the steps in one way, `EARLY` or `LATE`."""
        needs = self.needs[module]
        imports = f"from {PACKAGE} import {', '.join(needs)}\n\n" if needs else ""
        items = " + ".join(f"{below}.{FUNCTION}(xs)" for below in needs) or "xs"
        taken = self.step(needs[0]).code if needs and way == LATE else "x"
        if module == TOP:
            value = substitute(self.end.code, "ys", items if taken == "x" else f"[{taken} for x in {items}]")
        else:
            piece, step = self.piece(module).code, self.step(module).code
            item = substitute(piece, "x", taken) if needs else "x"
            item = substitute(step, "x", item) if way == EARLY else item
            value = f"[{item} for x in {items}]" if needs else f"[{item} for x in xs if {piece}]"
        return f"{imports}def {FUNCTION}(xs):\n    return {value}\n"

    def solution(self, way: str) -> dict[str, str]:
        return {module: self.source(module, way) for module in self.needs}

    def lists(
        self, xs: list[int], times: Mapping[str, int] | None = None, idle: str = ""
    ) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """Return the list of each module other than the last, before and after the step.

        Args:
            xs: the input.
            times: how often the step of a module is made, if not once.
            idle: a module that keeps everything, or changes nothing.
        """
        before: dict[str, list[int]] = {}
        after: dict[str, list[int]] = {}
        for module, below, piece, step in _lower(self):
            items = after[below] if below else xs
            if module != idle:
                items = [piece(x) for x in items] if below else [x for x in items if piece(x)]
            before[module] = items
            for _ in range(times.get(module, 1) if times else 1):
                items = [step(x) for x in items]
            after[module] = items
        return before, after

    def answer(self, xs: list[int], times: Mapping[str, int] | None = None, idle: str = "") -> int:
        """Return the value of the whole program; IndexError or ValueError if a list is too short.  See `lists`."""
        _, after = self.lists(xs, times, idle)
        items = [item for below in self.needs[TOP] for item in after[below]]
        return int(compiled("ys", self.end.code)(items))

    def neighbours(self) -> Iterator[Design]:
        """Return the designs with a constant that differs by one, or with another reduction."""
        return neighbours_of(self, ("own", "steps", "end"), REDUCTIONS)


def draw_design(modules: int, level: int, rng: random.Random) -> Design:
    """Return a random design; a level has one layer more than its number."""
    depth = level + 1
    needs = graph(modules, depth)

    def drawn(kinds: Mapping[str, Kind]) -> ModulePiece:
        return ModulePiece.draw(rng.choice(list(kinds)), rng)

    own = tuple(drawn(CHANGES if needs[module] else CONDITIONS) for module in needs if module != TOP)
    return Design(depth, own, tuple(drawn(CHANGES) for _ in range(level)), drawn(REDUCTIONS))


@lru_cache(maxsize=256)
def _lower(design: Design) -> list[tuple[str, str, _Function, _Function]]:
    """Return for each module but the last: its name, what it imports or "", its own piece, and its step."""
    return [
        (module, "".join(needs), compiled("x", design.piece(module).code), compiled("x", design.step(module).code))
        for module, needs in design.needs.items()
        if module != TOP
    ]


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
    """Return what a generated problem was made from; raises ValueError if the problem was not generated."""
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
