"""Write operations for the tracking server, as plain data.

Every `Operation` is self-contained and idempotent: it names its run by an identity, not by a server's id.  So it can
wait in a file while the server is unavailable and be sent by another process.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

MetricValue = tuple[str, float, int, int]
"""Name, finite value, time in milliseconds since 1970, step."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """The identity of a run, the same in every process that contributes to it."""

    experiment: str  #: name of the MLflow experiment
    run: str  #: name of the whole run (the parent)
    settings: str  #: digest of the whole run's settings; the same name with other settings is another run
    part: str  #: identity of a child within the parent, for example ``train/seed=0/1f0c...``; empty for the parent
    name: str  #: the displayed name

    @property
    def parent(self) -> RunKey:
        """The whole run; the key itself if this is not a child."""
        return dataclasses.replace(self, part="", name=self.run)


@dataclass(frozen=True, slots=True)
class Operation:
    """One write operation."""

    kind: str  #: name of a method of `recorder.Recorder`
    key: RunKey  #: the run it belongs to
    fields: dict[str, Any] = field(default_factory=dict)  #: keyword arguments of that method, JSON-like

    def to_line(self) -> bytes:
        """Return the operation as a line of JSON."""
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Operation:
        """Rebuild an operation from `to_line`; raises ValueError, TypeError or KeyError for other input."""
        value = json.loads(line)
        return cls(kind=value["kind"], key=RunKey(**value["key"]), fields=dict(value["fields"]))


def merged(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Join neighbouring metric operations of one run, so that they take one request; order is kept."""
    for (kind, key), group in groupby(operations, lambda operation: (operation.kind, operation.key)):
        if kind == "metrics":
            values = [value for operation in group for value in operation.fields["values"]]
            yield Operation(kind, key, {"values": values})
        else:
            yield from group
