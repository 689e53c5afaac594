"""Runs whose process is gone are marked; those of living processes, and of other machines, are not."""

import pytest
from prefect import flow, get_client
from prefect.states import Running

from pipeline_lib.tracking.processes import own_process
from tasks.services.crashed import AUTOMATION, heartbeat_automation, mark_crashed

pytestmark = pytest.mark.service


def test_only_runs_of_processes_that_are_gone_are_marked(prefect: str) -> None:
    host, pid, _ = own_process().rsplit(":", 2)
    owners = {"dead": f"{host}:{pid}:1.00", "living": own_process(), "elsewhere": f"other-machine:{pid}:1.00"}

    @flow(name="nothing")
    def nothing() -> None:
        """Do nothing."""

    with get_client(sync_client=True) as client:
        runs = {
            name: client.create_flow_run(nothing, name=name, tags=[f"process:{owner}"], state=Running())
            for name, owner in owners.items()
        }
        # The server is shared: a test that killed a stage may have left runs there that are rightly marked too.
        marked = mark_crashed()
        states = {name: client.read_flow_run(run.id).state for name, run in runs.items()}
    assert "dead" in marked
    assert not {"living", "elsewhere"} & set(marked)
    assert {name: state.name for name, state in states.items() if state} == {
        "dead": "Crashed",
        "living": "Running",
        "elsewhere": "Running",
    }


def test_the_automation_is_there_once(prefect: str) -> None:
    heartbeat_automation()
    heartbeat_automation()
    with get_client(sync_client=True) as client:
        found = client.read_automations_by_name(AUTOMATION)
    assert len(found) == 1
    assert found[0].enabled
