"""What texts of agents say: facts that a message tells, and an answer with its support, exactly.

An answer is the labels of the facts that prove it, the word ``answer`` and the answer, with semicolons between them:
``anna boss carl; carl home rome; answer rome``.  Each of these statements is *supported* if it is a fact that the asker
has read, in its own documents or in a message; *unread* if it is a fact that it has not read; *contradicted* if the
documents tell another value; else *invented*.

A text whose last statement is ``find anna`` looks anna up.
"""

from __future__ import annotations

import re
import string
from collections.abc import Set
from dataclasses import dataclass

from pipeline_lib.environment_kit.dialogue import words_of
from pipeline_lib.environments.documents.problem import DocumentsProblem, Fact, key_of

#: Words with which a statement begins that is more than the name of a fact.
VERBS = ("answer", "find")

_ANSWER = re.compile(r"\s*answer\b[\s:]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the asker answered."""

    text: str  #: the answer alone
    right: bool  #: it is the right one
    needed: int  #: number of facts that prove the right answer
    proving: int  #: number of supported statements that are among these
    either: int  #: number of facts and statements that are needed or named
    supported: int  #: number of different supported statements
    unread: int  #: the same of unread ones
    contradicted: int  #: the same of contradicted ones
    invented: int  #: the same of invented ones

    @property
    def named(self) -> int:
        return self.supported + self.unread + self.contradicted + self.invented

    @property
    def support(self) -> float:
        """Return the share of the proving statements among all that are named or needed (Jaccard)."""
        return self.proving / self.either

    @property
    def made_up(self) -> float:
        """Return the share of the statements that the asker did not read; 0 without statements."""
        return (self.named - self.supported) / max(1, self.named)


def read_answer(problem: DocumentsProblem, text: str, read: Set[int]) -> Answer | None:
    """Return the answer in a text of the asker, who has ``read`` these facts; None if it is a message."""
    statements = text.split(";")
    given = next((statement for statement in statements if _ANSWER.match(statement)), None)
    if given is None:
        return None
    statements.remove(given)
    given = _ANSWER.sub("", given, count=1)
    labels = {words_of(fact.label): number for number, fact in enumerate(problem.facts)}
    said = {words for statement in statements if (words := words_of(statement))}
    known = {labels[words] for words in said if words in labels}
    keys = problem.keys()
    wrong = [words for words in said if words not in labels]
    contradicted = sum(len(words.split()) == 3 and key_of(words) in keys for words in wrong)
    return Answer(
        text=given.strip(),
        right=normalised_answer(given) == normalised_answer(problem.answer),
        needed=len(problem.support),
        proving=len(known & read & set(problem.support)),
        either=len(known | set(problem.support)) + len(wrong),
        supported=len(known & read),
        unread=len(known - read),
        contradicted=contradicted,
        invented=len(wrong) - contradicted,
    )


def normalised_answer(text: str) -> str:
    """Return an answer without marks, articles, capitals and white space, as HotpotQA's evaluation compares them."""
    plain = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())


def told(problem: DocumentsProblem, message: str) -> set[int]:
    """Return the numbers of the facts whose label or sentence stands in a message.

    Of published documents a name within a longer one does not count: *New York 1* does not tell *York 1*.
    """
    names: dict[str, set[int]] = {}
    for number, fact in enumerate(problem.facts):
        for name in (_apart(fact.label), _apart(fact.text)):
            names.setdefault(name, set()).add(number)
    said, found = _apart(message), set()
    for name in sorted(names, key=len, reverse=True):
        if name in said:
            found |= names[name]
            said = said if problem.path else said.replace(name, " ; ")
    return found


def looked_up(text: str) -> str:
    """Return the words that a text looks up: those after ``find`` in its last statement; empty if it does not.

    Statements end with a semicolon or a line; one without words is none.
    """
    statements = [words for statement in re.split(r"[;\n]", text) if (words := words_of(statement))]
    verb, _, name = (statements or [""])[-1].partition(" ")
    return name if verb == "find" else ""


def is_about(fact: Fact, name: str) -> bool:
    """Return whether the words of a name stand, in this order, in a fact's sentence or label."""
    return any(_apart(name) in _apart(text) for text in (fact.text, fact.label))


def _apart(text: str) -> str:
    """Return the words of a text, each with spaces of its own on both sides."""
    return f" {words_of(text).replace(' ', '  ')} "


def is_useful(problem: DocumentsProblem, message: str, read: Set[int], asks: bool) -> bool:
    """Return whether a message tells a fact that the asker needs and has not read, or asks for it.

    Args:
        problem: the question.
        message: what an agent says.
        read: facts that the asker has read before.
        asks: the asker says it; its questions can be judged in generated worlds only, so elsewhere all count as useful.
    """
    missing = set(problem.support) - read
    if not asks:
        return bool(told(problem, message) & missing)
    said = f" {words_of(message)} "
    wanted = [f" {who} {relation} " for (who, relation), number in problem.keys().items() if number in missing]
    return not problem.path or any(key in said for key in wanted)
