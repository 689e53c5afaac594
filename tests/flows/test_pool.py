"""A run on a pool of two workers that share the team's servers and git's origin; one is lost in training."""

import re
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient
from prefect import get_client
from prefect.settings import temporary_settings

from flows.worker import starts
from pipeline_lib.storage import folder_digest
from pipeline_lib.tracking.runs import RunKey, RunRecorder
from tests.flows.project import SMALL, call, make_project
from tests.flows.team_servers import RESULTS, Servers, team_servers
from tests.flows.toy_project import started, wait_for, words
from tests.needs import needs

pytestmark = [needs("team servers"), pytest.mark.service, pytest.mark.timeout(1500)]

WHO = {f"GIT_{who}_{what}": "t@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
RUN = ("-m", "symposium", "run", "--on", "lab", "--name", "far away", "-S", "train.steps=30")


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """The servers of a team, with passwords."""
    with team_servers() as found:
        yield found


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A project with a store, of which there are three clones: two workers, and a user's; returns their folder."""
    project = make_project(tmp_path / "main", {**SMALL, "evaluate": {**SMALL["evaluate"], "baselines": []}})
    call(project, "dvc", "remote", "add", "-q", "--default", "store", f"s3://{RESULTS}/lab")
    call(project, "git", "commit", "-qam", "store", **WHO)
    call(tmp_path, "git", "clone", "-q", "--bare", str(project), "origin.git")
    for name in ("user", "one", "two"):
        call(tmp_path, "git", "clone", "-q", "origin.git", name)
    return tmp_path


def test_a_run_whose_worker_and_servers_are_lost_goes_on_to_the_same_bytes(
    origin: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, team = origin / "user", {**servers.variables, **WHO}
    worker = ("-m", "symposium", "worker", "lab")
    for command in (RUN, worker):
        assert "set PREFECT_API_URL" in call(user, "python", *command, status=1)
        wrong = team | {"PREFECT_API_AUTH_STRING": "symposium:anything"}
        assert "refuses the password" in call(user, "python", *command, status=1, **wrong)
    assert "symposium worker lab" in call(user, "python", *RUN, status=1, **team), "there is no such pool yet"
    found = " ".join(call(user, "python", "-m", "symposium", "doctor", **team).split())
    assert "wrong checksums and conditions that do not hold are refused" in found, found
    with started(origin / "one", *worker, **team):
        wait_for(lambda: "started!" in words(origin / "one"), lambda: words(origin / "one"))
        with started(user, *RUN, **team) as asked:
            wait_for(lambda: servers.records() or asked.poll() is not None, lambda: words(user), timeout_s=600)
            lose(origin / "one")
            assert servers.records(), words(user)
            with started(origin / "two", *worker, **team):
                for name in ("store", "postgres", "prefect"):
                    servers.kill(name)
                    wait_for(servers.are_well, servers.words)
                wait_for(lambda: asked.poll() is not None, lambda: words(user), timeout_s=1000)
    assert asked.returncode == 0, words(user)
    assert re.search(r"continued from step \d+, which another machine has sent", words(user)), words(user)
    assert "dvc exp pull origin far-away && dvc exp apply far-away" in words(user)
    assert not servers.files("lab/training/"), "copies of a training that has ended are removed"
    for name, value in servers.variables.items():
        monkeypatch.setenv(name, value)
    with temporary_settings(), get_client(sync_client=True) as client:
        (run,) = [run for run in client.read_flow_runs() if run.deployment_id]
        assert run.state is not None and run.state.is_completed()
        assert starts(client.read_flow_run_states(run.id)) == 2
    tracked = MlflowClient(servers.variables["MLFLOW_TRACKING_URI"])
    runs = [run for found in tracked.search_experiments() for run in tracked.search_runs([found.experiment_id])]
    names = [run.info.run_name for run in runs]
    assert len(names) == len(set(names)) and "far away" in names, "none is lost, none is there twice"

    call(user, "dvc", "exp", "pull", "-q", "origin", "far-away", **team)
    call(user, "dvc", "exp", "apply", "-q", "far-away", **team)
    assert "0 of" in (said := call(user, "symposium", "run")) or "everything is up to date" in said, said
    call(main := origin / "main", "symposium", "run", "-S", "train.steps=30", "train@0")
    trained = "models/trained/team-0"
    assert folder_digest(user / trained) == folder_digest(main / trained)

    servers.comes_back_from_a_backup(origin)


def test_the_pages_of_prefect_lie_in_the_folder_of_the_servers(servers: Servers) -> None:
    # beside Prefect's code the user of a container may write nothing, and then there are none
    address = servers.variables["PREFECT_API_URL"].removesuffix("/api")
    browser = urllib.request.Request(address, headers={"Accept": "text/html"})
    with urllib.request.urlopen(browser, timeout=30) as answer:
        page = answer.read()
    assert page in [file.read_bytes() for file in (servers.folder / "prefect/pages").glob("*/index.html")]


@needs("faketime")
@pytest.mark.parametrize(("shift", "side"), [("+1h", "ahead of"), ("-1h", "behind")])
def test_a_wrong_clock_is_told_before_anything_waits_for_it(
    origin: Path, servers: Servers, shift: str, side: str
) -> None:
    """A run was to begin an hour later, a worker took none, or one whose results the store refused at the end."""
    user, team = origin / "user", {**servers.variables, **WHO}
    wrong = f"the clock of this machine is 60 min {side} that of "
    for command in (("-m", "symposium", "worker", "lab"), RUN):
        told = call(user, "faketime", "-f", shift, "python", *command, status=1, **team)
        assert f"{wrong}the Prefect server at" in " ".join(told.split())
    own = {name: value for name, value in team.items() if not name.startswith(("PREFECT", "MLFLOW"))}
    share = ("symposium", "run", "--share", "--plain", "prepare")
    told = call(user, "faketime", "-f", shift, *share, status=1, **own)
    assert f"results cannot be shared: {wrong}the store; set the wrong one" in " ".join(told.split())
    assert not (user / "data").exists(), "no stage began"
    told = " ".join(call(user, "faketime", "-f", shift, "symposium", "doctor", status=1, **team).split())
    assert f"{wrong}the Prefect server at" in told and f"could not be written: {wrong}the store" in told


def test_ten_machines_that_begin_together_make_each_run_once(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in servers.variables.items():
        monkeypatch.setenv(name, value)
    parts = ("", *(f"train seed {seed}" for seed in range(3)))
    keys = [RunKey("ten", "brave-owl", "digest", part, f"brave-owl {part}".strip()) for part in parts]
    together = threading.Barrier(10)

    def write(number: int) -> tuple[str, ...]:
        (own := tmp_path / f"machine-{number}").mkdir()  # no lock is shared
        recorder = RunRecorder(servers.variables["MLFLOW_TRACKING_URI"], own)
        together.wait(60)
        return tuple(recorder.ids(key)[1] for key in keys)

    with ThreadPoolExecutor(10) as pool:
        found = set(pool.map(write, range(10)))
    tracked = MlflowClient(servers.variables["MLFLOW_TRACKING_URI"])
    experiment = tracked.get_experiment_by_name("ten")
    assert experiment is not None and len(found) == 1, "all write to the same runs"
    assert {run.info.run_id for run in tracked.search_runs([experiment.experiment_id])} == set(*found)


def lose(machine: Path) -> None:
    """Kill everything that runs on a machine, whose processes share a home."""
    for process in psutil.process_iter():
        try:
            if process.environ().get("SYMPOSIUM_HOME") == str(machine / ".symposium"):
                process.kill()
        except psutil.Error:
            continue
