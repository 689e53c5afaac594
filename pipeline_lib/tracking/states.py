"""Which state a whole run is in: what its conductor says, as long as one can be believed, else what its parts say.

A *conductor* is the process that brings the whole run to its end and says how it ended (`flows.experiment`, a run from
the Prefect UI).  A *starter* starts one part after the other without saying anything (``dvc repro``).
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from pipeline_lib.tracking.processes import is_gone

TAG_PROCESS = "symposium.process"
TAG_CONDUCTOR, TAG_STARTER, TAG_ENDED = "symposium.conductor", "symposium.starter", "symposium.ended"


def state_of_whole(tags: Mapping[str, str], parts: Set[str]) -> str:
    """Return the state of a parent run: RUNNING, FINISHED, FAILED or KILLED.

    Args:
        tags: the parent's tags.
        parts: states of its parts, the last attempt at each.
    """
    conductor, starter, ended = (tags.get(name, "") for name in (TAG_CONDUCTOR, TAG_STARTER, TAG_ENDED))
    if ended:
        return ended
    if "RUNNING" in parts or any(process and not is_gone(process) for process in (conductor, starter)):
        return "RUNNING"
    if conductor:
        return "KILLED"  # it is gone and never said how it ended
    if not parts:  # who opened it is about to open the first part, or was killed before that
        return "KILLED" if is_gone(tags.get(TAG_PROCESS, "")) else "RUNNING"
    return next((state for state in ("FAILED", "KILLED") if state in parts), "FINISHED")
