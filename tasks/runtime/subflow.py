"""A stage's flow as a subflow of the whole run, although it runs in a process of its own; and the tags of flow runs.

Tags in Prefect identify a run's stages, and runs whose process has ended.
"""

import os
from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

from prefect import Flow, get_client, tags
from prefect.context import TagsContext
from prefect.exceptions import ObjectNotFound
from prefect.flow_engine import run_flow
from prefect.states import Pending

from pipeline_lib.tracking.processes import own_process

PARENT_TASK = "SYMPOSIUM_TASK_RUN"
"""Environment variable of stages: the task run that stands for the stage in the flow of the whole run."""


def run_as_subflow(flow: Flow[..., Any], name: str, parameters: dict[str, Any]) -> None:
    """Run a flow in this process, below the task run in `PARENT_TASK` if the server has it.

    The server receives a task run some time after its start; a stage that starts before runs as a separate flow.
    """
    named = flow.with_options(flow_run_name=name)
    with get_client(sync_client=True) as client:
        try:
            parent = client.read_task_run(UUID(os.environ[PARENT_TASK])).id
        except (KeyError, ObjectNotFound):
            parent = None
        if parent:
            run = client.create_flow_run(
                named,
                parameters=parameters,
                name=name,
                tags=TagsContext.get().current_tags,
                parent_task_run_id=parent,
                state=Pending(),
            )
    if parent:
        run_flow(named, flow_run=run, parameters=parameters)
    else:
        named(**parameters)


def tagged(run: str) -> AbstractContextManager[Any]:
    """Tag flow runs that start in the ``with`` block with the name of the whole run and of this process."""
    return tags(f"run:{run}", f"process:{own_process()}")


def untagged() -> AbstractContextManager[Any]:
    """Remove these tags from task runs that start in the ``with`` block.

    Prefect asks the server for the limits of a task run's tags before it starts; with SQLite this request often
    collides with a write and is repeated two seconds later.
    """
    return TagsContext(current_tags=set())
