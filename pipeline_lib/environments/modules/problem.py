"""The data of a problem whose solution has one part per agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pipeline_lib.problems.content import normalised_text
from pipeline_lib.storage import digest

#: The role of the agent that writes all parts.
SINGLE = "single"

#: The package that the files of a program are in.
PACKAGE = "app"


@dataclass(frozen=True, slots=True)
class ModulesProblem:
    """One program in several parts."""

    id: str  #: unique within its source, for example ``module_graphs/2/even.squared/...``
    source: str  #: where it comes from, the kind of the ``problems`` section
    family: str  #: cluster of related problems
    level: int  #: difficulty, 1 is easiest
    #: How the parts make a program: files of a ``package``, or methods of a ``class``.
    layout: Literal["package", "class"]
    entry_point: str  #: name of what the tests call
    #: Names of the parts; a part comes after those that it builds on, and the last is what the tests call.
    parts: tuple[str, ...]
    needs: Mapping[str, tuple[str, ...]]  #: for each part, the parts that it builds on
    defines: Mapping[str, tuple[str, ...]]  #: for each part, the functions or methods that it must define
    observations: Mapping[str, str]  #: by part, and for `SINGLE`
    unit_tests: Mapping[str, str]  #: by part, source of the tests of this part among right ones
    system_tests: str  #: source of the tests of the whole program
    #: Known solutions, each a source by part.  Parts of different solutions need not fit together.
    references: tuple[Mapping[str, str], ...]
    prelude: str = ""  #: trusted source that belongs to the problem: of a class, the frame that methods are added to

    @property
    def content_hash(self) -> str:
        return digest({role: normalised_text(text) for role, text in self.observations.items()})

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ModulesProblem:
        """Return the problem of a JSON object, as `to_json` makes it.

        Raises:
            ValueError: it has no parts, or something is said of some of them only.
        """
        if not (parts := value.get("parts")):
            raise ValueError("parts: there are none")
        for name in ("needs", "defines", "observations", "unit_tests"):
            for part in (*parts, SINGLE) if name == "observations" else parts:
                if part not in value.get(name, {}):
                    raise ValueError(f"{name}: {part} is missing")
        maps = {
            name: {part: tuple(names) for part, names in value.get(name, {}).items()} for name in ("needs", "defines")
        }
        tuples = {name: tuple(value.get(name, ())) for name in ("parts", "references")}
        return cls(**{**value, **tuples, **maps})
