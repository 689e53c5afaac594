"""What `symposium run --on` sends to workers: a commit that they can get from git's origin."""

import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import httpx
import pytest
from prefect import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows import deployments, on_pool, worker
from flows.worker import worker_command
from tasks.chain.graph import ChainError
from tasks.looks.records import LOOKS, PLANS, record
from tasks.runtime.exit_status import explained
from tasks.services.servers import ServerError
from tests.flows.project import ROOT, call
from tests.flows.toy_project import commit


def test_a_commit_that_only_another_remote_has_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (user := tmp_path / "user").mkdir()
    call(user, "git", "init", "-q", "-b", "main")
    (user / "code.py").write_text("1\n")
    commit(user, "start")
    for remote in ("origin", "fork"):
        call(tmp_path, "git", "clone", "-q", "--bare", "user", f"{remote}.git")
        call(user, "git", "remote", "add", remote, f"../{remote}.git")
        call(user, "git", "fetch", "-q", remote)
    url, first = on_pool._commit_on_origin(user)
    assert url == str(tmp_path / "origin.git"), "not from where this checkout is"
    (user / "code.py").write_text("2\n")
    assert on_pool._commit_on_origin(user) == (url, first)
    assert "not committed are not part of this run: code.py" in capsys.readouterr().out
    commit(user, "more")
    call(user, "git", "push", "-q", "fork", "main")
    with pytest.raises(ChainError, match="is not on origin, from where workers get it: git push"):
        on_pool._commit_on_origin(user)


@pytest.mark.parametrize(
    ("given", "queues"),
    [([], ["default"]), (["--queue", "gpu"], ["gpu"]), (["--queue", "gpu", "--queue", "default"], ["gpu", "default"])],
)
def test_a_run_that_asks_for_a_gpu_goes_to_no_worker_without_one(given: list[str], queues: list[str]) -> None:
    command = worker_command(worker.parser().parse_args(["lab", *given]))
    assert [word for option, word in pairwise(command) if option == "--work-queue"] == queues


def test_a_server_that_goes_away_while_a_worker_starts_is_waited_for(
    server: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worker would end, and the run that it was started for wait for ever."""
    asked = []

    def heartbeat() -> None:
        asked.append("heartbeat")
        assert PREFECT_CLIENT_MAX_RETRIES.value() == 1, "its pauses double: the worker would be late, and the run lost"
        if len(asked) < 3:
            raise httpx.ConnectError("All connection attempts failed")

    monkeypatch.setattr(worker, "heartbeat_automation", heartbeat)
    monkeypatch.setattr(worker, "_LOOK_S", 0.01)
    monkeypatch.setenv("PREFECT_API_URL", server["PREFECT_API_URL"])
    with temporary_settings(), get_client(sync_client=True) as client:
        assert worker.join_pool("patient") == "process" == client.read_work_pool("patient").type
        client.create_work_pool(WorkPoolCreate(name="containers", type="docker"))
        command = worker_command(worker.parser().parse_args(["containers"]), worker.join_pool("containers"))
        assert command[command.index("--type") + 1] == "docker", "else Prefect's worker refuses the pool"
    told = capsys.readouterr().out
    assert len(asked) == 4 and told.count("the Prefect server does not answer") == 1, told
    assert told.count("the Prefect server answers again") == 1, told


def test_a_run_that_cannot_be_cancelled_since_the_server_is_away_is_not_said_to_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}),
        pytest.raises(SystemExit) as ended,
        explained(),
    ):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            on_pool._cancel(uuid4())
            raise
    assert ended.value.code == 1 and "so the run is not cancelled: when it is back" in capsys.readouterr().err


def test_a_clock_that_becomes_wrong_under_a_worker_is_told_once(
    server: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", server["PREFECT_API_URL"])
    true, told = time.time, ""
    for shift in (0.0, 10.0, 40.0, 45.0, -3600.0, 0.0):
        monkeypatch.setattr(time, "time", lambda shift=shift: true() + shift)
        told = worker.tell_clock(told)
        if shift == -3600.0:
            with pytest.raises(ServerError, match="is 60 min behind that of the Prefect server at"):
                worker.require_server()
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("the clock of this machine is ") and " s ahead of that of the Prefect server at" in first
    assert "agree again" in last


def test_a_name_that_prefect_keeps_for_itself_is_refused_in_words(tmp_path: Path) -> None:
    assert "Prefect keeps names like Prefect-lab for itself" in call(
        tmp_path, sys.executable, "-m", "flows.worker", "Prefect-lab", status=2, PYTHONPATH=str(ROOT)
    )


def test_a_worker_with_other_libraries_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results are stale in the checkout that asked, which would be a surprise."""
    tags = deployments.asked_with()
    assert any(tag.startswith("with:torch ") for tag in tags) and any(tag.startswith("with:python 3") for tag in tags)
    assert deployments.asked_with_other_libraries(["run:brave-owl", *tags]) == ""
    here = deployments.library_versions()
    monkeypatch.setattr(deployments, "library_versions", lambda: {**here, "torch": "2.0.0+cu999"})
    assert (
        f"than the checkout that asks: torch 2.0.0+cu999 (there {here['torch']}); "
        in deployments.asked_with_other_libraries(tags)
    )


def no_server(**options: object) -> NoReturn:
    raise ServerError("no server")


def test_looks_and_plans_of_the_checkout_are_at_origin_before_the_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a run on a worker would call its look the first, and a change of the plan none."""
    (user := tmp_path / "user").mkdir()
    call(user, "git", "init", "-q", "-b", "main")
    (user / "params.yaml").write_text("{}")
    commit(user, "start")
    call(tmp_path, "git", "clone", "-q", "--bare", "user", "origin.git")
    call(user, "git", "remote", "add", "origin", str(tmp_path / "origin.git"))
    call(user, "git", "fetch", "-q", "origin")
    monkeypatch.chdir(user)
    monkeypatch.setattr(on_pool, "require_server", lambda: None)
    monkeypatch.setattr(on_pool, "get_client", no_server)
    record(PLANS, "1" * 64, {"seen": 1})
    with pytest.raises(ServerError, match="no server"):
        on_pool.run_on("none", {})
    assert "refs/symposium/plans/1111" in call(tmp_path / "origin.git", "git", "for-each-ref")
    (hook := tmp_path / "origin.git/hooks/pre-receive").write_text("#!/bin/sh\necho no looks here >&2\nexit 1\n")
    hook.chmod(0o755)
    record(LOOKS, "2" * 64, {"seen": 1})
    with pytest.raises(ServerError, match="no server"):
        on_pool.run_on("none", {})
    assert "could not be sent to origin, and do not count in this run" in capsys.readouterr().out
