"""A generated problem before it has tests: its filters, maps and reductions, and their vocabulary.

Filters and maps act on one integer ``x``, reductions on a non-empty list ``ys`` of at least two integers.  A recipe
gives the reference solution, the phrases of the observations, and its own name: the id of a problem can be parsed back
into the recipe, so files need not store it twice.  It does not define inputs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline_lib.environment_kit.vocabulary import DIGITS, Kind, Piece, neighbours_of, substitute

FILTERS: Mapping[str, Kind] = {
    "even": Kind("even", "x % 2 == 0", "even"),
    "odd": Kind("odd", "x % 2 == 1", "odd"),
    "over": Kind("over {k}", "x > {k}", "greater than {k}", DIGITS),
    "under": Kind("under {k}", "x < {k}", "less than {k}", DIGITS),
    # 2 would be "even" in other words, and the same problem could then lie in two splits.
    "divisible": Kind("divisible by {k}", "x % {k} == 0", "divisible by {k}", tuple(range(3, 10))),
    "beyond": Kind("beyond {k}", "abs(x) > {k}", "greater than {k} in absolute value", DIGITS),
    "within": Kind("within {k}", "abs(x) < {k}", "less than {k} in absolute value", tuple(range(3, 10))),
    "ending": Kind("ending over {k}", "x % 10 > {k}", "greater than {k} modulo 10", tuple(range(2, 8))),
}

MAPS: Mapping[str, Kind] = {
    "square": Kind("squared", "x * x", "square it"),
    "unsigned": Kind("unsigned", "abs(x)", "take its absolute value"),
    "negate": Kind("negated", "-x", "negate it"),
    "plus": Kind("plus {k}", "x + {k}", "add {k}", DIGITS),
    "minus": Kind("minus {k}", "x - {k}", "subtract {k}", DIGITS),
    "times": Kind("times {k}", "x * {k}", "multiply it by {k}", DIGITS),
    "modulo": Kind("modulo {k}", "x % {k}", "take it modulo {k}", DIGITS),
    "divide": Kind("divided by {k}", "x // {k}", "divide it by {k}, rounding down", DIGITS),
}

REDUCTIONS: Mapping[str, Kind] = {
    "sum": Kind("sum", "sum(ys)", "the sum"),
    "largest": Kind("largest", "max(ys)", "the largest item"),
    "smallest": Kind("smallest", "min(ys)", "the smallest item"),
    "first": Kind("first", "ys[0]", "the first item"),
    "last": Kind("last", "ys[-1]", "the last item"),
    "spread": Kind("spread", "max(ys) - min(ys)", "the largest item minus the smallest"),
    "top": Kind("second largest", "sorted(ys)[-2]", "the second largest item"),
    "bottom": Kind("second smallest", "sorted(ys)[1]", "the second smallest item"),
}

KINDS: Mapping[str, Kind] = {**FILTERS, **MAPS, **REDUCTIONS}


class ListPiece(Piece):
    """One filter, map or reduction; filters and maps are expressions over ``x``, reductions over ``ys``."""

    kinds = KINDS


def pieces(kinds: Mapping[str, Kind]) -> list[ListPiece]:
    """Return every piece of some kinds, one per constant."""
    return [ListPiece(kind, k) for kind, definition in kinds.items() for k in definition.constants or (None,)]


ENTRY_POINT = "main"
HELPER = "aux"
LEVELS = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Filter a list of integers, map what is left, reduce it to one integer."""

    filters: tuple[ListPiece, ...]  #: all must hold for an item to be chosen
    #: Applied one after the other; with a ``switch``, the first where it holds and the second elsewhere.
    maps: tuple[ListPiece, ...]
    reductions: tuple[ListPiece, ...]  #: one, or two of which the second is subtracted from the first
    switch: ListPiece | None = None  #: the condition between two maps, if any

    @property
    def level(self) -> int:
        """Return the difficulty, 1 to 4: 1 one of each; 2 a second filter or map; 3 both; 4 also a switch."""
        if self.switch is not None:
            return 4
        return len(self.filters) + len(self.maps) - 1

    @property
    def condition(self) -> str:
        return " and ".join(piece.code for piece in self.filters) or "True"

    @property
    def mapped(self) -> str:
        if self.switch is not None:
            yes, no = self.maps
            return f"{yes.code} if {self.switch.code} else {no.code}"
        code = "x"
        for piece in self.maps:
            code = substitute(piece.code, "x", code)
        return code

    @property
    def reduced(self) -> str:
        first, *rest = (piece.code for piece in self.reductions)
        return " - ".join([first, *(f"({code})" if " - " in code else code for code in rest)])

    @property
    def filter_phrase(self) -> str:
        return "items " + " and ".join(piece.phrase for piece in self.filters)

    @property
    def map_phrase(self) -> str:
        """Return the maps in every agent's observation."""
        if self.switch is not None:
            yes, no = self.maps
            return f"if {self.switch.phrase} {yes.phrase} else {no.phrase}"
        return ", ".join(piece.phrase for piece in self.maps)

    @property
    def reduce_phrase(self) -> str:
        return " without ".join(piece.phrase for piece in self.reductions)

    @property
    def plain_filter(self) -> str:
        return " and ".join(piece.plain for piece in self.filters)

    @property
    def plain_map(self) -> str:
        if self.switch is not None:
            yes, no = self.maps
            return f"if x is {self.switch.plain}, {yes.plain}, and otherwise {no.plain}"
        return ", then ".join(piece.plain for piece in self.maps)

    @property
    def plain_reduction(self) -> str:
        first, *rest = (piece.plain for piece in self.reductions)
        said = " minus ".join([first, *(f"({plain})" if " minus " in plain else plain for plain in rest)])
        return f"{said} of the new items"

    @property
    def family(self) -> str:
        """Return the combination of kinds without constants: the unit that splits keep apart."""
        return _name(self, constants=False)

    @property
    def name(self) -> str:
        """Return the combination with constants; `parse` reads it back."""
        return _name(self, constants=True)

    @classmethod
    def parse(cls, name: str) -> Recipe:
        """Rebuild a recipe from `name`; raises ValueError if the text is not the name of a recipe."""
        parts = name.split("/")
        if len(parts) != 3:
            raise ValueError(f"{name!r} is not a recipe; expected filters/maps/reductions, such as over3/square/sum")
        filters, maps, reductions = parts
        switch, _, branches = maps.rpartition(":")
        return cls(
            filters=tuple(ListPiece.parse(label) for label in filters.split("+")),
            maps=tuple(ListPiece.parse(label) for label in branches.split("+")),
            reductions=tuple(ListPiece.parse(label) for label in reductions.split("+")),
            switch=ListPiece.parse(switch) if switch else None,
        )

    def reference(self) -> dict[str, str]:
        """Return the solution as source by function name: `HELPER` filters and maps, `ENTRY_POINT` reduces."""
        return {
            HELPER: helper_source(f"[{self.mapped} for x in xs if {self.condition}]"),
            ENTRY_POINT: main_source(self),
        }

    def parts(self) -> Iterator[Recipe]:
        for number in range(len(self.filters)):
            yield replace(self, filters=_without(self.filters, number))
        for number in range(len(self.maps)):
            yield replace(self, maps=_without(self.maps, number), switch=None)
        if self.switch is None and len(self.maps) > 1:
            yield replace(self, maps=())
        if len(self.reductions) > 1:
            for number in range(len(self.reductions)):
                yield replace(self, reductions=_without(self.reductions, number))

    def neighbours(self) -> Iterator[Recipe]:
        """Return recipes that differ from this one in one constant by one, or in one reduction."""
        return neighbours_of(self, ("filters", "maps", "reductions"), REDUCTIONS)


