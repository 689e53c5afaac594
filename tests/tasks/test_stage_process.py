"""What is said when DVC or a stage fails: the reason, once."""

from __future__ import annotations

import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from tasks.chain.graph import ChainError, ask
from tasks.chain.stage_process import StageFailedError, StageProcess

EXPLAINED = "print('at work', flush=True); import sys; sys.exit('error: the disk is full\\nfree some space')"
DEFECT = "import sys; sys.stderr.write('before\\n')\ntry:\n    {}['no']\nfinally:\n    raise ValueError('a crash')\n"
LARGE = f"""
import os, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
os.mkdir("out")
open("out/file", "wb").write(bytes({2 << 20}))
"""
UNEXPLAINED = "print('at work', flush=True); raise SystemExit(3)"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / ".symposium"))
    for command in (["git", "init", "-q"], ["dvc", "init", "-q"]):
        subprocess.run(command, cwd=tmp_path, check=True)
    return tmp_path


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
