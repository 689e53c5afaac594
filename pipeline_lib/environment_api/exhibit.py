"""What an environment gives for display: the joint result of a joint action, and the parts of an observation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the joint result.

    Attributes:
        what: the question, for example a test's source.
        passed: whether it succeeded.
        answer: the actual answer, one line; empty if there is nothing to add.
    """

    what: str
    passed: bool
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Exhibit:
    """The joint result and its checks.

    Attributes:
        text: the result.
        language: its language, as syntax highlighters name it; empty for prose.
        checks: in the order in which they were made; empty if the environment has no checks, or nothing was run.
    """

    text: str
    language: str = ""
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an agent's observation.

    Attributes:
        source: where it comes from, in a word or two; empty for words that only join the others.
        text: the part, with its line ends; all parts joined are the observation.
    """

    source: str
    text: str
