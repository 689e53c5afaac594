"""The whole experiment as a flow, on a small real DVC project: side by side, twice, failing, interrupted, killed."""

import contextlib
import json
import os
import re
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from pipeline_lib.tracking.recorder import Recorder
from tasks.services.servers import any_port, start_prefect
from tasks.services.stage_proxy import ADDRESS
from tests.flows.project import call
from tests.flows.toy_project import started, still_there, wait_for, words

pytestmark = [pytest.mark.service]
EXPERIMENT = ("-m", "flows.experiment", "--jobs", "2")
#: With as many jobs as stages, no process loads the libraries for them beforehand.
AT_ONCE = ("-m", "flows.experiment", "--jobs", "5")


@pytest.mark.drawn("how an experiment ends", "tasks")
def test_stages_that_do_not_wait_for_each_other_run_side_by_side_and_once(toy: Path, lent: dict[str, str]) -> None:
    (toy / ".symposium" / "meet").mkdir(parents=True)  # each training waits there until the other one has come
    said = call(toy, "python", *EXPERIMENT)
    assert "5 of 5 stages to check" in said
    assert "done; 5 of 5 stages were run" in said
    assert "prepare at work, 0 spins" in said, "threads of stages that run side by side sleep at once"
    assert "s left" in said, "no estimate of what remains"
    shares = [int(share) for share in re.findall(r"experiment: +(\d+)%", said)]
    assert shares == sorted(shares) and shares[-1] == 100, "what was done becomes less"
    assert call(toy, "dvc", "status", "--json").strip() == "{}"
    assert (toy / "out/report").read_text() == "report"
    [seconds] = (toy / ".symposium").glob("seconds/*.json")
    assert json.loads(seconds.read_text()).keys() >= {"learn@0", "learn@1", "report"}
    (toy / ".symposium/logs/prefect.log").unlink()
    again = call(toy, "python", *EXPERIMENT)
    assert again.splitlines()[0] == "everything is up to date"
    assert "at work" not in again
    assert not (toy / ".symposium/logs/prefect.log").exists(), "a server was started for nothing"
    (toy / "params.yaml").write_text((toy / "params.yaml").read_text().replace("steps: 4", "steps: 6"))
    for came in (toy / ".symposium" / "meet").iterdir():
        came.unlink()
    changed = call(toy, "python", *AT_ONCE, **lent)
    assert "3 of 5 stages to check" in changed
    assert "prepare at work" not in changed
    assert (toy / "models/1/weights.txt").read_text() == "1 6"


def test_only_what_was_asked_for_and_what_it_needs(toy: Path, lent: dict[str, str]) -> None:
    said = call(toy, "python", *EXPERIMENT, "alone", **lent)
    assert "1 of 1 stages to check" in said and "alone at work, 3000 spins" in said
    said = call(toy, "python", *EXPERIMENT, "learm", status=2)
    assert "error: there is no stage 'learm'; did you mean learn?" in said
    assert "Traceback" not in said


def test_a_stage_that_the_new_settings_do_not_have_is_told_before_they_are_written(toy: Path) -> None:
    before = (toy / "params.yaml").read_text()
    said = call(toy, "python", *EXPERIMENT, "-S", "seeds.train=[0]", "learn@1", status=2)
    assert "error: there is no stage 'learn@1'; did you mean learn@0?" in said
    assert (toy / "params.yaml").read_text() == before


@pytest.mark.drawn("how an experiment ends", "tasks")
def test_when_a_stage_fails_what_needs_it_is_not_run_and_the_rest_is(toy: Path, lent: dict[str, str]) -> None:
    (toy / "fail-prepare").touch()
    said = call(toy, "python", *AT_ONCE, status=1, **lent)
    assert "error: stage prepare failed: prepare was told to fail" in said
    assert said.count("prepare was told to fail") == 1 and "failed to reproduce" not in said, "said more than once"
    assert "not run, because they need a failed stage: learn@0, learn@1, report" in said
    assert "Traceback" not in said
    assert (toy / "out/alone").exists()
    assert not (toy / "models").exists()
    (toy / "fail-prepare").unlink()
    (toy / "refuse-prepare").touch()
    said = call(toy, "python", *AT_ONCE, status=1, **lent)
    assert "error: stage prepare refused: nobody would learn from this" in said
    assert said.count("nobody would learn from this") == 1
    assert "not run, because they need a failed stage: learn@0, learn@1, report" in said
    (toy / "refuse-prepare").unlink()
    assert "Traceback" not in said
    shown = client_states(lent)
    assert shown["prepare"] == "Failed", "a stage that refuses is not shown as completed"
    call(toy, "python", *AT_ONCE, "learn@0", **lent)
    assert (toy / "models/0/weights.txt").exists()


