"""A question over documents that are dealt out to agents, and everything that is known about it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_lib.problems.content import normalised_text
from pipeline_lib.storage import digest

#: The agents of a team; the first one alone is told the question, and answers it.
AGENTS = ("asker", "first", "second", "third")
ASKER, SINGLE = AGENTS[0], "single"

#: A pair of words that begin a fact of a generated world: who, and a relation.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Fact:
    """One sentence of a document."""

    #: How a team names it, as support of an answer: the fact itself in generated worlds, such as ``anna boss carl``; of
    #: published documents the title and the number of the sentence, such as ``Eiffel Tower 2``.
    label: str
    text: str  #: the sentence
    title: str  #: of its document
    holder: int  #: number of the agent that the document was dealt to


@dataclass(frozen=True, slots=True)
class DocumentsProblem:
    """A question, its answer, and the facts of all documents."""

    id: str  #: unique within its source
    source: str  #: where it comes from: ``world``, ``hotpotqa``, ``2wikimultihop``
    family: str  #: cluster of related problems
    question: str  #: as the asker is told it
    answer: str  #: the right one
    agents: int  #: number of agents with documents
    facts: tuple[Fact, ...]  #: of all documents, those of one document in a row
    #: Numbers of the facts that together prove the answer; in a world in the order of the hops.
    support: tuple[int, ...]
    #: Of a question about a world: who it begins with, and the relations to follow; else empty.
    path: tuple[str, ...] = ()
    plain: bool = False  #: the agents are prompted in plain English

    @property
    def content_hash(self) -> str:
        """Return the SHA-256 of the normalised question and of all documents, whoever has them."""
        return digest([normalised_text(self.question), sorted({normalised_text(fact.text) for fact in self.facts})])

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DocumentsProblem:
        row = dict(value)
        row["facts"] = tuple(Fact(**fact) for fact in row["facts"])
        row |= {name: tuple(row[name]) for name in ("support", "path")}
        return cls(**row)

    def held(self, agent: int) -> list[int]:
        """Return the numbers of the facts in the documents of an agent."""
        return [number for number, fact in enumerate(self.facts) if fact.holder == agent]

    def keys(self) -> dict[Key, int]:
        """Return the facts of a generated world by their first two words; nothing for published documents."""
        if not self.path:
            return {}
        return {key_of(fact.label): number for number, fact in enumerate(self.facts)}

    def documents(self, numbers: Collection[int]) -> list[list[Fact]]:
        """Return the documents that some facts stand in, each as those of its facts."""
        facts = [self.facts[number] for number in sorted(numbers)]
        return [list(own) for _, own in itertools.groupby(facts, key=lambda fact: fact.title)]


def key_of(statement: str) -> Key:
    """Return who a statement of a world is about, and its relation."""
    who, relation = statement.split()[:2]
    return who, relation
