"""Runs of flows in Prefect: a stage's flow as a subflow of the whole run, and runs whose process is gone.

A stage runs in a process of its own.  Tags identify a run's stages, and runs whose process has ended.

While a server runs, an automation marks these as crashed (`heartbeat_automation`): every run sends a heartbeat every 30
seconds, and a run without heartbeats is marked.  This also works for runs on other machines.  `mark_crashed` does it at
once for runs on this machine, also for those that were killed while no server was running.

A server that is away misses heartbeats, and marks runs that are alive; `mark_alive` takes that back.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect import Flow, get_client, tags
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import TagsContext
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectNotFound
from prefect.flow_engine import run_flow
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled, Crashed, Pending, Running, State

from pipeline_lib.tracking.processes import is_alive, is_gone, own_process
from tasks.runtime.exit_status import was_interrupted

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


_once_more = contextlib.ExitStack()


@contextlib.contextmanager
def recorded_soon() -> Iterator[None]:
    """Let Prefect try only once more to record how a flow ended whose ``with`` block is interrupted.

    Of a server that is gone it would ask for more than a minute.
    """
    try:
        yield
    except BaseException as error:
        if was_interrupted(error):  # from now on: it is recorded after the block, and then the process ends
            _once_more.enter_context(temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 1}))
        raise


AUTOMATION = "crashed-runs"
WITHIN_S = 50.0
"""Seconds without a heartbeat; they come each 30 s, and on a busy machine not on the second."""
_SILENT = "no heartbeat: its process is gone, very slow, or cut off from the server"
_LIVE = [StateType.RUNNING, StateType.CANCELLING]
_TAKEN_FOR_LOST = [StateType.CRASHED, StateType.SCHEDULED]


def mark_alive() -> list[str]:
    """Mark runs as running that count as crashed, or wait for another start, and work on this machine; return names."""
    wanted = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_TAKEN_FOR_LOST)))
    marked = []
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=wanted, sort=FlowRunSort.START_TIME_DESC):  # the newest ones
            if lives_here(run):
                client.set_flow_run_state(run.id, Running(message="a heartbeat was missed; it is alive"), force=True)
                marked.append(run.name)
    return marked


def lives_here(run: FlowRun) -> bool:
    """Return whether the process of a run is known to work, on this machine."""
    return is_alive(_process(run))


def end_process(run: FlowRun) -> None:
    """Ask the process of a run that lives here to end, by SIGTERM."""
    os.kill(int(_process(run).rsplit(":", 2)[1]), signal.SIGTERM)


def mark_crashed() -> list[str]:
    """Mark runs as crashed, or cancelled if they were to be, whose process on this machine is gone; return names."""
    wanted = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_LIVE)))
    marked = []
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=wanted):
            process = _process(run)
            if is_gone(process):
                wanted_so = run.state is not None and run.state.is_cancelling()
                gone = f"its process ({process}) is gone; run the same command again to continue"
                state: State[None] = Cancelled(message=gone) if wanted_so else Crashed(message=gone)
                client.set_flow_run_state(run.id, state, force=True)
                marked.append(run.name)
    return marked


def _process(run: FlowRun) -> str:
    return next((tag.partition(":")[2] for tag in run.tags if tag.startswith("process:")), "")


def heartbeat_automation() -> None:
    """Make sure that the server marks runs whose heartbeats stop as crashed, within a minute.

    An automation that is there stays: with it, the server would forget of which run it waits for a heartbeat, and one
    whose machine was lost a moment ago would count as running for ever.
    """
    automation = AutomationCore(
        name=AUTOMATION,
        description="A run whose process was killed sends no more heartbeats.",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={
                "prefect.flow-run.heartbeat",
                "prefect.flow-run.Completed",
                "prefect.flow-run.Failed",
                "prefect.flow-run.Cancelled",
                "prefect.flow-run.Crashed",
            },
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=WITHIN_S),
        ),
        actions=[ChangeFlowRunState(state=StateType.CRASHED, message=_SILENT)],
    )
    with get_client(sync_client=True) as client:
        found = client.read_automations_by_name(AUTOMATION)
        same = [earlier for earlier in found if _asks_for(earlier, automation)]
        for earlier in found:
            if earlier not in same[:1]:
                client.delete_automation(earlier.id)
        if not same:
            client.create_automation(automation)


def _asks_for(earlier: AutomationCore, wanted: AutomationCore) -> bool:
    """Return whether an automation of the server is the wanted one; the server gives each trigger an id."""
    kept = {name: earlier.trigger.model_dump()[name] for name in wanted.trigger.model_dump(exclude={"id"})}
    return (earlier.enabled, kept, earlier.actions) == (
        wanted.enabled,
        wanted.trigger.model_dump(exclude={"id"}),
        wanted.actions,
    )
