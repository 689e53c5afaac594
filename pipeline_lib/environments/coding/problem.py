"""The data of a coding problem, the same for every dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline_lib.problems.content import normalised_code, normalised_text
from pipeline_lib.storage import digest

AGENTS = {"pair": ("helper", "main"), "single": ("single",)}
"""The roles of a team, in the order in which their code is put together."""


@dataclass(frozen=True, slots=True)
class CodingProblem:
    """One dataset item that a team solves by writing Python functions."""

    id: str  #: unique within its source, for example ``generated/even-square-max-17`` or ``HumanEval/0``
    source: str  #: where it comes from: ``generated``, ``humaneval``, ``coophumaneval``, ``mbpp``
    family: str  #: cluster of related problems (the combination of concepts for generated ones, else the id)
    level: int  #: difficulty, 1 is easiest
    entry_point: str  #: name of the function that the tests call
    observations: Mapping[str, str]  #: by role: ``helper``, ``main`` and ``single``
    prelude: str  #: trusted source that belongs to the problem (imports and functions its prompt defines)
    visible_tests: str  #: source of ``def check(candidate)`` whose results agents may be shown as feedback
    hidden_tests: str  #: source of ``def check(candidate)`` that gives reward and evaluation
    #: A known solution as source, keyed by function name (``aux`` where there is one, and the entry point).
    reference: Mapping[str, str] = field(default_factory=dict)

    @property
    def content_hash(self) -> str:
        """Return the SHA-256 of the normalised observations and prelude."""
        asked = {role: normalised_text(text) for role, text in self.observations.items()}
        return digest([asked, normalised_code(self.prelude)])

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CodingProblem:
        return cls(**value)
