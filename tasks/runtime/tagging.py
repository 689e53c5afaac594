"""Tags of flow runs in Prefect; they identify a run's stages, and runs whose process has ended."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from prefect import tags
from prefect.context import TagsContext

from pipeline_lib.tracking.processes import own_process


def tagged(run: str) -> AbstractContextManager[Any]:
    """Tag flow runs that start in the ``with`` block with the name of the whole run and of this process."""
    return tags(f"run:{run}", f"process:{own_process()}")


def untagged() -> AbstractContextManager[Any]:
    """Remove these tags from task runs that start in the ``with`` block.

    Prefect asks the server for the limits of a task run's tags before it starts; with SQLite this request often
    collides with a write and is repeated two seconds later.
    """
    return TagsContext(current_tags=set())
