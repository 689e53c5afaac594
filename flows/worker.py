"""A worker: it runs what `symposium run --on POOL` asks for, one run after the other, until Ctrl-C.

symposium worker lab                             # work for the pool "lab", which is made if there is none
symposium worker lab --queue gpu --limit 2       # only what asks for a GPU (--on lab:gpu), two runs side by side
symposium worker lab --queue gpu --queue default # that, and what does not ask for one

It needs a checkout with its environment, the addresses of two servers, PREFECT_API_URL and MLFLOW_TRACKING_URI, and
DVC's default remote, through which results are given back.  Every run has the code of its own commit.  What earlier
runs have made stays here, in .symposium and DVC's cache.
"""

import argparse
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from prefect import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Scheduled, State

from tasks.chain.sharing import prepare_remote
from tasks.runtime.arguments import ArgumentError, program_parser, whole
from tasks.runtime.exit_status import explained, server_is_gone, sigterm_interrupts
from tasks.runtime.flow_runs import end_process, heartbeat_automation, lives_here, mark_alive, mark_crashed
from tasks.services.clocks import of_server
from tasks.services.process_environment import child_environment
from tasks.services.processes import ended, start, stop
from tasks.services.servers import ServerError, check_tracking, require

MOST_STARTS = 4
"""How often a run is started: once, and three times more if it crashes."""
_LOOK_S = 5.0
_PATIENT_LOOKS = 4
_QUEUE = "default"  # every pool of Prefect has it
#: A worker ends itself if a run comes back to it that it still holds; it looks ten seconds ahead, and another worker's
#: `mark_alive` has until then.
RELEASED_S = 30.0
#: The server, or its database, may be away for a minute.
_PATIENCE = {"PREFECT_CLIENT_MAX_RETRIES": "12"}


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    reader = program_parser("worker", __doc__)
    reader.add_argument("pool", help="work pool of the Prefect server; one of type process is made if there is none")
    reader.add_argument(
        "--queue",
        action="append",
        default=[],
        help=f"work for this queue only (default: {_QUEUE}, that of `--on POOL`); may be repeated",
    )
    reader.add_argument("--limit", type=whole(1), default=1, help="number of runs side by side (default: 1)")
    return reader


