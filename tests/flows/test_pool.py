"""A run on a pool of two workers that share nothing but a server, a store and git's origin; one is lost in training."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from prefect import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from pipeline_lib.storage import folder_digest
from tasks.services.process_environment import answers
from tests.flows.project import SMALL, call, make_project
from tests.flows.toy_project import started, wait_for, words

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.timeout(1500)]

WHO = {f"GIT_{who}_{what}": "t@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
RUN = ("-m", "symposium", "run", "--on", "lab", "--name", "far away", "-S", "train.steps=30")


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prefect server for people; returns the address of its API."""
    folder = tmp_path_factory.mktemp("servers") / "prefect"
    folder.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with started(folder, *command, PREFECT_HOME=str(folder)):
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: answers(url, "prefect"), lambda: words(folder))
        yield f"{url}/api"


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A project with a store, of which there are three clones: two workers, and a user's; returns their folder."""
    project = make_project(tmp_path / "main", {**SMALL, "evaluate": {**SMALL["evaluate"], "baselines": []}})
    call(project, "dvc", "remote", "add", "-q", "--default", "store", str(tmp_path / "store"))
    call(project, "git", "commit", "-qam", "store", **WHO)
    call(tmp_path, "git", "clone", "-q", "--bare", str(project), "origin.git")
    for name in ("user", "one", "two"):
        call(tmp_path, "git", "clone", "-q", "origin.git", name)
    return tmp_path


def test_a_run_whose_worker_is_lost_goes_on_at_another_to_the_same_bytes(origin: Path, prefect: str) -> None:
    user, server = origin / "user", {"PREFECT_API_URL": prefect, **WHO}
    worker = ("-m", "symposium", "worker", "lab")
    for command in (RUN, worker):
        assert "set PREFECT_API_URL" in call(user, "python", *command, status=1)
    assert "symposium worker lab" in call(user, "python", *RUN, status=1, **server), "there is no such pool yet"
    with started(origin / "one", *worker, **server):
        wait_for(lambda: "started!" in words(origin / "one"), lambda: words(origin / "one"))
        with started(user, *RUN, **server) as asked:
            store = origin / "store/training"
            wait_for(lambda: list(store.glob("*/record-*.json")) or asked.poll() is not None, lambda: words(user))
            lose(origin / "one")
            assert list(store.glob("*/record-*.json")), words(user)
            with started(origin / "two", *worker, **server):
                wait_for(lambda: asked.poll() is not None, lambda: words(user), timeout_s=1000)
    assert asked.returncode == 0, words(user)
    assert re.search(r"continued from step \d+, which another machine has sent", words(user)), words(user)
    assert "dvc exp pull origin far-away && dvc exp apply far-away" in words(user)
    assert not list(store.iterdir()), "copies of a training that has ended are removed"
    with temporary_settings({PREFECT_API_URL: prefect}), get_client(sync_client=True) as client:
        (run,) = [run for run in client.read_flow_runs() if run.deployment_id]
        assert run.state is not None and run.state.is_completed() and run.run_count == 2

    call(user, "dvc", "exp", "pull", "-q", "origin", "far-away")
    call(user, "dvc", "exp", "apply", "-q", "far-away")
    assert "0 of" in (said := call(user, "symposium", "run")) or "everything is up to date" in said, said
    call(main := origin / "main", "symposium", "run", "-S", "train.steps=30", "train@0")
    trained = "models/trained/team-0"
    assert folder_digest(user / trained) == folder_digest(main / trained)


def lose(machine: Path) -> None:
    """Kill everything that runs on a machine, whose processes share a home."""
    for process in psutil.process_iter():
        try:
            if process.environ().get("SYMPOSIUM_HOME") == str(machine / ".symposium"):
                process.kill()
        except psutil.Error:
            continue
