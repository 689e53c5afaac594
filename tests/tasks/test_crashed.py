"""Runs whose process is gone are marked; those of living processes, and of other machines, are not."""

import signal
import subprocess
from collections import Counter
from uuid import UUID

import pytest
from prefect import flow, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.states import Cancelling, Crashed, Pending, Running, Scheduled, Submitting

from flows.worker import MOST_STARTS, end_cancelled, start_crashed_again
from pipeline_lib.tracking.processes import own_process
from tasks.runtime import flow_runs
from tasks.runtime.flow_runs import AUTOMATION, heartbeat_automation, mark_alive, mark_crashed

pytestmark = pytest.mark.service

BEGUN_AND_LOST = (Pending(), Submitting(), Running(), Crashed())
"""What a worker that takes a run, and is lost, makes of it."""


def test_only_runs_of_processes_that_are_gone_are_marked(prefect: str) -> None:
    host, pid, _ = own_process().rsplit(":", 2)
    owners = {
        "dead": f"{host}:{pid}:1.00",
        "cancelling": f"{host}:{pid}:1.00",
        "living": own_process(),
        "elsewhere": f"other-machine:{pid}:1.00",
    }

    @flow(name="nothing")
    def nothing() -> None:
        """Do nothing."""

    with get_client(sync_client=True) as client:
        runs = {
            name: client.create_flow_run(
                nothing,
                name=name,
                tags=[f"process:{owner}"],
                state=Cancelling() if name == "cancelling" else Running(),
            )
            for name, owner in owners.items()
        }
        # The server is shared: a test that killed a stage may have left runs there that are rightly marked too.
        marked = mark_crashed()
        states = {name: client.read_flow_run(run.id).state for name, run in runs.items()}
    assert {"dead", "cancelling"} <= set(marked)
    assert not {"living", "elsewhere"} & set(marked)
    assert {name: state.name for name, state in states.items() if state} == {
        "dead": "Crashed",
        "cancelling": "Cancelled",
        "living": "Running",
        "elsewhere": "Running",
    }


def test_a_living_run_that_missed_a_heartbeat_is_no_longer_crashed_and_not_started_again(prefect: str) -> None:
    """A database that was away for 20 s has no heartbeat of it; a second start ended the worker that held it."""
    host, pid, _ = own_process().rsplit(":", 2)
    owners = {"living": own_process(), "dead": f"{host}:{pid}:1.00", "elsewhere": f"other-machine:{pid}:1.00"}

    @flow(name="nothing")
    def nothing() -> None:
        """Do nothing."""

    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="beating", type="process"))
        deployment = client.create_deployment(client.create_flow(nothing), name="b", work_pool_name="beating")
        for other_worker_was_first in (False, True):
            runs = {}
            for name, owner in owners.items():
                runs[name] = client.create_flow_run_from_deployment(deployment, tags=[f"process:{owner}"], name=name).id
                client.set_flow_run_state(runs[name], Running(), force=True)
                client.set_flow_run_state(runs[name], Crashed(), force=True)
                if other_worker_was_first:
                    client.set_flow_run_state(runs[name], Scheduled(), force=True)
            assert "living" not in start_crashed_again("beating"), "also before it is marked"
            assert "living" in mark_alive() and not {"dead", "elsewhere"} & {*mark_alive()}
            states = {name: client.read_flow_run(run).state for name, run in runs.items()}
            expected = {"living": "Running", "dead": "Scheduled", "elsewhere": "Scheduled"}
            assert {name: state.name for name, state in states.items() if state} == expected


def test_heartbeats_that_were_missed_take_no_start_away(prefect: str) -> None:
    """Prefect counts each mark as alive as a run, so a long run could be lost at its first real crash."""

    @flow(name="nothing")
    def nothing() -> None:
        """Do nothing."""

    host, pid, _ = own_process().rsplit(":", 2)
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="slow", type="process"))
        deployment = client.create_deployment(client.create_flow(nothing), name="s", work_pool_name="slow")
        run = client.create_flow_run_from_deployment(deployment, tags=[f"process:{own_process()}"], name="long").id
        for state in (Pending(), Running()):
            client.set_flow_run_state(run, state, force=True)
        for _ in range(MOST_STARTS):
            client.set_flow_run_state(run, Crashed(), force=True)
            assert "long" in mark_alive()
        assert client.read_flow_run(run).run_count == MOST_STARTS + 1
        client.update_flow_run(run, tags=[f"process:{host}:{pid}:1.00"])
        assert "long" in mark_crashed()
        assert start_crashed_again("slow") == ["long"]


