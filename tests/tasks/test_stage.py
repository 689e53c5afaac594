"""A stage from outside: exit status, messages, MLflow run, Prefect run and artifacts, on real servers."""

import contextlib
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from prefect import get_client
from prefect.client.schemas.filters import ArtifactFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun

from pipeline_lib.tracking import Tracker
from tasks.runtime.flow_runs import PARENT_TASK
from tasks.runtime.stage import artifact_key
from tasks.services.servers import UI_URL, any_port
from tasks.services.stage_proxy import ADDRESS
from tests.flows.project import BEGAN_WITH
from tests.flows.toy_project import still_there, wait_for

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.service

STAGE = """
import errno, os, sys, time
from pathlib import Path

from prefect import flow

from pipeline_lib.settings import load_params
from tasks.runtime.stage import RefusedError, main, stage


@flow(name="count")
def count(mode: str, seed: int) -> None:
    with stage("count", load_params(), seed) as run:
        for step in range(1, 4):
            run.log(step, {"reward": float(step)})
            run.progress(step, 3, f"reward {step}")
        run.table("scores", [{"problem": "p-1", "reward": 1.0}], "By problem")
        Path("begun").touch()
        if mode == "wait":
            time.sleep(300)
        if mode == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "models/x")
        if mode == "refused":
            Path("found").write_text("no")
            raise RefusedError("the reward audit failed: doing nothing wins")
        if mode == "unknown":
            Path("page").touch()
            run.tracked.artifact(Path("page"))
            Path("page").unlink()
        if mode == "defect":
            raise ValueError("nobody expected this")


if __name__ == "__main__":
    main(count, mode=sys.argv[1], seed=0)
"""


AS_IN_FLOWS = """
from tasks.services.process_environment import prepare
from tasks.services.stage_proxy import run_in_preloaded

prepare()
run_in_preloaded()
"""


class Project:
    """A folder with one stage, and what is known of it afterwards."""

    def __init__(self, folder: Path, ready: dict[str, str]) -> None:
        self.folder = folder
        self.server, self.libraries = {**ready}, {ADDRESS: ready[ADDRESS]}
        del self.server[ADDRESS]
        (folder / "stages").mkdir()
        (folder / "stages/__init__.py").write_text(AS_IN_FLOWS)
        (folder / "stages/count.py").write_text(STAGE)
        (folder / "params.yaml").write_text("{}\n")

    def start(self, mode: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "stages.count", mode],
            cwd=self.folder,
            env={**BEGAN_WITH, **self.server, "SYMPOSIUM_RUN": self.folder.name, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, mode: str, **variables: str) -> tuple[int, str]:
        """Run the stage as a chain does, in a fork that need not load the libraries; return its status and words."""
        process = self.start(mode, **self.libraries, **variables)
        said, _ = process.communicate(timeout=300)
        return process.returncode, said

    def tracked(self) -> dict[str, Run]:
        """Return the run and its parts, these by their names without the run's."""
        return {run.info.run_name.removeprefix(f"{self.folder.name} "): run for run in self.all_tracked()}

    def all_tracked(self) -> list[Run]:
        home = Path(os.environ["SYMPOSIUM_HOME"], "mlflow")
        assert Tracker(home, "coding", "afterwards").close(120)  # sends what an interrupted process had no time for
        client = MlflowClient(f"sqlite:///{home}/mlflow.db")
        experiment = client.get_experiment_by_name("coding")
        assert experiment is not None
        return list(client.search_runs([experiment.experiment_id], f"tags.`symposium.run` = '{self.folder.name}'"))

    def flow_run(self) -> FlowRun:
        with get_client(sync_client=True) as client:
            tagged = FlowRunFilter(tags={"all_": [f"run:{self.folder.name}"]})
            return client.read_flow_runs(flow_run_filter=tagged)[0]


@pytest.fixture
def project(tmp_path: Path, prefect: str, ready: dict[str, str]) -> Project:
    (tmp_path / tmp_path.name).mkdir()
    return Project(tmp_path / tmp_path.name, ready)


def test_a_stage_that_works_is_in_both_tools_under_one_name(project: Project) -> None:
    status, said = project.run("work")
    assert status == 0, said
    assert "count seed 0: 3/3  100%  reward 3" in said and "not recorded in MLflow" not in said
    runs, name = project.tracked(), project.folder.name
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert runs["count seed 0"].data.metrics == {"reward": 3.0}
    assert runs[name].data.params["train.learning_rate"]
    flow_run = project.flow_run()
    assert flow_run.name == f"{name} count mode work seed 0"
    assert flow_run.state is not None
    assert flow_run.state.is_completed()
    assert runs["count seed 0"].data.tags["prefect.flow_run_id"] == str(flow_run.id)
    with get_client(sync_client=True) as client:
        of_the_run = ArtifactFilter(flow_run_id={"any_": [flow_run.id]})
        shown = {artifact.key: artifact for artifact in client.read_artifacts(artifact_filter=of_the_run)}
    assert set(shown) == {"count-seed-0-progress", "count-seed-0-scores", "count-seed-0-mlflow"}
    assert float(shown["count-seed-0-progress"].data) == 100.0
    assert json.loads(shown["count-seed-0-scores"].data) == [{"problem": "p-1", "reward": 1.0}]
    assert runs["count seed 0"].info.run_id in str(shown["count-seed-0-mlflow"].data)
    for settings, count in (("{}", 1), ("train: {steps: 77}", 2)):  # under one name, other settings are another run
        (project.folder / "params.yaml").write_text(f"{settings}\n")
        status, said = project.run("work")
        assert status == 0, said
        assert [run.data.tags.get("stage") for run in project.all_tracked()].count("count") == count


