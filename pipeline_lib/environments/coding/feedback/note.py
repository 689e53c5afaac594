"""One piece of feedback, and the only two ways in which untrusted text gets into it."""

from __future__ import annotations

from dataclasses import dataclass

#: Longest text quoted from a test, an error or a program, in characters; small models have short contexts.
MAX_QUOTE = 100


@dataclass(frozen=True, slots=True)
class Note:
    """One piece of feedback.

    Attributes:
        source: where it comes from, as in ``environment.feedback``.
        text: what the agent reads; one line, except for the code of an expert or a critic.
    """

    source: str
    text: str


def one_line(text: str) -> str:
    """Return untrusted text as one line of printable characters, cut to `MAX_QUOTE`."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text[: 4 * MAX_QUOTE]).split())
    return line if len(line) <= MAX_QUOTE else line[: MAX_QUOTE - 3] + "..."


def printable(code: str) -> str:
    """Return untrusted code with its lines, without what is not printable and without empty lines around it."""
    lines = ("".join(letter for letter in line.expandtabs(4) if letter.isprintable()) for line in code.splitlines())
    return "\n".join(lines).strip("\n").rstrip()
