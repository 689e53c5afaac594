"""What a joint action amounts to, for people to read; nothing is learned or counted from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the joint result was asked.

    Attributes:
        what: the question, for example a test's source.
        passed: it held.
        answer: what came instead, a line; empty where there is nothing to add.
    """

    what: str
    passed: bool
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Exhibit:
    """The joint result, and what it was asked.

    Attributes:
        text: the result.
        language: what it is written in, as syntax highlighters name it; empty for prose.
        checks: in the order in which they were made; none where the environment has no such thing, or nothing was run.
    """

    text: str
    language: str = ""
    checks: tuple[Check, ...] = ()
