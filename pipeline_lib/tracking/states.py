"""Which state a whole run is in: RUNNING while somebody is at work on it, then what its conductor or its parts say.

A *conductor* is the process that brings the whole run to its end and says how it ended (`flows.experiment`, a run from
the Prefect UI).  Others start one part after the other without saying anything (``dvc repro``, a stage by hand).
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from pipeline_lib.tracking.processes import is_gone

TAG_PROCESS = "symposium.process"
"""Of every run: the process that is, or was, at work on it."""
TAG_CONDUCTED = "symposium.conducted"
"""Of a parent: whether that process is its conductor."""


def is_at_work(process: str) -> bool:
    """Return whether a process is named and not known to be gone."""
    return bool(process) and not is_gone(process)


def is_conducted(tags: Mapping[str, str]) -> bool:
    """Return whether a parent has a conductor, by its tags."""
    return tags.get(TAG_CONDUCTED) == "True"


def state_of_whole(tags: Mapping[str, str], parts: Set[str]) -> str:
    """Return the state of a parent run whose end nobody has told: RUNNING, FINISHED, FAILED or KILLED.

    Args:
        tags: the parent's tags.
        parts: states of its parts, the last attempt at each.
    """
    if "RUNNING" in parts or is_at_work(tags.get(TAG_PROCESS, "")):
        return "RUNNING"
    if is_conducted(tags) or not parts:  # it is gone and never said how it ended
        return "KILLED"
    return next((state for state in ("FAILED", "KILLED") if state in parts), "FINISHED")