def worker_command(given: argparse.Namespace, kind: str = "process") -> list[str]:
    """Return the command of Prefect's worker, which without a queue would take the work of all of them."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--type", kind, "--pool", given.pool]
    queues = [word for queue in given.queue or [_QUEUE] for word in ("--work-queue", queue)]
    return [*command, "--limit", str(given.limit), *queues]


def start_crashed_again(pool: str) -> list[str]:
    """Schedule runs of the pool again that crashed, each at most `MOST_STARTS` - 1 times; return their names."""
    crashed = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.CRASHED])))
    again = []
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=crashed, work_pool_filter=_of(pool)):
            states = client.read_flow_run_states(run.id)
            begun, types = starts(states), {state.type for state in states}
            if lives_here(run) or types & {StateType.CANCELLING, StateType.CANCELLED}:
                continue
            if begun < MOST_STARTS:
                message = f"it crashed, and is started again ({begun} of {MOST_STARTS - 1})"
                later = datetime.now(UTC) + timedelta(seconds=RELEASED_S)
                client.set_flow_run_state(run.id, Scheduled(message=message, scheduled_time=later), force=True)
                again.append(run.name)
    return again


def end_cancelled(pool: str, looks: Counter[UUID]) -> list[str]:
    """Send SIGTERM to runs of the pool on this machine that are still to be cancelled at the fourth look; return names.

    Prefect's worker does it at once, but looks no longer if its server has been away for half a minute.

    Args:
        pool: whose runs.
        looks: how often each run has been seen so; counted here.
    """
    wanted = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.CANCELLING])))
    ended_here = []
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=wanted, work_pool_filter=_of(pool)):
            looks[run.id] += 1
            if looks[run.id] == _PATIENT_LOOKS and lives_here(run):
                end_process(run)
                ended_here.append(run.name)
    return ended_here


def starts(states: Iterable[State]) -> int:
    """Return how often workers have taken a run, given all its states.

    Prefect's own count (``run_count``) leaves out starts that did not get as far as the run's code, for which a worker
    may have no permission, and takes each `mark_alive` for one.  Each start is "Pending", and mostly "Submitting" then,
    which is a state of the same type.
    """
    return sum(state.name == "Pending" for state in states)


def _of(pool: str) -> WorkPoolFilter:
    return WorkPoolFilter(name=WorkPoolFilterName(any_=[pool]))


def require_server() -> None:
    """Raise ServerError if no Prefect server is named, the one that is does not answer, or its clock is another one.

    Or if the address of MLflow is none.
    """
    if not (url := os.environ.get("PREFECT_API_URL")):
        raise ServerError(
            "which server has the work? set PREFECT_API_URL, for example http://server:4200/api, and "
            "MLFLOW_TRACKING_URI for the record of the runs"
        )
    require(url)
    check_tracking()
    if said := clock_of_server():
        raise ServerError(said)


def clock_of_server() -> str:
    """Return what is to be said if the clocks of this machine and of the Prefect server differ; else empty."""
    url = os.environ["PREFECT_API_URL"]
    return of_server(f"{url}/health", f"the Prefect server at {url}")


def tell_clock(told: str) -> str:
    """Say once, and not again after ``told``, that the clock of a worker that works is wrong; return what holds now."""
    if bool(said := clock_of_server()) != bool(told):
        print(said or "the clocks of this machine and of the Prefect server agree again", flush=True)
    return said


class Patience:
    """Lets ``with`` blocks end early while the Prefect server does not answer, to be tried again; says so once.

    In them Prefect itself tries twice only: its pauses double, and a worker must be there within `RELEASED_S` of the
    server.
    """

    def __init__(self) -> None:
        self._is_away = False
        self._settings = contextlib.ExitStack()

    def __enter__(self) -> None:
        self._settings.enter_context(temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 1}))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._settings.close()
        is_away = error is not None and server_is_gone(error)
        if is_away and not self._is_away:
            print("the Prefect server does not answer; tried again every few seconds", flush=True)
        elif error is None and self._is_away:
            print("the Prefect server answers again", flush=True)
        self._is_away = is_away
        return is_away


def join_pool(pool: str) -> str:
    """Return the type of the pool, made if there is none, whose server is to notice runs that crash; wait for it."""
    kind, patience = "", Patience()
    while not kind:
        with patience:
            with get_client(sync_client=True) as client:
                with contextlib.suppress(ObjectAlreadyExists):
                    client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
                found = client.read_work_pool(pool).type
            heartbeat_automation()
            kind = found
        if not kind:
            time.sleep(_LOOK_S)
    return kind


def main() -> None:
    """Work until Ctrl-C (status 130), or until the worker ends or cannot start (message, status 1)."""
    with explained(), sigterm_interrupts():
        given = parser().parse_args()
        if given.pool.lower().startswith("prefect"):
            raise ArgumentError(f"Prefect keeps names like {given.pool} for itself; name the pool otherwise")
        require_server()
        prepare_remote(Path.cwd())
        command = worker_command(given, join_pool(given.pool))
        process = start(command, child_environment(**{**_PATIENCE, **os.environ}), Path.cwd(), sys.stdout.fileno())
        patience, looks, told = Patience(), Counter[UUID](), ""
        try:
            while process.poll() is None:
                with patience:
                    for name in mark_alive():
                        print(f"{name} works here, and no longer counts as crashed", flush=True)
                    mark_crashed()
                    for name in end_cancelled(given.pool, looks):
                        print(f"{name} is to be cancelled, and is ended", flush=True)
                    for name in start_crashed_again(given.pool):
                        print(f"{name} crashed and is scheduled again", flush=True)
                    told = tell_clock(told)
                time.sleep(_LOOK_S)
        finally:
            stop(process)
        raise ServerError(f"the worker has ended ({ended(process.returncode)})")


if __name__ == "__main__":
    main()
