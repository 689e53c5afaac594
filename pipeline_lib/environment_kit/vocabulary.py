"""The vocabulary of generated problems whose solutions are programs: pieces with a phrase and an expression each.

A kind of piece is defined once, as a phrase for observations and an expression for programs; demonstrations, known
solutions and tests all use these expressions.  The tests of a problem are chosen to find almost right programs, and
demonstrations may contain one planted mistake.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")  # a dataclass with pieces in its fields

#: Constants are single digits, so that each is one token and its neighbours exist too.
DIGITS = tuple(range(2, 10))

#: Exceptions that a wrong program made of pieces may raise: its list can be empty.
PROGRAM_ERRORS = (ArithmeticError, IndexError, ValueError)

#: An input, and the right answer; of a tuple every item is right.
Test = tuple[list[int], Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A family of pieces."""

    phrase: str  #: how an observation names it; ``{k}`` stands for the constant
    code: str  #: Python expression over one variable
    plain: str  #: how a prompt in plain English names it
    constants: tuple[int, ...] = ()  #: values that ``k`` may take; empty if there is no constant


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece with its constant, for example ``over 3``; a subclass has the kinds of its vocabulary."""

    kinds: ClassVar[Mapping[str, Kind]]
    kind: str
    k: int | None = None

    @property
    def phrase(self) -> str:
        """Return its name in observations."""
        return self.kinds[self.kind].phrase.format(k=self.k)

    @property
    def plain(self) -> str:
        """Return its name in prompts in plain English."""
        return self.kinds[self.kind].plain.format(k=self.k)

    @property
    def code(self) -> str:
        """Return its expression."""
        return self.kinds[self.kind].code.format(k=self.k)

    @property
    def label(self) -> str:
        """Return its part of a problem's id, for example ``over3``."""
        return self.kind if self.k is None else f"{self.kind}{self.k}"

    @classmethod
    def parse(cls, label: str) -> Self:
        """Rebuild a piece from `label`.

        Raises:
            ValueError: there is no such kind, or the constant is missing, superfluous or out of range.
        """
        match = re.fullmatch(r"([a-z]+)(\d*)", label)
        if match is None or match[1] not in cls.kinds:
            raise ValueError(f"{label!r} names no piece of a program; known kinds: {', '.join(cls.kinds)}")
        k = int(match[2]) if match[2] else None
        accepted = cls.kinds[match[1]].constants
        if (k is None) != (not accepted) or (k is not None and k not in accepted):
            raise ValueError(f"{label!r}: accepted constants of {match[1]}: {list(accepted) or 'none'}")
        return cls(match[1], k)

    @classmethod
    def draw(cls, kind: str, rng: random.Random) -> Self:
        """Return a piece of a kind with a random constant."""
        constants = cls.kinds[kind].constants
        return cls(kind, rng.choice(constants) if constants else None)

    def another(self, table: Mapping[str, Kind], rng: random.Random) -> Self:
        """Return a random piece of another kind of a table."""
        return self.draw(rng.choice([kind for kind in table if kind != self.kind]), rng)


def substitute(code: str, variable: str, value: str) -> str:
    """Return ``code`` with every use of ``variable`` replaced by ``value``, in brackets where needed.

    Examples:
        >>> substitute("x + 4", "x", "x * x")
        '(x * x) + 4'
        >>> substitute("abs(x)", "x", "x * x")
        'abs(x * x)'
        >>> substitute("ys[0]", "ys", "aux(xs)")
        'aux(xs)[0]'
        >>> substitute("sum(ys)", "ys", "one.run(xs) + two.run(xs)")
        'sum(one.run(xs) + two.run(xs))'
    """
    atom = re.fullmatch(r"[\w.]+(\([^()]*\))?|\[[^\[\]]*\]", value) is not None
    # the only argument of a call needs no brackets of its own
    pattern = rf"((?<=\w\(){variable}(?=\)))|\b{variable}\b"
    return re.sub(pattern, lambda match: value if atom or match[1] else f"({value})", code)


@lru_cache(maxsize=8192)
def compiled(parameter: str, code: str) -> Callable[[Any], Any]:
    """Return a function of one of this project's own expressions; never of untrusted code."""
    function: Callable[[Any], Any] = eval(f"lambda {parameter}: {code}")
    return function


def fails(program: Callable[[list[int]], Any], test: Test) -> bool:
    """Return whether a program of ours gives another answer than the right one."""
    try:
        return bool(program(test[0]) != test[1])
    except PROGRAM_ERRORS:
        return True