@pytest.mark.drawn("a stage and the servers", "tasks", count=3)
def test_an_error_that_explains_itself_is_a_message_and_a_status(project: Project) -> None:
    status, said = project.run("full")
    assert status == 1
    assert "error: [Errno 28] No space left on device: 'models/x'; the disk is full: free some space" in said
    assert "Traceback" not in said
    assert {run.info.status for run in project.tracked().values()} == {"FAILED"}


@pytest.mark.drawn("a stage and the servers", "tasks", count=3)
def test_a_defect_keeps_its_traceback_once(project: Project) -> None:
    status, said = project.run("defect")
    assert status == 1
    assert said.count("Traceback") == 1
    assert "error: ValueError: nobody expected this (see above)" in said


@pytest.mark.drawn("a stage and the servers", "tasks", count=3)
def test_a_refusal_is_shown_as_failed_and_what_was_found_is_kept(project: Project) -> None:
    status, said = project.run("refused")
    assert status == 0, said
    assert "refused: the reward audit failed: doing nothing wins" in said
    assert "Traceback" not in said
    assert (project.folder / "found").exists()
    assert project.tracked()["count seed 0"].info.status == "FAILED"
    state = project.flow_run().state
    assert state is not None
    assert state.is_failed()
    assert "doing nothing wins" in str(state.message)


@pytest.mark.drawn("a stage and the servers", "tasks", count=3)
def test_what_mlflow_refuses_is_a_warning_of_the_stage(project: Project) -> None:
    status, said = project.run("unknown")
    assert status == 0, said
    assert f"not recorded in MLflow: artifact of {project.folder.name} count seed 0: FileNotFoundError" in said


@pytest.mark.drawn("a stage and the servers", "tasks", count=3)
@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_interrupted_it_says_so_to_everybody(project: Project, number: int, expected: int) -> None:
    process = project.start("wait")
    while not (project.folder / "begun").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(process.pid, number)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == expected, said
    assert "Traceback" not in said
    assert {run.info.status for run in project.tracked().values()} == {"KILLED"}
    state = project.flow_run().state
    assert state is not None
    assert state.is_crashed()
    if number == signal.SIGINT:
        assert "run the same command again to continue" in said


@pytest.mark.drawn("a stage and the servers", "tasks", count=3)
def test_wrong_settings_end_it_before_prefect_is_asked(project: Project) -> None:
    (project.folder / "params.yaml").write_text("train: {learning_rate: -1}\n")
    status, said = project.run("work", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert status == 2
    assert "params.yaml: train.learning_rate: got -1" in said
    assert "Traceback" not in said


@pytest.mark.drawn("a stage and the servers", "tasks", count=3)
def test_a_prefect_server_that_is_down_is_named(project: Project) -> None:
    status, said = project.run("work", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert status == 1
    assert "error: the Prefect server at http://127.0.0.1:9/api does not answer" in said
    assert "Traceback" not in said


@pytest.mark.drawn("a stage and the servers", "tasks", count=3)
def test_a_server_that_is_away_when_a_stage_of_a_run_begins_is_waited_for(project: Project, prefect: str) -> None:
    """A run of hours on a worker failed if its server was away while one stage ended and the next one began."""
    address, away = urlsplit(prefect), f"http://127.0.0.1:{any_port()}"
    run = {PARENT_TASK: str(uuid4()), "PREFECT_API_URL": f"{away}/api"}
    status, said = project.run("work", **run, **{UI_URL: ""})
    assert status == 1 and "does not answer; start it" in said, "its own server, which nobody starts again"
    process = project.start("work", **run, **{UI_URL: prefect})
    assert process.stdout is not None
    while "does not answer; waiting for it" not in (line := process.stdout.readline()):
        assert line, "it did not wait"
    with forwarding(urlsplit(away).port or 0, address.port or 0):
        said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    state = project.flow_run().state
    assert state is not None and state.is_completed()


@contextlib.contextmanager
def forwarding(port: int, to: int) -> Iterator[None]:
    """Let the server at one port of this machine answer at another one, too."""

    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", to)) as server:
                back = threading.Thread(target=pump, args=(server, self.request), daemon=True)
                back.start()
                pump(self.request, server)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", port), Handler) as forwarder:
        forwarder.daemon_threads = True
        forwarder.block_on_close = False
        threading.Thread(target=forwarder.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield
        finally:
            forwarder.shutdown()


@pytest.mark.drawn("a stage and the servers", "tasks", count=3)
def test_a_tracking_server_that_is_down_does_not_stop_the_work(project: Project) -> None:
    status, said = project.run("work", MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert status == 0, said
    assert said.count("cannot reach the server") == 1
    waiting = list(Path(os.environ["SYMPOSIUM_HOME"], "mlflow", "waiting").rglob("*.jsonl"))
    assert any(project.folder.name in file.read_text() for file in waiting)


def test_artifact_keys() -> None:
    assert artifact_key("train Team", "seed 0/Progress_") == "train-team-seed-0-progress"


@pytest.mark.drawn("a stage and the servers", "tasks", count=3)
def test_the_server_of_a_stage_that_is_killed_ends_with_it(tmp_path: Path) -> None:
    code = (
        "import time\nfrom tasks.runtime.stage import connected_prefect\n"
        "with connected_prefect():\n    print('up', flush=True)\n    time.sleep(300)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"}
    environment |= {"SYMPOSIUM_HOME": str(tmp_path / ".symposium"), "PYTHONPATH": str(ROOT)}
    environment.pop("PREFECT_HOME", None)
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert [line for line in still_there(tmp_path) if "prefect" in line]
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not still_there(tmp_path), lambda: f"still there: {still_there(tmp_path)}", 30)
