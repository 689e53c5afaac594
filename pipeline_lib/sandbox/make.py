"""Create an executor from a settings section, without importing the settings model."""

from __future__ import annotations

from typing import Any, Protocol

from pipeline_lib.sandbox.executor import Executor
from pipeline_lib.sandbox.jobs import Limits


class Section(Protocol):
    """A ``sandbox`` section of the settings: its other keys are options of the backend."""

    @property
    def kind(self) -> str:
        """Return the backend."""
        ...

    def model_dump(self) -> dict[str, Any]:
        """Return all keys and values."""
        ...


def make_executor(section: Section) -> Executor:
    """Start the sandbox that a ``sandbox`` section describes.

    Raises:
        ValueError: a value is not accepted.
        SandboxUnavailable: it cannot run here; the message says why and what to do.
    """
    options = section.model_dump()
    limits = Limits(**options.pop("limits"))
    del options["infra_error_share"]  # used by the code that receives the verdicts
    return Executor(options.pop("kind"), options.pop("slots"), limits, **options)
