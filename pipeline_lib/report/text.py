"""Formatting of numbers and sentences.

Code in colours, as pieces of text that each page escapes by itself.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

POWER = re.compile(r"(\d(?:\.\d+)?)e([+−-]?)0*(\d+)")
#: Only after a comparison sign: a digest may look like a power of ten.
P_VALUE = re.compile(r"(?<=[<=] )" + POWER.pattern)


def cell(value: Any) -> str:
    """Return a table cell: a dash for nothing, four significant digits, thousands set apart."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value != 0 and abs(value) < 1e-4:
            return POWER.sub(_power, typeset(f"{value:.1e}"))
        return typeset(f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}")
    return str(value)


def typeset(text: str) -> str:
    """Give a sentence real minus signs and powers of ten, and keep numbers and their units on one line."""
    text = P_VALUE.sub(_power, text)
    text = re.sub(r"(?<![\w-])-(?=\d)", "−", text)
    return re.sub(r"(?<=\d) (?=%|points)|(?<=\bp) (?=[<=])|(?<=[<=]) (?=\d)", "\N{NO-BREAK SPACE}", text)


def _power(match: re.Match[str]) -> str:
    digits = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
    mantissa, sign, exponent = match.groups()
    power = f"10{(sign.replace('+', '').replace('−', '-') + exponent).translate(digits)}"
    return power if mantissa == "1" else f"{mantissa}·{power}"


def count(number: int, noun: str) -> str:
    """Return a number of things, for example ``1 run`` or ``3 runs``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def sentence_only(text: str) -> str:
    """Drop the verdict word from a sentence, for places that show the word by itself."""
    rest = re.sub(r"^[A-Z]{5,}: ", "", text)
    return f"{rest[:1].upper()}{rest[1:]}"


def harmless(text: str) -> str:
    """Return untrusted text without control characters, which a terminal would obey; line ends and tabs stay."""
    return "".join(
        letter if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn") else "�"
        for letter in text
    )


#: Style sheet of the classes that `coloured` names, for elements inside of one of the class ``code``.
STYLE = HtmlFormatter(style="friendly").get_style_defs(".code")


def coloured(text: str, language: str) -> list[tuple[str, str]]:
    """Return untrusted text as pieces, each with the class of its colour; empty if it has none.

    Put together, the pieces are this text without its control characters.  ``language`` names a Pygments lexer; an
    unknown or empty name gives a single piece.
    """
    text = harmless(text)
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return [("", text)]
    pieces: list[tuple[str, str]] = []
    for kind, piece in lexer.get_tokens(text):
        while kind not in STANDARD_TYPES:
            kind = kind.parent
        colour = STANDARD_TYPES[kind]
        if pieces and pieces[-1][0] == colour:
            piece = pieces.pop()[1] + piece
        pieces.append((colour, piece))
    return pieces
