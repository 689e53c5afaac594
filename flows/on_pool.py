"""A run on a worker of a pool: asked for by commit, watched in this terminal, given back as a DVC experiment."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import LogSort
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.runner.storage import GitRepository
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelling

from flows.deployments import DESCRIPTIONS, asked_with, experiment
from flows.worker import MOST_STARTS, RELEASED_S, Patience, require_server, starts
from tasks.chain.graph import ChainError
from tasks.chain.stage_process import is_housekeeping
from tasks.chain.workspaces import git, uncommitted
from tasks.looks.records import RecordsError, send_to_origin
from tasks.runtime.exit_status import server_is_gone
from tasks.services.servers import ServerError

_LOOK_S = 1.0
_OUT_OF_ORDER = 30  # messages that may be older than some that were here before
_LAST_WORDS_S = 4.0  # messages reach the server some seconds late


def run_on(place: str, parameters: Mapping[str, Any]) -> str:
    """Have a worker run the chain at the present commit, show its messages until it ends, and return its name.

    Ctrl-C cancels the run.

    Args:
        place: ``pool`` or ``pool:queue``.
        parameters: of the flow `flows.deployments.experiment`.

    Raises:
        ChainError: the commit is not on ``origin``, or the run failed.
        ServerError: no server is named, it does not answer, or it has no such pool.
    """
    require_server()
    pool, _, queue = place.partition(":")
    url, commit = _commit_on_origin(Path.cwd())
    _send_records()
    with get_client(sync_client=True) as client:
        try:
            client.read_work_pool(pool)
        except ObjectNotFound:
            raise ServerError(f"there is no pool {pool!r}; start a worker for it: symposium worker {pool}") from None
    # A name per commit: a run that still waits must not get the code of a later one.
    deployment: Any = experiment.to_deployment(
        f"{pool}-{commit[:12]}",
        description=DESCRIPTIONS["experiment"],
        work_pool_name=pool,
        work_queue_name=queue or None,
        parameters={"share": True},
    )
    deployment.storage = GitRepository(url, commit_sha=commit)
    deployment.apply()
    asked: Any = run_deployment(
        f"experiment/{deployment.name}",
        parameters={**parameters, "share": True},
        timeout=0,
        as_subflow=False,
        tags=asked_with(),
    )
    print(f"asked the pool {pool} for {asked.name} at commit {commit[:8]}; Ctrl-C cancels it", flush=True)
    try:
        return _watched(asked.id)
    except KeyboardInterrupt:
        _cancel(asked.id)
        print("cancelled; a run with the same settings continues it", flush=True)
        raise


def _cancel(run: UUID) -> None:
    """Have the worker end a run; raises ServerError if the server does not take that."""
    try:
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 2}), get_client(sync_client=True) as client:
            client.set_flow_run_state(run, Cancelling(), force=True)
    except Exception as error:
        if not server_is_gone(error):
            raise
        raise ServerError(
            "the Prefect server does not answer, so the run is not cancelled: when it is back, cancel it on its pages"
        ) from None


def _watched(run: UUID) -> str:
    """Print the messages of a run until it has ended, and return its name."""
    seen: set[UUID] = set()
    stages: dict[UUID | None, str] = {None: ""}
    quiet, waiting, state, patience = 0, "", None, Patience()
    with get_client(sync_client=True) as client:
        while True:
            with patience:
                now = client.read_flow_run(run)
                newest = client.read_logs(
                    LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run])),
                    offset=max(0, len(seen) - _OUT_OF_ORDER),
                    sort=LogSort.TIMESTAMP_ASC,
                )
                logs = [entry for entry in newest if entry.id not in seen]
                seen |= {entry.id for entry in logs}
                for entry in logs:
                    task = entry.task_run_id
                    if task is not None and task not in stages:
                        stages[task] = client.read_task_run(task).name
                    if not is_housekeeping(entry.message):
                        print(f"{entry.timestamp:%H:%M:%S}  {stages[task]:<14}  {entry.message}", flush=True)
                quiet = 0 if logs or now.state != state else quiet + 1
                state, last_words_s = now.state, _last_words_s(client, now)
                if last_words_s is not None and quiet > last_words_s / _LOOK_S:
                    break
                if (said := "" if last_words_s else _waits_for(now)) != waiting:
                    print(waiting := said, end="\n" if said else "", flush=True)
            time.sleep(_LOOK_S)
    assert state is not None
    if not state.is_completed():
        where = "; what its process said last is in the terminal of its worker" if state.is_crashed() else ""
        raise ChainError(
            f"the run {now.name} ended as {state.name}: {state.message or 'its messages are above'}{where}"
        )
    return now.name


def _last_words_s(client: SyncPrefectClient, run: FlowRun) -> float | None:
    """Return the seconds without news after which a run is over; None if it goes on, or will be started again."""
    state = run.state
    if state is None or not state.is_final():
        return None
    if not state.is_crashed():
        return _LAST_WORDS_S
    begun = starts(client.read_flow_run_states(run.id))
    return RELEASED_S if begun >= MOST_STARTS else None  # until then a worker may say that it lives


def _waits_for(run: FlowRun) -> str:
    state = run.state
    if state is not None and state.is_crashed():
        return (
            f"it crashed ({state.message or 'no message'}); waiting for a worker that finds it alive or starts it again"
        )
    if state is not None and state.is_scheduled():
        return "waiting for a worker that is free"
    return ""


def _send_records() -> None:
    """Send the records of this checkout to ``origin``, from where the worker takes what its run has to count."""
    try:
        send_to_origin()
    except RecordsError as error:
        print(
            f"plans and looks of this checkout could not be sent to origin, and do not count in this run: {error}",
            flush=True,
        )


def _commit_on_origin(project: Path) -> tuple[str, str]:
    """Return the address of ``origin`` and the present commit, which workers can get from there."""
    url, commit = (
        git(project, "config", "--default", "", "--get", "remote.origin.url"),
        git(project, "rev-parse", "HEAD"),
    )
    if not url:
        raise ChainError(
            "workers get the code from git's origin, and this repository has none: git remote add origin URL"
        )
    if (project / url).exists():
        url = str((project / url).resolve())  # "../origin.git" would be another place for a worker
    if urlsplit(url).password:
        raise ChainError(
            "the address of origin has a password, which the server would show; let git ask for it instead"
        )
    if not git(project, "for-each-ref", "--contains", commit, "refs/remotes/origin/"):  # not another remote
        raise ChainError(f"commit {commit[:8]} is not on origin, from where workers get it: git push")
    if left_out := uncommitted(project):
        print(f"changes that are not committed are not part of this run: {', '.join(left_out)}", flush=True)
    return url, commit
