"""What can be written to the tracking server, as plain data.

Every `Operation` is complete in itself: it names its run by an identity, not by an id that some server gave, and
applying it twice changes nothing.  So it can wait in a file while the server is away and be sent by another process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MetricValue = tuple[str, float, int, int]
"""Name, finite value, time in milliseconds since 1970, step."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """The identity of a run, the same in every process that contributes to it.

    Attributes:
        experiment: name of the MLflow experiment.
        run: name of the whole run (the parent).
        part: what distinguishes a child, for example ``train/seed=0/1f0c...``; empty for the parent itself.
        name: what people read.
    """

    experiment: str
    run: str
    part: str
    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing to write.

    Attributes:
        kind: name of a method of `ledger.Ledger`.
        key: the run it belongs to.
        fields: keyword arguments of that method, JSON-like.
    """

    kind: str
    key: RunKey
    fields: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the operation as JSON-like data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Operation:
        """Rebuild an operation from `to_json`; unknown or missing keys raise TypeError or KeyError."""
        return cls(kind=value["kind"], key=RunKey(**value["key"]), fields=dict(value["fields"]))


def merged(operations: Sequence[Operation], most: int = 1000) -> list[Operation]:
    """Join neighbouring metric operations of one run into requests of at most ``most`` values; order is kept."""
    result: list[Operation] = []
    for operation in operations:
        last = result[-1] if result else None
        values = operation.fields.get("values", [])
        if (
            last is not None
            and operation.kind == last.kind == "metrics"
            and operation.key == last.key
            and len(last.fields["values"]) + len(values) <= most
        ):
            last.fields["values"].extend(values)
        elif operation.kind == "metrics":
            result.append(Operation("metrics", operation.key, {"values": list(values)}))
        else:
            result.append(operation)
    return result