@pytest.mark.drawn("how an experiment ends", "tasks")
def test_however_it_ends_nothing_stays_behind_and_the_same_command_continues(toy: Path, lent: dict[str, str]) -> None:
    """By Ctrl-C, then when it goes on by SIGTERM, then by ``kill -9``; the fourth time nobody ends it.

    The first and the third time it has started a server and a process with the libraries, which have to end, too.
    """
    scratch = toy / ".symposium" / "scratch"
    (toy / "params.yaml").write_text((toy / "params.yaml").read_text().replace("steps: 4", "steps: 8"))
    ended: tuple[tuple[int, signal.Signals, tuple[str, ...], dict[str, str]], ...] = (
        (2, signal.SIGINT, EXPERIMENT, {}),
        (4, signal.SIGTERM, AT_ONCE, {name: value for name, value in lent.items() if name != ADDRESS}),
        (6, signal.SIGKILL, EXPERIMENT, {}),
    )
    for step, number, command, variables in ended:
        (toy / ".symposium" / "hold").write_text(str(step))
        # A shell that often stays between DVC and the stage.
        with started(toy, *command, SHELL="/bin/sh", **variables) as process:
            wait_for(
                lambda: (
                    (
                        len(list(scratch.rglob(f"{step}.bin"))) == 2  # noqa: B023  (waited for at once)
                        and list(mlflow_states(toy).values()) == ["RUNNING"] * 3
                    )
                    or process.poll() is not None
                ),
                lambda: words(toy),
            )
            os.kill(process.pid, number)
            status = process.wait(60)
            wait_for(lambda: not still_there(toy), lambda: f"all processes gone: {still_there(toy)}", 60)
        assert status == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
        assert "Traceback" not in words(toy) and "Crash detected" not in words(toy)
        told = words(toy).count("interrupted; run the same command again to continue")
        assert told == (number != signal.SIGKILL), words(toy)
        assert ("prepare at work" in words(toy)) == (step == 2)
        database = toy / ".symposium/mlflow/mlflow.db"
        Recorder(f"sqlite:///{database}", database.parent).update_all_states()  # `make ui` may have had no time
        assert set(mlflow_states(toy).values()) == {"KILLED"}
    (toy / ".symposium" / "hold").unlink()
    said = call(toy, "python", *AT_ONCE, **lent)
    assert "prepare at work" not in said
    assert (toy / "models/0/weights.txt").read_text() == "0 8"
    began = sorted(path.name for path in scratch.rglob("began-at-*"))
    assert began == sorted([f"began-at-{step}" for step in (0, 2, 4, 6)] * 2), "it began anew instead of continuing"
    assert set(mlflow_states(toy).values()) == {"FINISHED"}


@pytest.mark.drawn("how an experiment ends", "tasks")
def test_it_ends_soon_also_if_its_server_has_ended_before(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed for minutes: Prefect asked again and again to record that it ends, and then waited at Python's end."""
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "elsewhere/prefect"))
    (toy / ".symposium" / "hold").write_text("2")
    scratch = toy / ".symposium" / "scratch"
    server = start_prefect(any_port(), ui=False)
    try:
        server.wait_until_healthy()
        with started(toy, *AT_ONCE, PREFECT_API_URL=f"{server.url}/api") as process:
            wait_for(lambda: len(list(scratch.rglob("2.bin"))) == 2 or process.poll() is not None, lambda: words(toy))
            server.stop()
            time.sleep(2.0)  # a run notices it
            os.kill(process.pid, signal.SIGTERM)
            status = process.wait(25)
            wait_for(lambda: not still_there(toy), lambda: f"all processes gone: {still_there(toy)}", 10)
    finally:
        server.stop()
    assert status == 143
    assert "Traceback" not in words(toy)
    assert words(toy).count("interrupted; run the same command again to continue") == 1, words(toy)
    assert set(mlflow_states(toy).values()) == {"KILLED"}


def client_states(lent: dict[str, str]) -> dict[str, str]:
    """Return the state that Prefect shows of the latest task run of every stage."""
    from prefect import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: lent["PREFECT_API_URL"]}), get_client(sync_client=True) as client:
        runs = sorted(client.read_task_runs(limit=200), key=lambda run: str(run.created))
    return {run.name: run.state.name for run in runs if run.state}


def mlflow_states(toy: Path) -> dict[str, str]:
    """Return what MLflow shows of every run; nothing while there is no database."""
    with contextlib.suppress(sqlite3.OperationalError):
        address = f"file:{toy}/.symposium/mlflow/mlflow.db?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as database:
            return dict(database.execute("SELECT name, status FROM runs"))
    return {}


def test_wrong_settings_end_it_before_anything_starts(toy: Path) -> None:
    (toy / "params.yaml").write_text("train: {stepz: 3}\n")
    said = call(toy, "python", *EXPERIMENT, status=2)
    assert "params.yaml: train.stepz: unknown key" in said
    assert "did you mean 'steps'?" in said
    assert "Traceback" not in said
    assert not (toy / ".symposium" / "prefect" / "prefect.db").exists()
    (toy / "params.yaml").unlink()
    assert "params.yaml: there is no such file" in call(toy, "python", *EXPERIMENT, status=2)
