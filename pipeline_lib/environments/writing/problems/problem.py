"""The data of a writing problem, generated or published."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline_lib.environments.writing.problems.world import Fact
from pipeline_lib.problems.content import normalised_text
from pipeline_lib.storage import digest

#: The writers of a pair, and the one who writes both texts.
PAIR, SINGLE = ("first", "second"), "single"
AGENTS = {"pair": PAIR, "single": (SINGLE,)}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the lengths of the texts.

    Attributes:
        first: least and greatest number of words of the first text.
        second: the same for the second.
        ratio: least and greatest number of words of the second for one of the first.
    """

    first: tuple[int, int]
    second: tuple[int, int]
    ratio: tuple[float, float]


@dataclass(frozen=True, slots=True)
class WritingProblem:
    """One text to be summarised, or to be introduced.

    Attributes:
        id: unique within its source.
        source: where it comes from: ``world``, ``tldr``, ``arxiv``.
        family: cluster of related problems.
        task: ``summary`` or ``introduction``.
        observations: by role: ``first``, ``second`` and ``single``.
        text: the whole source, which no agent of a pair may have seen completely.
        limits: limits of the lengths of the texts.
        world: name of the world that the text was generated in, or empty.
        hero: who or what a generated text is about.
        facts: the facts of a generated text.
        parts: numbers of the facts in the observation of each writer of a pair.
        reference: two texts that do the task, or none.
    """

    id: str
    source: str
    family: str
    task: str
    observations: Mapping[str, str]
    text: str
    limits: Limits
    world: str = ""
    hero: str = ""
    facts: tuple[Fact, ...] = ()
    parts: tuple[tuple[int, ...], ...] = ()
    reference: tuple[str, ...] = ()

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
