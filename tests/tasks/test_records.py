"""Records of looks: in git, of the project whatever the working tree, kept by whoever comes first."""

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from tasks.looks import records as store
from tasks.looks.records import LOOKS, PLANS, PROJECT, RecordsError, counted_since, record, records


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def look(run: str, time: str = "2026-11-01T10:00:00") -> dict[str, str]:
    return {"run": run, "time": time}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "params.yaml").write_text("{}")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "start")
    monkeypatch.chdir(folder)
    return folder


def test_a_record_is_kept_once_and_the_first_one_stays(project: Path) -> None:
    assert records(LOOKS) == []
    record(LOOKS, "a" * 64, {"run": "ä\n1", "time": 1})
    record(LOOKS, "a" * 64, {"run": "second"})
    record(LOOKS, "b" * 64, {"run": "other"})
    found = sorted(records(LOOKS), key=str)
    assert found == [{"run": "other"}, {"run": "ä\n1", "time": 1}]
    assert records("plans") == []
    assert git(project, "status", "--porcelain") == "", "the working tree stays clean"


def test_records_outlive_everything_but_the_repository(project: Path) -> None:
    record(LOOKS, "a" * 64, {"run": "1"})
    (project / "results").mkdir()
    git(project, "checkout", "-q", "-b", "elsewhere")
    git(project, "commit", "-q", "--allow-empty", "-m", "more")
    git(project, "reset", "-q", "--hard", "HEAD~1")
    git(project, "clean", "-qfdx")
    git(project, "gc", "-q", "--prune=now")
    assert records(LOOKS) == [{"run": "1"}]
    copy = project.parent / "copy"
    git(project, "clone", "-q", ".", str(copy))
    git(copy, "fetch", "-q", "origin", "refs/symposium/*:refs/symposium/*")
    assert git(copy, "for-each-ref", "refs/symposium") == git(project, "for-each-ref", "refs/symposium")


def test_a_fetch_that_prunes_deletes_no_record(project: Path) -> None:
    git(project, "clone", "-q", "--bare", ".", str(project.parent / "origin.git"))
    git(project, "remote", "add", "origin", str(project.parent / "origin.git"))
    record(LOOKS, "a" * 64, look("here"))
    git(project, "-c", "fetch.prune=true", "fetch", "-q", "origin", "refs/symposium/*:refs/symposium/*")
    assert records(LOOKS) == [look("here")]
    record(LOOKS, "a" * 64, look("again"))
    assert records(LOOKS) == [look("here")], "the first one stays"
    git(project, "push", "-q", "origin", "refs/symposium/*:refs/symposium/*")
    assert "refs/symposium/looks/" in git(project.parent / "origin.git", "for-each-ref")


def test_a_lock_that_a_killed_git_left_is_in_nobodys_way(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of 150 kills of ``git update-ref`` 7 left one, and then the look was never counted."""
    monkeypatch.setattr(store, "_HELD_S", 0.2)
    for number, folder in enumerate(("symposium", "symposium-kept")):
        lock = project / f".git/refs/{folder}/looks/{number}{'a' * 63}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
        record(LOOKS, f"{number}{'a' * 63}", look("here"))
        assert len(records(LOOKS)) == 1 + number and not lock.exists()
        assert f"{lock} was left by an interrupt; it was removed" in caplog.text
    copy = project.parent / "copy"
    git(project, "clone", "-q", ".", str(copy))
    monkeypatch.chdir(copy)
    lock = copy / f".git/refs/symposium/looks/0{'a' * 63}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert "those of origin" in counted_since() and len(records(LOOKS)) == 2


def test_a_clone_counts_what_origin_has_and_says_so(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(LOOKS, "a" * 64, look("there"))
    copy = project.parent / "copy"
    git(project, "clone", "-q", ".", str(copy))
    git(copy, "config", "fetch.prune", "true")
    monkeypatch.chdir(copy)
    record(LOOKS, "b" * 64, look("here", "2026-11-02T10:00:00"))
    said = counted_since()
    assert said == (
        "This repository counts looks since 2026-11-01 10:00 UTC, the first known record; those of origin, at "
        "whatever test split, count too."
    )
    assert {found["run"] for found in records(LOOKS)} == {"here", "there"}
    assert counted_since() == said, "asked twice, nothing is counted twice or lost"
    shutil.rmtree(project)
    assert "looks that only origin has are not counted, because it cannot be asked" in counted_since()
    assert {found["run"] for found in records(LOOKS)} == {"here", "there"}


def test_a_repository_without_origin_says_since_when_it_counts(project: Path) -> None:
    assert "counts looks from now on; it has no remote origin" in counted_since()
    record(PLANS, "c" * 64, look("a plan", "2026-10-01T09:00:00"))
    record(LOOKS, "a" * 64, look("here"))
    assert "counts looks since 2026-10-01 09:00 UTC, the first known record; it has no remote origin" in counted_since()


def test_workspaces_record_for_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = project / ".symposium/workspaces/brave-owl"
    git(project, "clone", "-q", "--shared", ".", str(workspace))
    git(workspace, "config", PROJECT, str(project))
    temporary = project / ".dvc/tmp/exps/tmp1"
    git(project, "clone", "-q", "--shared", ".", str(temporary))
    tree = project.parent / "tree"
    git(project, "worktree", "add", "-q", str(tree))
    for number, folder in enumerate((workspace, temporary, tree)):
        monkeypatch.chdir(folder)
        record(LOOKS, str(number) * 64, {"run": folder.name})
        assert len(records(LOOKS)) == number + 1
    shutil.rmtree(workspace)
    shutil.rmtree(temporary)
    monkeypatch.chdir(project)
    assert {found["run"] for found in records(LOOKS)} == {"brave-owl", "tmp1", "tree"}


def test_side_by_side_nothing_is_lost(project: Path) -> None:
    failed: list[BaseException] = []

    def write(worker: int) -> None:
        try:
            for number in range(5):
                record(LOOKS, f"{number}" * 64, {"run": "the same for all"})
                record(LOOKS, f"{worker}{number}" * 32, {"run": f"{worker} {number}"})
        except RecordsError as error:
            failed.append(error)

    workers = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed
    # 00000..., 11111... are written by a worker under both names.
    assert len(records(LOOKS)) == len(
        {f"{n}" * 64 for n in range(5)} | {f"{w}{n}" * 32 for w in range(4) for n in range(5)}
    )


def test_without_a_repository_it_says_so_in_gits_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "params.yaml").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for attempt in (lambda: record(LOOKS, "a" * 64, {}), lambda: records(LOOKS)):
        with pytest.raises(RecordsError, match="not a git repository"):
            attempt()
