"""The data of a writing problem, generated or published."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_lib.problems.content import normalised_text
from pipeline_lib.storage import digest

#: A kind of fact and its values.
Fact = tuple[str, tuple[str, ...]]

#: The writers of a pair, and the one who writes both texts.
PAIR, SINGLE = ("first", "second"), "single"
AGENTS = {"pair": PAIR, "single": (SINGLE,)}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the lengths of the texts."""

    first: tuple[int, int]  #: least and greatest number of words of the first text
    second: tuple[int, int]  #: the same for the second
    ratio: tuple[float, float]  #: least and greatest number of words of the second for one of the first


@dataclass(frozen=True, slots=True)
class WritingProblem:
    """One text to be summarised, or to be introduced."""

    id: str  #: unique within its source
    source: str  #: where it comes from: ``world``, ``tldr``, ``arxiv``
    family: str  #: cluster of related problems
    task: str  #: ``summary`` or ``introduction``
    observations: Mapping[str, str]  #: by role: ``first``, ``second`` and ``single``
    text: str  #: the whole source, which no agent of a pair may have seen completely
    limits: Limits  #: limits of the lengths of the texts
    world: str = ""  #: name of the world that the text was generated in, or empty
    hero: str = ""  #: who or what a generated text is about
    facts: tuple[Fact, ...] = ()  #: the facts of a generated text
    parts: tuple[tuple[int, ...], ...] = ()  #: numbers of the facts in the observation of each writer of a pair
    reference: tuple[str, ...] = ()  #: two texts that do the task, or none

    @property
    def content_hash(self) -> str:
        """Return the SHA-256 of the task and of the normalised observation of each role."""
        return digest([self.task, {role: normalised_text(text) for role, text in self.observations.items()}])

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> WritingProblem:
        row = dict(value)
        row["limits"] = Limits(**{name: tuple(pair) for name, pair in row["limits"].items()})
        row["facts"] = tuple((kind, tuple(values)) for kind, values in row["facts"])
        row["parts"] = tuple(map(tuple, row["parts"]))
        row["reference"] = tuple(row["reference"])
        return cls(**row)