def test_a_run_that_is_to_be_cancelled_is_ended_if_nobody_else_does(prefect: str) -> None:
    """Prefect's worker no longer looks once its server has been away for half a minute."""

    @flow(name="nothing")
    def nothing() -> None:
        """Do nothing."""

    looks = Counter[UUID]()
    with subprocess.Popen(["sleep", "600"]) as process, get_client(sync_client=True) as client:
        try:
            client.create_work_pool(WorkPoolCreate(name="deaf", type="process"))
            deployment = client.create_deployment(client.create_flow(nothing), name="d", work_pool_name="deaf")
            runs = {}
            for name, owner in (("here", own_process(process.pid)), ("elsewhere", "other-machine:1:1.00")):
                runs[name] = client.create_flow_run_from_deployment(deployment, tags=[f"process:{owner}"], name=name).id
                client.set_flow_run_state(runs[name], Running(), force=True)
            assert [end_cancelled("deaf", looks) for _ in range(5)] == [[]] * 5
            for run in runs.values():
                client.set_flow_run_state(run, Cancelling(), force=True)
            assert [end_cancelled("deaf", looks) for _ in range(3)] == [[]] * 3, "Prefect's worker has time to do it"
            assert end_cancelled("others", looks) == [] and process.poll() is None
            assert end_cancelled("deaf", looks) == ["here"]
            assert process.wait(30) == -signal.SIGTERM
            assert end_cancelled("deaf", looks) == [] and "here" in mark_crashed()
            state = client.read_flow_run(runs["here"]).state
            assert state is not None and state.is_cancelled()
        finally:
            process.kill()


def test_a_run_of_a_pool_that_crashed_is_started_again_three_times_and_one_that_was_cancelled_never(
    prefect: str,
) -> None:
    @flow(name="nothing")
    def nothing() -> None:
        """Do nothing."""

    with get_client(sync_client=True) as client:
        for pool in ("these", "others"):
            client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
        runs = {}
        for name, pool in (("crashed", "these"), ("cancelled", "these"), ("elsewhere", "others")):
            deployment = client.create_deployment(client.create_flow(nothing), name=name, work_pool_name=pool)
            runs[name] = client.create_flow_run_from_deployment(deployment, name=name).id
        client.set_flow_run_state(runs["cancelled"], Running(), force=True)
        client.set_flow_run_state(runs["cancelled"], Cancelling(), force=True)
        for run in runs.values():
            for state in BEGUN_AND_LOST:
                client.set_flow_run_state(run, state, force=True)
        starts = 0
        while start_crashed_again("these") == ["crashed"]:
            found = client.read_flow_run(runs["crashed"]).state
            assert found is not None and found.is_scheduled()
            starts += 1
            for state in BEGUN_AND_LOST:
                client.set_flow_run_state(runs["crashed"], state, force=True)
    assert starts == MOST_STARTS - 1


def test_a_run_that_crashes_before_its_code_begins_is_started_three_times_more_and_not_for_ever(prefect: str) -> None:
    """A worker that may not read origin cannot get the code; Prefect counts that as no run at all."""

    @flow(name="nothing")
    def nothing() -> None:
        """Do nothing."""

    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="locked out", type="process"))
        deployment = client.create_deployment(client.create_flow(nothing), name="n", work_pool_name="locked out")
        run = client.create_flow_run_from_deployment(deployment, name="no code").id
        for _ in range(MOST_STARTS - 1):
            client.set_flow_run_state(run, Pending(), force=True)
            client.set_flow_run_state(run, Crashed(), force=True)
            assert start_crashed_again("locked out") == ["no code"]
        client.set_flow_run_state(run, Pending(), force=True)
        client.set_flow_run_state(run, Crashed(), force=True)
        assert start_crashed_again("locked out") == []


def test_the_automation_is_there_once_and_stays(prefect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that came right after one was lost made another, which did not wait for the heartbeat of the lost run.

    That run counted as running for ever.
    """
    kept = []
    for within_s in (flow_runs.WITHIN_S, flow_runs.WITHIN_S, 40.0, 40.0):
        monkeypatch.setattr(flow_runs, "WITHIN_S", within_s)
        heartbeat_automation()
        with get_client(sync_client=True) as client:
            (found,) = client.read_automations_by_name(AUTOMATION)
        assert found.enabled
        kept.append(found.id)
    assert kept[0] == kept[1] != kept[2] == kept[3], "one of another version is replaced"
