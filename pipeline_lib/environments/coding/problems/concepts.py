"""The vocabulary of generated problems: the phrase and the expression of each filter, map and reduction.

Each kind is defined once, as a phrase for observations and an expression for programs; demonstrations, reference
solutions and tests all use these expressions.  Filters and maps act on one integer ``x``, reductions on a non-empty
list ``ys`` of at least two integers.  This module does not define observations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

#: Constants are single digits, so that each is one token and its neighbours exist too.
_DIGITS = tuple(range(2, 10))


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of filters, maps or reductions.

    Attributes:
        phrase: how an observation names it, ``{k}`` stands for the constant.
        code: Python expression over ``x`` (filter, map) or ``ys`` (reduction).
        constants: values ``k`` may take; empty when there is no constant.
    """

    phrase: str
    code: str
    constants: tuple[int, ...] = ()


FILTERS: Mapping[str, Kind] = {
    "even": Kind("even", "x % 2 == 0"),
    "odd": Kind("odd", "x % 2 == 1"),
    "over": Kind("over {k}", "x > {k}", _DIGITS),
    "under": Kind("under {k}", "x < {k}", _DIGITS),
    # 2 would be "even" in other words, and the same problem could then lie in two splits.
    "divisible": Kind("divisible by {k}", "x % {k} == 0", tuple(range(3, 10))),
    "beyond": Kind("beyond {k}", "abs(x) > {k}", _DIGITS),
    "within": Kind("within {k}", "abs(x) < {k}", tuple(range(3, 10))),
    "ending": Kind("ending over {k}", "x % 10 > {k}", tuple(range(2, 8))),
}

MAPS: Mapping[str, Kind] = {
    "square": Kind("squared", "x * x"),
    "unsigned": Kind("unsigned", "abs(x)"),
    "negate": Kind("negated", "-x"),
    "plus": Kind("plus {k}", "x + {k}", _DIGITS),
    "minus": Kind("minus {k}", "x - {k}", _DIGITS),
    "times": Kind("times {k}", "x * {k}", _DIGITS),
    "modulo": Kind("modulo {k}", "x % {k}", _DIGITS),
    "divide": Kind("divided by {k}", "x // {k}", _DIGITS),
}

REDUCTIONS: Mapping[str, Kind] = {
    "sum": Kind("sum", "sum(ys)"),
    "largest": Kind("largest", "max(ys)"),
    "smallest": Kind("smallest", "min(ys)"),
    "first": Kind("first", "ys[0]"),
    "last": Kind("last", "ys[-1]"),
    "spread": Kind("spread", "max(ys) - min(ys)"),
    "top": Kind("second largest", "sorted(ys)[-2]"),
    "bottom": Kind("second smallest", "sorted(ys)[1]"),
}

KINDS: Mapping[str, Kind] = {**FILTERS, **MAPS, **REDUCTIONS}


@dataclass(frozen=True, slots=True)
class Piece:
    """One filter, map or reduction with its constant, for example ``over 3``."""

    kind: str
    k: int | None = None

    @property
    def phrase(self) -> str:
        """Return its name in observations."""
        return KINDS[self.kind].phrase.format(k=self.k)

    @property
    def code(self) -> str:
        """Return its expression over ``x`` or ``ys``."""
        return KINDS[self.kind].code.format(k=self.k)

    @property
    def label(self) -> str:
        """Return its part of a problem's id, for example ``over3``."""
        return self.kind if self.k is None else f"{self.kind}{self.k}"

    @classmethod
    def parse(cls, label: str) -> Piece:
        """Rebuild a piece from `label`.

        Raises:
            ValueError: there is no such kind, or the constant is missing, superfluous or out of range.
        """
        match = re.fullmatch(r"([a-z]+)(\d*)", label)
        if match is None or match[1] not in KINDS:
            raise ValueError(f"{label!r} names no concept; known kinds: {', '.join(KINDS)}")
        k = int(match[2]) if match[2] else None
        accepted = KINDS[match[1]].constants
        if (k is None) != (not accepted) or (k is not None and k not in accepted):
            raise ValueError(f"{label!r}: accepted constants of {match[1]}: {list(accepted) or 'none'}")
        return cls(match[1], k)


def pieces(kinds: Mapping[str, Kind]) -> list[Piece]:
    """Return every piece of some kinds, one per constant."""
    return [Piece(kind, k) for kind, definition in kinds.items() for k in definition.constants or (None,)]


def substitute(code: str, variable: str, value: str) -> str:
    """Return ``code`` with every use of ``variable`` replaced by ``value``, in brackets where needed.

    Examples:
        >>> substitute("x + 4", "x", "x * x")
        '(x * x) + 4'
        >>> substitute("abs(x)", "x", "x * x")
        'abs(x * x)'
        >>> substitute("ys[0]", "ys", "aux(xs)")
        'aux(xs)[0]'
    """
    atom = re.fullmatch(r"\w+|\w+\([^()]*\)|\[[^\[\]]*\]", value) is not None
    # the only argument of a call needs no brackets of its own
    pattern = rf"((?<=\w\(){variable}(?=\)))|\b{variable}\b"
    return re.sub(pattern, lambda match: value if atom or match[1] else f"({value})", code)
