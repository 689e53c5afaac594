"""The vocabulary of generated programs: the phrase and the expression of everything that a module can do.

Conditions and changes act on one integer ``x``, reductions on a non-empty list ``ys`` of at least two integers.  Each
kind is defined once; observations, solutions, demonstrations and tests all use these definitions.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

_DIGITS = tuple(range(2, 10))


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of conditions, changes or reductions.

    Attributes:
        phrase: how an observation names it; ``{k}`` stands for the constant.
        code: expression over ``x`` or ``ys``.
        constants: values that ``k`` may have; empty if there is no constant.
    """

    phrase: str
    code: str
    constants: tuple[int, ...] = ()


CONDITIONS: Mapping[str, Kind] = {
    "even": Kind("even", "x % 2 == 0"),
    "odd": Kind("odd", "x % 2 == 1"),
    "over": Kind("over {k}", "x > {k}", _DIGITS),
    "under": Kind("under {k}", "x < {k}", _DIGITS),
    "beyond": Kind("beyond {k}", "abs(x) > {k}", _DIGITS),
    "within": Kind("within {k}", "abs(x) < {k}", tuple(range(4, 10))),
}

CHANGES: Mapping[str, Kind] = {
    "squared": Kind("squared", "x * x"),
    "negated": Kind("negated", "-x"),
    "plus": Kind("plus {k}", "x + {k}", _DIGITS),
    "minus": Kind("minus {k}", "x - {k}", _DIGITS),
    "times": Kind("times {k}", "x * {k}", _DIGITS),
    "modulo": Kind("modulo {k}", "x % {k}", tuple(range(3, 10))),
}

REDUCTIONS: Mapping[str, Kind] = {
    "sum": Kind("sum", "sum(ys)"),
    "rest": Kind("sum but first", "sum(ys[1:])"),
    "start": Kind("sum but last", "sum(ys[:-1])"),
    "half": Kind("sum of every second", "sum(ys[::2])"),
    "largest": Kind("largest", "max(ys)"),
    "smallest": Kind("smallest", "min(ys)"),
    "top": Kind("second largest", "sorted(ys)[-2]"),
    "bottom": Kind("second smallest", "sorted(ys)[1]"),
}

KINDS: Mapping[str, Kind] = {**CONDITIONS, **CHANGES, **REDUCTIONS}


@dataclass(frozen=True, slots=True)
class Piece:
    """One condition, change or reduction with its constant, for example ``over 3``."""

    kind: str
    k: int | None = None

    @property
    def phrase(self) -> str:
        """Return its name in observations."""
        return KINDS[self.kind].phrase.format(k=self.k)

    @property
    def code(self) -> str:
        """Return its expression."""
        return KINDS[self.kind].code.format(k=self.k)

    @property
    def label(self) -> str:
        """Return its part of a problem's id, for example ``over3``."""
        return self.kind if self.k is None else f"{self.kind}{self.k}"

    @classmethod
    def parse(cls, label: str) -> Piece:
        """Rebuild a piece from `label`.

        Raises:
            ValueError: the label names no kind.
        """
        match = re.fullmatch(r"([a-z]+)(\d*)", label)
        if match is None or match[1] not in KINDS:
            raise ValueError(f"{label!r} names no piece of a program; known kinds: {', '.join(KINDS)}")
        return cls(match[1], int(match[2]) if match[2] else None)


def draw_piece(kinds: Mapping[str, Kind], rng: random.Random, but: str = "") -> Piece:
    """Return a random piece: the kind is uniform among all except ``but``, then the constant."""
    kind = rng.choice([kind for kind in kinds if kind != but])
    constants = kinds[kind].constants
    return Piece(kind, rng.choice(constants) if constants else None)


def put(code: str, variable: str, value: str) -> str:
    """Return ``code`` with ``variable`` replaced by ``value``, in brackets where needed.

    Examples:
        >>> put("x + 4", "x", "x * x")
        '(x * x) + 4'
        >>> put("sum(ys)", "ys", "one.run(xs) + two.run(xs)")
        'sum(one.run(xs) + two.run(xs))'
        >>> put("sum(ys[1:])", "ys", "one.run(xs)")
        'sum(one.run(xs)[1:])'
    """
    atom = re.fullmatch(r"[\w.]+(\(\w*\))?|\[[^\[\]]*\]", value) is not None
    # The only argument of a call needs no brackets of its own.
    pattern = rf"((?<=\w\(){variable}(?=\)))|\b{variable}\b"
    return re.sub(pattern, lambda match: value if atom or match[1] else f"({value})", code)
