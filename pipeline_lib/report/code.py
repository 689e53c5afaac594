"""Code in colours, as pieces of text that each page escapes by itself."""

from __future__ import annotations

from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

from pipeline_lib.report.text import harmless

#: Style sheet of the classes that `coloured` names, for elements inside of one of the class ``code``.
STYLE = HtmlFormatter(style="friendly").get_style_defs(".code")


def coloured(text: str, language: str) -> list[tuple[str, str]]:
    """Return untrusted text as pieces, each with the class of its colour; empty if it has none.

    Args:
        text: put together, the pieces are this text without its control characters.
        language: name of a Pygments lexer; an unknown or empty name gives a single piece.
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
