"""Texts that a regular expression matches: what a reward that searches for it may pay for."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_LONGEST = 60
#: Of a group of alternatives so many are tried.
_CHOICES = 3
_CATEGORIES = {codes.CATEGORY_DIGIT: "7", codes.CATEGORY_SPACE: " ", codes.CATEGORY_WORD: "a"}


def matched_by(pattern: str) -> Iterator[str]:
    """Yield up to three short texts that a pattern matches, each once; none for what is no pattern."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = parser.parse(pattern)
    except (re.error, OverflowError, RecursionError):
        return
    written = ("".join(_text(tree, choice))[:_LONGEST] for choice in range(_CHOICES))
    yield from (text for text in dict.fromkeys(written) if text and re.search(pattern, text))


def _text(tree: Iterable[tuple[Any, Any]], choice: int) -> Iterator[str]:
    """Yield a text part by part; ``choice`` is the number of the alternative that is taken."""
    for code, value in tree:
        if code is codes.LITERAL:
            yield chr(value)
        elif code in (codes.ANY, codes.NOT_LITERAL):
            yield "b" if value == ord("a") else "a"
        elif code is codes.IN:
            yield from _text(value[:1], choice)
        elif code is codes.RANGE:
            yield chr(value[0])
        elif code is codes.CATEGORY:
            yield _CATEGORIES.get(value, ".")
        elif code is codes.NEGATE:
            yield "a"
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            least, most, repeated = value
            yield "".join(_text(repeated, choice)) * min(max(least, min(1, most)), _LONGEST)
        elif code is codes.SUBPATTERN:
            yield from _text(value[-1], choice)
        elif code is codes.ATOMIC_GROUP:
            yield from _text(value, choice)
        elif code is codes.BRANCH:
            yield from _text(value[1][min(choice, len(value[1]) - 1)], choice)
