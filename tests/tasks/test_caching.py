"""Cached tasks on a real Prefect server: each known trap of caching is sprung and held off."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect import flow, get_client, runtime
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.settings import PREFECT_TASKS_REFRESH_CACHE, temporary_settings

from pipeline_lib import storage
from tasks.runtime.caching import CachedTask, Identity, read_value
from tasks.runtime.flow_runs import tagged
from tasks.services import process_environment as environment

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("prefect")]
A, B = "a" * 64, "b" * 64


def identity(**changes: Any) -> Identity:
    return Identity(**{"policy": A, "problems": B, "seed": 0, "settings": {"samples": 4}, **changes})


class Counter:
    """A computation that counts how often it ran."""

    def __init__(self, value: Any = None) -> None:
        self.value = {"score": 1.5, "pair": (1, 2)} if value is None else value
        self.calls = 0

    def __call__(self) -> Any:
        self.calls += 1
        return self.value


@pytest.fixture
def task(request: pytest.FixtureRequest) -> CachedTask:
    return CachedTask(request.node.name, storage)


def file_of(task: CachedTask, of: Identity) -> Path:
    return environment.places().cache / task.key(of)


def test_the_same_identity_is_computed_once_and_read_back_equal(task: CachedTask) -> None:
    compute = Counter()
    assert not task.has(identity())
    first = task(identity(), compute)
    assert task.has(identity()) and not task.has(identity(seed=1))
    again = task(identity(), compute)
    assert compute.calls == 1
    assert first == again == {"score": 1.5, "pair": [1, 2]}


def test_the_flow_runs_tags_are_not_its_task_runs(task: CachedTask) -> None:
    """Prefect would ask the server for limits of the tags before each task, which can take it seconds."""

    @flow
    def tagged_flow() -> str:
        task(identity(), Counter())
        return str(runtime.flow_run.id)

    with tagged("some-run"):
        flow_run = UUID(tagged_flow())
    with get_client(sync_client=True) as client:
        assert "run:some-run" in client.read_flow_run(flow_run).tags
        wanted = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
        end = time.monotonic() + 60  # task runs are recorded from events, a little later
        while not (runs := client.read_task_runs(flow_run_filter=wanted)) and time.monotonic() < end:
            time.sleep(0.2)
    assert [list(run.tags) for run in runs] == [[]]


@pytest.mark.parametrize(
    "change", [{"policy": B}, {"problems": A}, {"seed": 1}, {"settings": {"samples": 8}}, {"settings": {}}]
)
def test_every_part_of_an_identity_is_in_the_key(change: dict[str, Any]) -> None:
    task = CachedTask("parts", storage)
    assert task.key(identity(**change)) != task.key(identity())


def test_name_and_code_are_in_the_key() -> None:
    here = sys.modules[__name__]
    assert CachedTask("one", storage).key(identity()) != CachedTask("two", storage).key(identity())
    assert CachedTask("one", storage).key(identity()) != CachedTask("one", storage, here).key(identity())


def test_a_setting_that_is_none_does_not_leave_the_key(task: CachedTask) -> None:
    """Prefect drops a policy that returns None from a sum of policies, and t(2) then returns t(1)'s value."""
    assert task(identity(settings={"limit": None}, seed=1), lambda: 1) == 1
    assert task(identity(settings={"limit": None}, seed=2), lambda: 2) == 2


def test_a_path_is_no_identity(tmp_path: Path) -> None:
    """A path hashes as its text: after the file changed, the old value would come back."""
    with pytest.raises(ValueError, match=r"identity: policy: got .*weights\.bin.* accepted: a content digest"):
        identity(policy=str(tmp_path / "weights.bin"))
    task = CachedTask("path", storage)
    with pytest.raises(TypeError, match="not JSON serializable"):
        task.key(identity(settings={"file": tmp_path}))
    with pytest.raises(TypeError, match="not JSON serializable"):
        task.key(identity(settings={"names": {"a", "b"}}))  # a set has no order: its hash differs between processes


