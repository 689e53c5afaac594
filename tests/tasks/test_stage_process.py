"""What is said when DVC or a stage fails: the reason, once."""

import contextlib
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.chain.graph import ChainError, ask
from tasks.chain.stage_process import StageFailedError, StageProcess
from tasks.services import processes
from tests.needs import memory_groups

EXPLAINED = "print('at work', flush=True); import sys; sys.exit('error: the disk is full\\nfree some space')"
DEFECT = "import sys; sys.stderr.write('before\\n')\ntry:\n    {}['no']\nfinally:\n    raise ValueError('a crash')\n"
LARGE = f"""
import os, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
os.mkdir("out")
open("out/file", "wb").write(bytes({2 << 20}))
"""
KILLED = "import os, signal; held = bytearray(b'1') * {}; os.kill(os.getpid(), signal.{})"
GREEDY = "held = [bytearray(b'1') * (1 << 24) for _ in range(128)]"
IN_A_GROUP = """
import sys
from pathlib import Path
from tasks.chain.stage_process import StageFailedError, StageProcess
Path(sys.argv[1], "cgroup.procs").write_text("0")  # this process, and those that it starts
try:
    StageProcess("work", Path.cwd(), "run").wait(lambda line, reported: None)
except StageFailedError as error:
    print(error)
"""
KILL = r"killed by signal 9 \(SIGKILL\)"
UNEXPLAINED = "print('at work', flush=True); raise SystemExit(3)"


@pytest.fixture
def project(empty_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / ".symposium"))
    return Path(shutil.copytree(empty_project, tmp_path, dirs_exist_ok=True))


def failed(project: Path, program: str, more: str = "") -> tuple[str, list[str]]:
    """Return the message of a stage that fails, and the lines that the terminal shows of it."""
    (project / "work.py").write_text(program)
    (project / "dvc.yaml").write_text(f"stages: {{work: {{cmd: python -m work, {more}}}}}\n")
    shown: list[str] = []
    with pytest.raises(StageFailedError) as caught:
        StageProcess("work", project, "run").wait(lambda line, reported: None if reported else shown.append(line))
    return str(caught.value), shown


def test_the_reason_is_reported_once_and_what_dvc_says_of_the_status_never(project: Path):
    assert failed(project, EXPLAINED) == ("stage work failed: the disk is full\nfree some space", ["at work"])


def test_without_a_reason_the_end_of_the_output_is_reported(project: Path):
    message, shown = failed(project, UNEXPLAINED)
    assert message.startswith("stage work failed (status ") and message.endswith("at work") and shown == ["at work"]


@pytest.mark.parametrize(
    ("number", "held", "of_all", "said"),
    [
        ("SIGKILL", 1, 1 << 40, KILL),
        ("SIGSEGV", 1, 1, r"killed by signal 11 \(SIGSEGV\)"),
        ("SIGKILL", 400 << 20, 440 << 20, rf"{KILL}, most probably for memory: it held \d\.\d GiB of 0.4"),
    ],
)
def test_what_the_system_killed_is_told_by_signal_and_memory(
    project: Path, monkeypatch: pytest.MonkeyPatch, number: str, held: int, of_all: int, said: str
) -> None:
    monkeypatch.setattr(processes, "all_memory", lambda: of_all)
    message, _ = failed(project, KILLED.format(held, number))
    assert re.match(rf"stage work failed \({said}\); the end of its output", message), message


@pytest.mark.parametrize("store", ["s3://bucket/path", "store"], ids=["no client for it", "a broken file in it"])
def test_a_remote_from_which_nothing_comes_stops_no_stage(project: Path, store: str) -> None:
    (entry := project / "store/runs/aa/bb/entry").parent.mkdir(parents=True)
    entry.symlink_to("nothing")
    subprocess.run(["dvc", "remote", "add", "-q", "-d", "away", str(project / store) if ":" not in store else store],
                   cwd=project, check=True)  # fmt: skip
    (project / "dvc.yaml").write_text("stages: {work: {cmd: echo 1 > made, outs: [made]}}\n")
    shown: list[str] = []
    assert StageProcess("work", project, "run", pull=True).wait(lambda line, _: shown.append(line))
    assert (project / "made").exists()
    assert any("computed here" in line for line in shown) == (":" in store), shown


@pytest.mark.needs("memory groups")
def test_a_stage_that_the_kernel_kills_for_memory_is_told_so(project: Path) -> None:
    (project / "work.py").write_text(GREEDY)
    (project / "dvc.yaml").write_text("stages: {work: {cmd: python -m work}}\n")
    group, limit = memory_groups() / f"symposium-{os.getpid()}", 600 << 20
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if group.parent.name == "memory" else "memory.max")).write_text(str(limit))
        command = [sys.executable, "-c", IN_A_GROUP, str(group)]
        path = os.pathsep.join(sys.path)
        done = subprocess.run(
            command, cwd=project, env=os.environ | {"PYTHONPATH": path}, check=True, capture_output=True, text=True
        )
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):  # its last process may not have quite ended
                group.rmdir()
                break
            time.sleep(0.1)
    said = re.match(rf"stage work failed \({KILL}, most probably for memory: it held (.*) GiB of 0.6\)", done.stdout)
    assert said, done.stdout
    assert 0.2 < float(said[1]) <= 0.6


def test_words_for_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "all_memory", lambda: 23 << 30)
    assert processes.ended(3) == "status 3" and processes.ended(255) == "status 255"
    assert processes.ended(-15) == processes.ended(143) == "killed by signal 15 (SIGTERM)"
    assert processes.ended(-9, 21 << 30) == (
        "killed by signal 9 (SIGKILL), most probably for memory: it held 21.0 GiB of 23.0"
    )
    assert "it held 2.0 GiB of 23.0" in processes.ended(137, 2 << 30, starved=True)
    assert processes.ended(-9, 2 << 30) == "killed by signal 9 (SIGKILL)"


def test_a_traceback_is_reported_once(project: Path):
    message, shown = failed(project, DEFECT)
    assert shown == ["before"]
    assert message.count("ValueError: a crash") == 1 and message.endswith("ValueError: a crash")


def test_results_that_dvc_cannot_store_are_a_failure_though_it_ends_with_status_0(project: Path):
    """A limit on the size of files stands for a full disk; the stage lifts it, so it stops DVC only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        message, shown = failed(project, LARGE, "outs: [out]")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert message.startswith("stage work did its work, but DVC cannot store the results in its cache: [Errno 27] ")
    assert "\n" not in message and not any("failed to transfer" in line for line in shown)


def test_an_error_of_dvc_is_its_reason_alone(project: Path):
    shutil.rmtree(project / ".dvc/tmp")
    (project / ".dvc/tmp").write_text("a file where DVC needs a folder")
    with pytest.raises(ChainError, match=r"^dvc status --json: \[Errno \d+\] .*'$"):
        ask(project, "status", "--json")
