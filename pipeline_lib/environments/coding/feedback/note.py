"""One piece of feedback; untrusted text gets into it through `printable` and `environment_kit.programs.one_line`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """One piece of feedback.

    Attributes:
        source: where it comes from, as in ``environment.feedback``.
        text: what the agent reads; one line, except for the code of an expert or a critic.
    """

    source: str
    text: str


def printable(code: str) -> str:
    """Return untrusted code with its lines, without what is not printable and without empty lines around it."""
    lines = ("".join(letter for letter in line.expandtabs(4) if letter.isprintable()) for line in code.splitlines())
    return "\n".join(lines).strip("\n").rstrip()
