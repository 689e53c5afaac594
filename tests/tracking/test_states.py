"""States of runs: what is shown of a whole and its parts, also when processes are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from pipeline_lib.locks import locked
from pipeline_lib.tracking import Tracker
from pipeline_lib.tracking.operations import RunKey
from pipeline_lib.tracking.processes import own_process
from pipeline_lib.tracking.recorder import Recorder
from pipeline_lib.tracking.runs import RunRecorder
from pipeline_lib.tracking.store import LOCK
from tests.tracking.conftest import Reader

A = "a" * 64


@pytest.mark.drawn("states in MLflow", "pipeline_lib/tracking", count=3)
def test_the_parents_status_follows_from_the_last_attempt_at_each_part(home: Path, reader: Reader) -> None:
    tracking = Tracker(home, "team", "brave-owl")
    prepare, train = tracking.start_run("prepare"), tracking.start_run("train", 0, A)
    prepare.finish()
    tracking.flush(60)
    assert reader.statuses() == {"brave-owl": "RUNNING", "prepare": "FINISHED", "train seed 0": "RUNNING"}
    train.finish("FAILED")
    tracking.flush(60)
    assert reader.statuses()["brave-owl"] == "FAILED"
    again = tracking.start_run("train", 0, A)
    tracking.flush(60)
    assert reader.statuses()["brave-owl"] == reader.statuses()["train seed 0"] == "RUNNING"
    again.finish()
    tracking.close(60)
    assert set(reader.statuses().values()) == {"FINISHED"}


PROCESS = """
import sys, time
from pathlib import Path
from pipeline_lib.tracking import Tracker
home, seed, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
tracking = Tracker(home, "team", "brave-owl", process=sys.argv[4], owned=bool(sys.argv[4]))
run = tracking.start_run("train", seed, "a" * 64)
run.log(1, {"reward": 1.0})
assert tracking.flush(60)
print("logged", flush=True)
time.sleep(pause)
run.finish()
assert tracking.close(60)
"""


def start(home: Path, seed: int, pause: float = 0.0, owner: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS, str(home), str(seed), str(pause), owner]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.drawn("states in MLflow", "pipeline_lib/tracking", count=3)
def test_processes_that_start_together_on_a_new_database_share_one_parent(tmp_path: Path) -> None:
    home = tmp_path / "new"
    processes = [start(home, seed) for seed in range(4)]
    assert [process.wait(120) for process in processes] == [0, 0, 0, 0]
    reader = Reader(f"sqlite:///{home}/mlflow.db")
    assert set(reader.statuses()) == {"brave-owl", *(f"train seed {seed}" for seed in range(4))}
    assert set(reader.statuses().values()) == {"FINISHED"}


@pytest.mark.drawn("states in MLflow", "pipeline_lib/tracking", count=3)
def test_a_killed_run_is_marked_when_the_next_one_starts_and_finished_when_it_resumes(
    home: Path, reader: Reader
) -> None:
    killed = start(home, 0, pause=100)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "logged\n"
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert reader.statuses() == {"brave-owl": "RUNNING", "train seed 0": "RUNNING"}
    assert start(home, 1).wait(60) == 0
    assert reader.statuses() == {"brave-owl": "KILLED", "train seed 0": "KILLED", "train seed 1": "FINISHED"}
    assert start(home, 0).wait(60) == 0
    assert set(reader.statuses().values()) == {"FINISHED"}
    assert reader.curve("train seed 0", "reward") == [(1, 1.0)]


OWNER = """
import sys, time
from pathlib import Path
from pipeline_lib.tracking import Tracker
from pipeline_lib.tracking.processes import own_process
tracking = Tracker(Path(sys.argv[1]), "team", "brave-owl", owned=True)
assert tracking.flush(60)
print(own_process(), flush=True)
time.sleep(100)
"""


@pytest.mark.drawn("states in MLflow", "pipeline_lib/tracking", count=3)
def test_between_its_parts_a_conducted_run_is_running_until_its_conductor_says_how_it_ended(
    home: Path, reader: Reader
) -> None:
    owner = Tracker(home, "team", "brave-owl", owned=True)
    assert owner.flush(60)
    assert reader.statuses() == {"brave-owl": "RUNNING"}
    tracking = Tracker(home, "team", "brave-owl", owned=True)
    prepare = tracking.start_run("prepare")
    prepare.finish()
    assert tracking.flush(60)
    assert reader.statuses() == {"brave-owl": "RUNNING", "prepare": "FINISHED"}
    owner.whole.finish("KILLED")
    assert owner.close(60)
    assert reader.statuses() == {"brave-owl": "KILLED", "prepare": "FINISHED"}, "it was stopped between two stages"
    prepare.finish()  # told late
    assert tracking.close(60)
    assert reader.statuses()["brave-owl"] == "KILLED"
    again = Tracker(home, "team", "brave-owl")  # now one stage by hand, without a owner
    part = again.start_run("train")
    assert again.flush(60)
    assert reader.statuses()["brave-owl"] == "RUNNING"
    part.finish()
    assert again.close(60)
    assert set(reader.statuses().values()) == {"FINISHED"}


def test_a_part_of_a_large_run_that_works_reads_no_part_that_has_ended(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each of hundreds of parts would take longer than the one before."""
    recorder, process = RunRecorder(f"sqlite:///{home}/mlflow.db", home), own_process()
    parent = RunKey("team", "brave-owl", A, "", "brave-owl")
    recorder.open(parent, {}, {}, process, 1000, conducted=True)
    read: list[str] = []
    search = recorder._client.search_runs

    def noted(*arguments: object, **options: object) -> list[Run]:
        found = list(search(*arguments, **options))
        read.extend(run.info.run_name for run in found)
        return found

    monkeypatch.setattr(recorder._client, "search_runs", noted)
    for name in ("one", "two", "three"):
        read.clear()
        recorder.open(part := RunKey("team", "brave-owl", A, name, name), {}, {}, process, 2000)
        recorder.close(part, "FAILED" if name == "one" else "FINISHED", process, 3000)
        assert set(read) <= {name}
    recorder.close(parent, "FINISHED", process, 4000)
    assert Reader(f"sqlite:///{home}/mlflow.db").statuses()["brave-owl"] == "FINISHED"