def _without(pieces: tuple[ListPiece, ...], number: int) -> tuple[ListPiece, ...]:
    return (*pieces[:number], *pieces[number + 1 :])


def main_source(recipe: Recipe, chosen: str = f"{HELPER}(xs)") -> str:
    """Return the main function's source, given the expression for the list that it reduces."""
    if recipe.reduced.count("ys") == 1:
        return f"def {ENTRY_POINT}(xs):\n    return {substitute(recipe.reduced, 'ys', chosen)}"
    return f"def {ENTRY_POINT}(xs):\n    ys = {chosen}\n    return {recipe.reduced}"


def helper_source(value: str, parameter: str = "xs") -> str:
    """Return the helper function's source, given the expression it returns."""
    return f"def {HELPER}({parameter}):\n    return {value}"


def draw(level: int, rng: random.Random) -> Recipe:
    """Return a random recipe of a level: kinds uniform, then constants uniform.

    It may be degenerate (no item is both even and odd); `make_problem` detects this.

    Raises:
        ValueError: there is no such level.
    """
    if level not in LEVELS:
        raise ValueError(f"there is no level {level}; levels are {', '.join(map(str, LEVELS))}")
    two_filters = level >= 3 or (level == 2 and rng.random() < 0.5)
    two_maps = level >= 3 or (level == 2 and not two_filters)
    kinds = rng.sample(list(FILTERS), 1 + two_filters + (level == 4))
    switch = ListPiece.draw(kinds.pop(), rng) if level == 4 else None
    return Recipe(
        # "over 3 and even" and "even and over 3" are one problem, so filters have one order
        filters=tuple(ListPiece.draw(kind, rng) for kind in sorted(kinds, key=list(FILTERS).index)),
        maps=tuple(ListPiece.draw(kind, rng) for kind in rng.sample(list(MAPS), 1 + two_maps)),
        reductions=tuple(ListPiece(kind) for kind in rng.sample(list(REDUCTIONS), 2 if level == 4 else 1)),
        switch=switch,
    )


def _name(recipe: Recipe, constants: bool) -> str:
    def join(pieces: Sequence[ListPiece]) -> str:
        return "+".join(piece.label if constants else piece.kind for piece in pieces)

    maps = join(recipe.maps) if recipe.switch is None else f"{join([recipe.switch])}:{join(recipe.maps)}"
    return f"{join(recipe.filters)}/{maps}/{join(recipe.reductions)}"