def choose_tests(tests: Sequence[Test], found_by: Sequence[Sequence[bool]], count: int) -> list[int]:
    """Return the numbers of tests that find the most wrong programs, the most informative first.

    Greedy: the next test is the one that finds the programs found least so far; tests with an answer that already
    occurred come last.

    Args:
        tests: to choose from.
        found_by: for each wrong program, which tests find it.
        count: number of tests to choose.
    """
    weights = [1.0] * len(found_by)
    programs = [[program for program, finds in enumerate(found_by) if finds[n]] for n in range(len(tests))]
    answers: set[Any] = set()
    chosen: list[int] = []
    while len(chosen) < min(count, len(tests)):
        left = [n for n in range(len(tests)) if n not in chosen]
        best = max(left, key=lambda n: (tests[n][1] not in answers, sum(weights[i] for i in programs[n])))
        for program in programs[best]:
            weights[program] /= 2
        answers.add(tests[best][1])
        chosen.append(best)
    return chosen


def check_source(tests: Sequence[Test]) -> str:
    """Return tests as the source of ``def check(candidate)``; empty without tests."""
    if not tests:
        return ""
    lines = [f"    assert candidate({xs}) {'in' if isinstance(right, tuple) else '=='} {right}" for xs, right in tests]
    return "\n".join(["def check(candidate):", *lines, ""])


def spoiled(text: str, mistake: str, name: str, wrong_name: str, rng: random.Random) -> str:
    """Return a program with a planted mistake of form.

    Args:
        text: the program.
        mistake: ``bracket`` (a lost bracket or colon), ``return`` (a lost ``return``) or ``name``.
        name: that is misspelt.
        wrong_name: how.
        rng: draws the place.
    """
    if mistake == "bracket":
        place = rng.choice([place for place, letter in enumerate(text) if letter in "()[]:"])
        return text[:place] + text[place + 1 :]
    lost, instead = ("return ", "") if mistake == "return" else (name, wrong_name)
    place = rng.choice([place for place in range(len(text)) if text.startswith(lost, place)])
    return text[:place] + instead + text[place + len(lost) :]


def places(record: D, *fields: str) -> list[tuple[Any, Callable[[Any], D]]]:
    """Return each piece in some fields of a record, with what returns the record with another piece in its place."""
    pieces: list[tuple[Any, Callable[[Any], D]]] = []
    for field in fields:
        value: Any = getattr(record, field)
        if isinstance(value, Piece):
            pieces.append((value, partial(_put, record, field, None)))
        else:
            pieces += [(piece, partial(_put, record, field, number)) for number, piece in enumerate(value)]
    return pieces


def _put(record: D, field: str, number: int | None, new: Any) -> D:
    old: Any = getattr(record, field)
    changed: dict[str, Any] = {field: new if number is None else (*old[:number], new, *old[number + 1 :])}
    return replace(record, **changed)


def neighbours_of(record: D, fields: Sequence[str], kinds: Mapping[str, Kind]) -> Iterator[D]:
    """Yield records that differ from this one in one constant by one, or in one piece of these kinds."""
    for piece, put in places(record, *fields):
        if piece.k is not None:
            yield from (put(replace(piece, k=piece.k + by)) for by in (-1, 1))
        if piece.kind in kinds:
            yield from (put(type(piece)(kind)) for kind in kinds if kind != piece.kind)


def misread(
    record: D,
    fields: Sequence[str],
    tables: Sequence[Mapping[str, Kind]],
    written: Callable[[D], str],
    by_one: bool,
    rng: random.Random,
) -> str:
    """Return a program in which one piece was misread, so that it differs from the right one.

    Args:
        record: the pieces of the problem.
        fields: the fields with pieces.
        tables: the kinds that may be mistaken for each other.
        written: returns the program of a record.
        by_one: a constant is off by one, if one occurs in the program; else a piece is of another kind.
        rng: draws the piece and what stands in its place.
    """
    right, candidates = written(record), places(record, *fields)
    rng.shuffle(candidates)
    for one in (True, False) if by_one else (False,):
        for piece, put in candidates:
            if one and piece.k is None:
                continue
            table = next(table for table in tables if piece.kind in table)
            new = replace(piece, k=piece.k + rng.choice((-1, 1))) if one else piece.another(table, rng)
            text = written(put(new))
            if text != right:
                return text
    raise AssertionError(f"no piece shows in the program: {right}")
