"""Questions over documents that are dealt out to agents, and generated worlds with questions of one to three hops.

A document of a generated world says some facts about one entity: a person, a firm, a city, or an event (a fair).  A
question follows relations from an entity: ``anna boss home`` is the home of the boss of anna.  Every relation has
exactly one value, so every statement of the form *who relation value* is true, false, or about something that no
document tells.

No agent can answer from its own documents: a question of one hop is about a fact that the asker does not hold, and of
further hops no agent holds all.  The splits have different families, which are the facts that prove the answer.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline_lib.problems.content import normalised_text
from pipeline_lib.problems.splitting import FAMILY_SHARES, draw_distinct, split_of
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environments.documents.settings import GeneratedWorlds


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


ENTITIES = {
    "person": ("anna", "bert", "carl", "dora", "emil", "fred", "gina", "hugo"),
    "firm": ("acme", "bolt", "cord", "dyne", "echo", "flux", "grid", "halo"),
    "city": ("oslo", "rome", "lima", "bonn", "kiev", "doha", "baku", "nice"),
    "event": ("jazz", "wine", "book", "film", "boat", "moth", "rose", "snow"),
    "month": ("may", "june", "july", "march", "april", "august", "winter", "spring"),
}

#: Of each kind of entity, its relations and the kind of their value.
RELATIONS = {
    "person": {"boss": "person", "firm": "firm", "home": "city"},
    "firm": {"head": "person", "seat": "city", "show": "event"},
    "city": {"mayor": "person", "fair": "event", "twin": "city"},
    "event": {"month": "month", "host": "person", "place": "city"},
}

KINDS = {name: kind for kind, names in ENTITIES.items() for name in names}


def generate(settings: GeneratedWorlds) -> dict[str, list[DocumentsProblem]]:
    """Return the problems of all splits; the same settings give the same problems.

    Raises:
        ValueError: a split is larger than the number of different questions that can be found for it.
    """
    rng = random.Random(digest(["documents", settings.seed]))
    return {split: _draw_split(split, getattr(settings.sizes, split), settings, rng) for split in FAMILY_SHARES}


def _draw_split(split: str, size: int, settings: GeneratedWorlds, rng: random.Random) -> list[DocumentsProblem]:
    def one(number: int) -> DocumentsProblem | None:
        problem = draw_problem(settings, settings.hops[number % len(settings.hops)], rng)
        return problem if split_of(problem.family, settings.seed, settings.apart_from) == split else None

    return draw_distinct(split, size, one, "ask for fewer")


def draw_problem(settings: GeneratedWorlds, hops: int, rng: random.Random) -> DocumentsProblem:
    """Return a question of so many hops, with the documents of all agents."""
    chain = _draw_chain(hops, rng)
    support = [f"{who} {relation} {value}" for who, relation, value in chain]
    subjects = [who for who, _, _ in chain]
    others = [name for name, kind in KINDS.items() if kind in RELATIONS and name not in subjects]
    holders = _deal(hops, settings.agents, settings.documents, rng)
    free = [agent for agent in range(settings.agents) for _ in range(settings.documents - holders.count(agent))]
    dealt = [*zip(subjects, holders, strict=True), *zip(rng.sample(others, len(free)), free, strict=True)]
    rng.shuffle(dealt)
    facts = []
    for title, holder in dealt:
        needed = [(relation, value) for who, relation, value in chain if who == title]
        kinds = RELATIONS[KINDS[title]]
        further = rng.sample([name for name in kinds if name not in dict(needed)], settings.facts - len(needed))
        told = needed + [(name, _another(kinds[name], title, rng)) for name in further]
        rng.shuffle(told)
        for relation, value in told:
            text = f"{title} {relation} {value}"
            facts.append(Fact(text, text, title, holder))
    path = (chain[0][0], *(relation for _, relation, _ in chain))
    question = " ".join(path)
    return DocumentsProblem(
        id=f"world/{digest([question, [[fact.text, fact.holder] for fact in facts]])[:12]}",
        source="world",
        family="; ".join(support),
        question=f"{question}?",
        answer=chain[-1][2],
        agents=settings.agents,
        facts=tuple(facts),
        support=tuple([fact.label for fact in facts].index(label) for label in support),
        path=path,
        plain=settings.prompt == "plain",
    )


def _draw_chain(hops: int, rng: random.Random) -> list[tuple[str, str, str]]:
    """Return facts, each about the value of the one before; no entity occurs twice."""
    while True:
        who = rng.choice([name for name, kind in KINDS.items() if kind in RELATIONS])
        chain: list[tuple[str, str, str]] = []
        seen = {who}
        while len(chain) < hops and KINDS[who] in RELATIONS:
            relation, kind = rng.choice([*RELATIONS[KINDS[who]].items()])
            value = _another(kind, who, rng)
            chain.append((who, relation, value))
            seen.add(value)
            who = value
        if len(chain) == hops and len(seen) == hops + 1:
            return chain


def _another(kind: str, who: str, rng: random.Random) -> str:
    return rng.choice([name for name in ENTITIES[kind] if name != who])


def _deal(hops: int, agents: int, documents: int, rng: random.Random) -> list[int]:
    """Return which agent holds each fact of the support: never one agent all of it, nor the asker a single one."""
    while True:
        holders = [rng.randrange(agents) for _ in range(hops)]
        alone = holders == [0] if hops == 1 else len(set(holders)) == 1
        if not alone and all(holders.count(agent) <= documents for agent in holders):
            return holders
