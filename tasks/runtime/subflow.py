"""A stage's flow as a subflow of the whole run, although it runs in a process of its own."""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

from prefect import Flow, get_client
from prefect.context import TagsContext
from prefect.exceptions import ObjectNotFound
from prefect.flow_engine import run_flow
from prefect.states import Pending

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
            tags = TagsContext.get().current_tags
            run = client.create_flow_run(
                named, parameters=parameters, name=name, tags=tags, parent_task_run_id=parent, state=Pending()
            )
    if parent:
        run_flow(named, flow_run=run, parameters=parameters)
    else:
        named(**parameters)
