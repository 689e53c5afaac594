"""Results that go to a store after each stage, and come from there: two checkouts, a store and an origin."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.chain import sharing as module
from tasks.chain.graph import ChainError
from tasks.chain.sharing import send_experiment, sharing
from tasks.chain.stage_process import StageFailedError
from tasks.looks.records import LOOKS, PLANS, record, records

PIPELINE = """
stages:
  make:
    cmd: echo made >> log.txt && echo result > made.txt
    deps: [source.txt]
    outs: [made.txt]
"""


def run(folder: Path, *command: str) -> str:
    done = subprocess.run([*command], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def dvc(folder: Path, *arguments: str) -> str:
    return run(folder, sys.executable, "-m", "dvc", *arguments)


@pytest.fixture
def project(empty_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an origin and a store, which is the working folder; another checkout of it is beside it."""
    monkeypatch.setattr(module, "WAITS_S", (0.0,))
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "t")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "t@localhost")
    run(tmp_path, "git", "init", "-q", "--bare", "-b", "main", "origin.git")
    run(tmp_path, "git", "clone", "-q", "origin.git", "one")
    (one := tmp_path / "one").joinpath("dvc.yaml").write_text(PIPELINE)
    (one / "source.txt").write_text("source")
    shutil.copytree(empty_project, one, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
    store = f"['remote \"store\"']\n    url = {tmp_path / 'store'}\n"
    (one / ".dvc/config").write_text(f"[core]\n    remote = store\n{store}")
    run(one, "git", "add", "-A")
    run(one, "git", "commit", "-q", "-m", "start")
    run(one, "git", "push", "-q", "origin", "HEAD:main")
    run(tmp_path, "git", "clone", "-q", "origin.git", "two")
    monkeypatch.chdir(one)
    return one


@pytest.mark.drawn("sharing", "tasks", count=3)
def test_what_one_checkout_made_another_has_without_work_and_looks_too(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sharing(project) as ended:
        dvc(project, "repro", "-q", "make")
        record(LOOKS, "0" * 64, {"seen": 1})
        ended.put("make")
    assert "refs/symposium/looks/" in run(tmp_path / "origin.git", "git", "for-each-ref")
    monkeypatch.chdir(two := tmp_path / "two")
    with sharing(two):
        assert "is cached - skipping run" in dvc(two, "repro", "--pull", "make")
    assert (two / "made.txt").read_text() == "result\n" and not (two / "log.txt").exists(), "nothing ran"


@pytest.mark.drawn("sharing", "tasks", count=3)
def test_a_file_that_was_damaged_in_the_store_is_made_again(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sharing(project):
        dvc(project, "repro", "-q", "make")
    (kept,) = [
        path for path in (tmp_path / "store/files").rglob("*") if path.is_file() and path.read_bytes() == b"result\n"
    ]
    kept.chmod(0o644)
    kept.write_bytes(b"rasult\n")
    kept.chmod(0o444)  # as DVC had left it
    monkeypatch.chdir(two := tmp_path / "two")
    with sharing(two):
        dvc(two, "repro", "--pull", "make")
    assert (two / "made.txt").read_text() == "result\n" and (two / "log.txt").exists(), "it ran"
    assert run(two, "git", "status", "--porcelain", "--untracked-files=no") == "", "the project's settings stay"


@pytest.mark.drawn("sharing", "tasks", count=3)
def test_a_stage_is_sent_when_it_ends_and_not_only_with_the_run(project: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), sharing(project) as ended:
        dvc(project, "repro", "-q", "make")
        ended.put("make")
        raise KeyboardInterrupt  # the run does not reach its end
    assert list((tmp_path / "store/files").rglob("*")), "sent all the same"


@pytest.mark.drawn("sharing", "tasks", count=3)
def test_a_record_that_two_checkouts_made_goes_to_origin_and_stays_as_each_made_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs at the same moment register one plan, each with its own time."""
    for folder, seen in ((project, 1), (tmp_path / "two", 2)):
        monkeypatch.chdir(folder)
        record(PLANS, "1" * 64, {"seen": seen})
        record(LOOKS, f"{seen}" * 64, {"seen": seen})
        with sharing(folder):
            pass
        assert records(PLANS) == [{"seen": seen}]
    assert len(run(tmp_path / "origin.git", "git", "for-each-ref", "refs/symposium/").splitlines()) == 3


@pytest.mark.drawn("sharing", "tasks", count=3)
def test_dvc_pulls_experiments_into_a_repository_with_records(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dvc(project, "repro", "-q", "make")
    dvc(project, "exp", "save", "-q", "--name", "first")
    dvc(project, "exp", "push", "-q", "origin", "first")
    monkeypatch.chdir(two := tmp_path / "two")
    record(LOOKS, "0" * 64, {"seen": 1})
    with sharing(two):
        pass
    assert records(LOOKS) == [{"seen": 1}]
    dvc(two, "exp", "pull", "-q", "origin", "first")
    dvc(two, "exp", "apply", "-q", "first")
    assert (two / "made.txt").read_text() == "result\n"


@pytest.mark.drawn("sharing", "tasks", count=3)
def test_two_experiments_of_one_name_that_end_on_two_machines_both_reach_origin(
    project: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """DVC sends the second one not, and ends with status 0."""
    for number, folder in enumerate((project, tmp_path / "two")):
        (folder / "source.txt").write_text(f"source {number}")
        dvc(folder, "repro", "-q", "make")
        dvc(folder, "exp", "save", "-q", "--name", "same")
    assert send_experiment(project, "same") == "same" == send_experiment(project, "same")
    assert send_experiment(tmp_path / "two", "same") == "same-2"
    assert "another run has sent an experiment called same; this one is same-2" in caplog.text
    assert {line.rpartition("/")[2] for line in run(project, "git", "ls-remote", "origin", "refs/exps/*").split()} >= {
        "same",
        "same-2",
    }
    # At another commit it would be another ref of the same name, which `dvc exp pull origin same` refuses as ambiguous.
    (project / "source.txt").write_text("more")
    run(project, "git", "commit", "-q", "-am", "more")
    dvc(project, "exp", "save", "-q", "--name", "same-2")
    assert send_experiment(project, "same-2") == "same-2-2"


@pytest.mark.drawn("sharing", "tasks", count=3)
def test_an_experiment_is_sent_again_until_origin_takes_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dvc(project, "repro", "-q", "make")
    dvc(project, "exp", "save", "-q", "--name", "late")
    (origin := tmp_path / "origin.git").rename(away := tmp_path / "away")
    with pytest.raises(ChainError, match=r"experiment late could not be sent to git's origin: (?s:.*) in the store"):
        send_experiment(project, "late")
    monkeypatch.setattr(module.time, "sleep", lambda wait_s: away.rename(origin))
    assert send_experiment(project, "late") == "late"
    assert "tried again" in caplog.text


@pytest.mark.drawn("sharing", "tasks", count=3)
def test_an_origin_that_refuses_records_keeps_no_results_back(project: Path, tmp_path: Path) -> None:
    (hook := tmp_path / "origin.git/hooks/pre-receive").write_text("#!/bin/sh\necho no looks here >&2\nexit 1\n")
    hook.chmod(0o755)
    for digit in "12345":
        record(LOOKS, digit * 64, {"seen": 1})
    dvc(project, "repro", "-q", "make")
    refused = r"^records of plans, sweeps and looks could not .*no looks here"
    with pytest.raises(ChainError, match=refused) as told, sharing(project):
        pass
    assert len(str(told.value).splitlines()) == 4, "not a line for each record"
    assert list((tmp_path / "store/files").rglob("*"))


@pytest.mark.drawn("sharing", "tasks", count=3)
@pytest.mark.parametrize("ending", [KeyboardInterrupt, StageFailedError("stage train failed: no memory")])
def test_a_run_that_fails_ends_with_its_own_error_and_does_not_wait_for_the_store(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ending: type[BaseException] | BaseException,
) -> None:
    monkeypatch.setattr(module, "WAITS_S", (3600.0,))
    (tmp_path / "store").write_text("no folder")
    dvc(project, "repro", "-q", "make")
    with pytest.raises((KeyboardInterrupt, StageFailedError)), sharing(project) as ended:
        ended.put("make")
        raise ending
    assert "they are on this machine only" in caplog.text


@pytest.mark.drawn("sharing", "tasks", count=3)
def test_a_store_that_is_away_costs_no_results_and_the_same_command_sends_them(
    project: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "store").write_text("no folder")
    with (
        pytest.raises(ChainError, match="on this machine only; the same command sends them") as told,
        sharing(project) as ended,
    ):
        dvc(project, "repro", "-q", "make")
        ended.put("make")
        while "results of make could not be shared, tried again in 0 s" not in caplog.text:
            time.sleep(0.05)  # beside the run
    assert (project / "made.txt").exists() and "could not be shared" in str(told.value)
    (tmp_path / "store").unlink()
    with sharing(project):
        pass  # nothing is left to do
    assert list((tmp_path / "store/files").rglob("*"))


def test_a_store_that_is_full_is_named_and_no_other_disk(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What DVC said when the store was a folder on a full disk."""
    said = "\n".join(
        f"failed to transfer 'cache/{n}' - [Errno 28] No space left on device: 'cache/{n}'" for n in range(9)
    )

    def full(*_: object) -> str:
        raise ChainError(f"{said}\nERROR: failed to push data to the cloud - 9 files failed to upload")

    monkeypatch.setattr(module, "ask", full)
    for room, says in ((0, "the store is full\n"), (1 << 60, "(8 further lines)")):
        monkeypatch.setattr(module, "_ROOM", room)
        with pytest.raises(ChainError) as told:
            module._send(project, "make", pause=lambda wait_s: None)
        assert says in str(told.value)
        assert "the same command sends them when the store takes them" in str(told.value)
    assert "tried again in 0 s: the store is full" in caplog.text


def test_an_empty_origin_takes_no_records_before_there_are_any(project: Path, tmp_path: Path) -> None:
    run(tmp_path, "git", "init", "-q", "--bare", "empty.git")
    run(project, "git", "remote", "set-url", "origin", str(tmp_path / "empty.git"))
    with sharing(project):
        pass


def test_a_full_seaweedfs_is_told_as_such(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What DVC said when SeaweedFS was on a full disk."""
    why = "[Errno 121] We encountered an internal error, please try again.: An error occurred (InternalError)"
    said = f"failed to transfer 'fd5b' - {why}\nERROR: failed to push data to the cloud - 3 files failed to upload"

    def full(*_: object) -> str:
        raise ChainError(said)

    monkeypatch.setattr(module, "ask", full)
    with pytest.raises(ChainError, match=r"the store takes no files .* as SeaweedFS does when its disk is full\n"):
        module._send(project, "make", pause=lambda _: False)
    assert "tried again in 0 s: the store takes no files" in caplog.text


def test_a_clock_that_is_wrong_is_named_in_place_of_every_file(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What DVC said when its machine was an hour ahead of the store."""
    said = (
        "failed to transfer '/lab/.dvc/cache/runs/a6' - The difference between the request time and the server's time "
        "is too large.: An error occurred (RequestTimeTooSkewed) when calling the PutObject operation\n"
        "ERROR: unexpected error - Forbidden: An error occurred (403) when calling the HeadObject operation: Forbidden"
    )

    def skewed(*_: object) -> str:
        raise ChainError(said)

    monkeypatch.setattr(module, "ask", skewed)
    with pytest.raises(ChainError, match=r"could not be shared: the clocks of this machine .* differ") as told:
        module._send(project, "make", pause=lambda _: False)
    assert "a6" not in str(told.value) + caplog.text


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("", r"set one, for example `dvc remote add --default store s3://"),
        ("[core]\nremote = a\n['remote \"a\"']\nurl = https://a.example/b\n", "DVC keeps no run cache over http"),
        ("[core]\nremote = a\n['remote \"a\"']\nurl = file:///a/b\n", "give the path, without file:"),
        ("[core", "config file error"),
    ],
)
def test_without_a_remote_that_serves_it_says_so_at_once(project: Path, config: str, words: str) -> None:
    (project / ".dvc/config").write_text(config)
    with pytest.raises(ChainError, match=words), sharing(project):
        pass
