"""The common interface of all backends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from pipeline_lib.sandbox.jobs import Verdict
from pipeline_lib.sandbox.tests_source import Planned


class SandboxUnavailable(RuntimeError):
    """The sandbox cannot run here with these settings; the message says what is missing and what to do."""


class Backend(Protocol):
    """Runs jobs, on this machine or elsewhere."""

    name: str
    level: str

    def execute(self, jobs: Sequence[Planned]) -> Iterator[Verdict]:
        """Yield one verdict per job, in any order; no two jobs have the same id."""
        ...

    def health(self) -> dict[str, Any]:
        """Return facts about the backend: slots, queue, restarts, isolation level."""
        ...

    def close(self) -> None:
        """Free all resources; a second call does nothing."""
        ...