@pytest.mark.parametrize("value", [Path("somewhere"), {"set": {1}}, [float("nan")]])
def test_a_value_that_is_not_plain_json_is_refused_and_not_kept(task: CachedTask, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="cannot be cached"):
        task(identity(), lambda: value)
    assert not file_of(task, identity()).exists()


def test_a_computation_that_raised_is_not_kept() -> None:
    attempts = iter([RuntimeError("sandbox is down"), 7])

    def compute() -> Any:
        outcome = next(attempts)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    stubborn = CachedTask("stubborn", storage)
    with pytest.raises(RuntimeError, match="sandbox is down"):
        stubborn(identity(), compute)
    assert not file_of(stubborn, identity()).exists()
    assert stubborn(identity(), compute) == 7


def test_a_value_whose_file_is_gone_is_computed_again(task: CachedTask) -> None:
    compute = Counter()
    task(identity(), compute)
    file_of(task, identity()).unlink()
    task(identity(), compute)
    assert compute.calls == 2


def test_everything_can_be_computed_again(task: CachedTask) -> None:
    compute = Counter()
    task(identity(), compute)
    with temporary_settings({PREFECT_TASKS_REFRESH_CACHE: True}):
        task(identity(), compute)
    assert compute.calls == 2


def damaged_value(text: str) -> str:
    return text.replace("1.5", "9.5")


def another_key(text: str) -> str:
    return text.replace(json.loads(text)["key"], "c" * 64)


def another_form(text: str) -> str:
    return json.dumps({"metadata": {"serializer": {"type": "pickle"}}, "result": json.loads(text)["value"]})


@pytest.mark.parametrize("damage", [damaged_value, another_key, another_form, lambda text: text[:40], lambda text: ""])
def test_a_damaged_file_is_named_and_computed_again(
    task: CachedTask, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    compute = Counter()
    task(identity(), compute)
    file = file_of(task, identity())
    file.write_text(damage(file.read_text()))
    assert task(identity(), compute) == {"score": 1.5, "pair": [1, 2]}
    assert compute.calls == 2
    assert f"{file}: damaged cached value" in caplog.text
    assert json.loads(read_value(file)) == {"score": 1.5, "pair": [1, 2]}


class Bomb:
    """Unpickled, it leaves a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.marker),))


def test_a_record_that_asks_to_be_unpickled_is_not(task: CachedTask, tmp_path: Path) -> None:
    from prefect.serializers import PickleSerializer

    task(identity(), Counter())
    file = file_of(task, identity())
    bomb = PickleSerializer().dumps(Bomb(tmp_path / "marker")).decode()
    record = json.loads(file.read_text())
    file.write_text(
        json.dumps({**record, "metadata": {"serializer": {"type": "pickle"}}, "result": bomb, "value": bomb})
    )
    compute = Counter()
    assert task(identity(), compute) == {"score": 1.5, "pair": [1, 2]}
    assert compute.calls == 1
    assert not (tmp_path / "marker").exists()


OTHER_PROCESS = """
import sys, time
import flows
from pathlib import Path
from pipeline_lib import storage
from tasks.runtime.caching import CachedTask, Identity

def compute():
    Path(sys.argv[1]).touch()
    time.sleep(float(sys.argv[2]))
    return "computed"

print(CachedTask("killed", storage)(Identity("a" * 64, "b" * 64, 0, {}), compute))
"""


def test_kill_9_leaves_no_lock_and_another_process_reads_the_value(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    command = [sys.executable, "-c", OTHER_PROCESS, str(marker)]
    first = subprocess.Popen([*command, "100"], start_new_session=True, stderr=subprocess.DEVNULL)
    while not marker.exists():
        assert first.poll() is None
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    marker.unlink()
    done = subprocess.run([*command, "0"], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "computed"
    assert marker.exists()
    marker.unlink()
    compute = Counter("never")
    assert CachedTask("killed", storage)(identity(settings={}), compute) == "computed"
    assert compute.calls == 0
