"""Cuts a text into sentences.

A sentence ends with ``.``, ``!`` or ``?`` (and closing quotes or brackets) before white space, unless a short form such
as "Dr." ends there, or an initial other than "I".  The rest of the text after the last mark is a sentence too,
an incomplete one.
"""

from __future__ import annotations

import re

_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
_SHORT_FORM = re.compile(r"(?:\b(?i:mr|mrs|ms|dr|prof|e\.g|i\.e|etc|vs|fig|eq|cf|al|approx)|\b[A-Z])\.$")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, without white space around them; empty ones are left out."""
    if _END.search(text) is None:
        return [text.strip()] if text.strip() else []
    found: list[str] = []
    start = 0
    for end in _END.finditer(text):
        sentence = text[start : end.start()]
        if _ends_short(sentence):
            continue
        found.append(text[start : end.end()].strip())
        start = end.end()
    found.append(text[start:].strip())
    return [sentence for sentence in found if sentence]


def is_complete(sentence: str) -> bool:
    """Return whether a sentence begins with a capital letter or a digit and ends with a mark."""
    ends = sentence.rstrip("\"')]")
    start = sentence.lstrip("\"'([")[:1]
    return ends[-1:] in (".", "!", "?") and (start.isupper() or start.isdigit())


def _ends_short(sentence: str) -> bool:
    found = _SHORT_FORM.search(sentence[-12:])
    return found is not None and found[0] != "I."
