"""The state of a whole run: RUNNING while a process works on it, then the state given by its owner or its parts.

The *owner* of a run is a process that runs all its parts and reports how it ended (`flows.experiment`, a run from the
Prefect UI).  Without an owner, parts are started one after the other (``dvc repro``, a stage by hand).
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from pipeline_lib.tracking.processes import is_gone

TAG_PROCESS = "symposium.process"
"""Of every run: the process that works, or worked, on it."""
TAG_OWNED = "symposium.conducted"
"""Of a parent: whether that process is its owner; MLflow stores this name."""


def is_running(process: str) -> bool:
    """Return whether a process is named and not known to have ended."""
    return bool(process) and not is_gone(process)


def is_owned(tags: Mapping[str, str]) -> bool:
    """Return whether a parent has an owner, by its tags."""
    return tags.get(TAG_OWNED) == "True"


def state_of_whole(tags: Mapping[str, str], parts: Set[str]) -> str:
    """Return the state of a parent run without a reported end: RUNNING, FINISHED, FAILED or KILLED.

    Args:
        tags: the parent's tags.
        parts: states of its parts, the last attempt at each.
    """
    if "RUNNING" in parts or is_running(tags.get(TAG_PROCESS, "")):
        return "RUNNING"
    if is_owned(tags) or not parts:  # its process has ended without a report
        return "KILLED"
    return next((state for state in ("FAILED", "KILLED") if state in parts), "FINISHED")