def test_who_waits_for_writers_on_other_machines_holds_up_nobody_here(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: list[bool] = []

    def settle(seconds: float) -> None:
        with locked(home / LOCK, wait=False):
            free.append(True)

    monkeypatch.setattr("pipeline_lib.tracking.runs.is_shared", lambda uri: True)
    monkeypatch.setattr("pipeline_lib.tracking.runs.time.sleep", settle)
    recorder = RunRecorder(f"sqlite:///{home}/mlflow.db", home)
    recorder.open(RunKey("team", "brave-owl", A, "", "brave-owl"), {}, {}, own_process(), 1000)
    assert free


def test_an_attempt_that_was_lost_with_its_machine_ends_with_the_run_that_made_the_part_anew(home: Path) -> None:
    """With other libraries it is another run; the lost one was RUNNING for ever."""
    recorder, here = RunRecorder(f"sqlite:///{home}/mlflow.db", home), own_process()
    away = here.replace("/", "/1", 3)
    parts = ("train of another machine", "train of this one", "sweep of another machine")
    keys = {name: RunKey("team", "brave-owl", A, name, name.partition(" ")[0]) for name in parts}
    keys = {"whole": RunKey("team", "brave-owl", A, "", "brave-owl"), **keys}
    for name, key in keys.items():
        recorder.open(key, {}, {}, here if name == "train of this one" else away, 1000, conducted=name == "whole")
    recorder.open(keys["whole"], {}, {}, here, 2000, conducted=True)
    recorder.close(keys["train of this one"], "FINISHED", here, 3000)

    def states() -> list[str]:
        client = MlflowClient(tracking_uri=f"sqlite:///{home}/mlflow.db")
        return [client.get_run(recorder.ids(key)[1]).info.status for key in keys.values()]

    assert states() == ["RUNNING", "RUNNING", "FINISHED", "RUNNING"], "it may be at work there"
    recorder.close(keys["whole"], "FINISHED", here, 4000)
    assert states() == ["FINISHED", "KILLED", "FINISHED", "RUNNING"], "nobody has made the sweep"


def killed(process: subprocess.Popen[str]) -> None:
    """Kill a process, and wait until it has ended; nobody asks yet how, so the kernel still knows its number."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.drawn("states in MLflow", "pipeline_lib/tracking", count=3)
def test_of_a_conductor_that_was_killed_the_next_look_tells(home: Path, reader: Reader) -> None:
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(home)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    owner = process.stdout.readline().strip()
    part = start(home, 0, pause=100, owner=owner)
    assert part.stdout is not None
    assert part.stdout.readline() == "logged\n"
    killed(process)
    recorder = Recorder(f"sqlite:///{home}/mlflow.db", home)
    recorder.update_all_states()
    assert reader.statuses() == {"brave-owl": "RUNNING", "train seed 0": "RUNNING"}, "its stage still runs"
    killed(part)
    recorder.update_all_states()
    assert reader.statuses() == {"brave-owl": "KILLED", "train seed 0": "KILLED"}
    process.wait()
    part.wait()
    recorder.update_all_states()
    assert reader.statuses() == {"brave-owl": "KILLED", "train seed 0": "KILLED"}


@pytest.mark.drawn("states in MLflow", "pipeline_lib/tracking", count=3)
def test_a_run_whose_process_was_killed_before_its_first_part_is_no_finished_one(home: Path, reader: Reader) -> None:
    code = OWNER.replace(", owned=True", "")
    process = subprocess.Popen([sys.executable, "-c", code, str(home)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    recorder = Recorder(f"sqlite:///{home}/mlflow.db", home)
    recorder.update_all_states()
    assert reader.statuses() == {"brave-owl": "RUNNING"}
    killed(process)
    recorder.update_all_states()
    assert reader.statuses() == {"brave-owl": "KILLED"}
    process.wait()


@pytest.mark.drawn("states in MLflow", "pipeline_lib/tracking", count=3)
def test_a_run_that_was_made_and_never_opened_belongs_to_its_process_all_the_same(home: Path, reader: Reader) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as gone:
        process = own_process(gone.pid)
    recorder = Recorder(f"sqlite:///{home}/mlflow.db", home)
    recorder.ids(
        RunKey("team", "brave-owl", "s", "train/seed=0", "train seed 0"), process
    )  # killed in the midst of opening
    recorder.update_all_states()
    assert set(reader.statuses().values()) == {"KILLED"}


@pytest.mark.drawn("states in MLflow", "pipeline_lib/tracking", count=3)
def test_while_who_starts_its_parts_is_there_a_run_is_running(home: Path, reader: Reader) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as dvc:
        tracking = Tracker(home, "team", "brave-owl", process=own_process(dvc.pid))
        tracking.start_run("prepare").finish()
        assert tracking.close(60)
        assert reader.statuses() == {"brave-owl": "RUNNING", "prepare": "FINISHED"}
    Recorder(f"sqlite:///{home}/mlflow.db", home).update_all_states()
    assert reader.statuses() == {"brave-owl": "FINISHED", "prepare": "FINISHED"}


@pytest.mark.drawn("states in MLflow", "pipeline_lib/tracking", count=3)
def test_what_a_conductor_that_is_gone_says_late_is_not_heard_over_the_next_one(home: Path, reader: Reader) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as gone:
        before = own_process(gone.pid)
    now = Tracker(home, "team", "brave-owl", owned=True)
    assert now.flush(60)
    late = Tracker(home, "team", "brave-owl", process=before, owned=True)
    late.whole.finish("KILLED")
    assert late.close(60)
    assert reader.statuses() == {"brave-owl": "RUNNING"}
    now.whole.finish()
    assert now.close(60)
    assert reader.statuses() == {"brave-owl": "FINISHED"}
