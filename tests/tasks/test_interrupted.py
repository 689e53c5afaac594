"""Files that DVC writes in place, cut off by a kill: the next start mends them and says so."""

import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.doctor import examine
from tasks.chain.graph import ask, chain_and_stale, mend_locks

CHAIN = """stages:
  a: {cmd: cp in.txt a.txt, deps: [in.txt], outs: [a.txt]}
  b: {cmd: cp a.txt b.txt, deps: [a.txt], outs: [b.txt]}
"""


@pytest.fixture(scope="module")
def project(empty_project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(empty_project, tmp_path_factory.mktemp("project") / "project"))
    (folder / "dvc.yaml").write_text(CHAIN)
    (folder / "in.txt").write_text("1\n")
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=folder, check=True)
    return folder


def cut_off(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (time.time() - 10, time.time() - 10))


def test_locks_that_were_cut_off_are_removed(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = project / ".dvc/tmp/rwlock"
    for text in ("", "{", '{"read": {"a.txt": [{"pid": 1, "c', "[]", "null"):
        cut_off(path, text)
        caplog.clear()
        assert chain_and_stale(project) == ({}, set())
        assert "rwlock was cut off by an interrupt; it was removed" in caplog.text, text
        ask(project, "repro")
    whole = '{"read": {}, "write": {}}'
    path.write_text(whole)
    assert mend_locks(project) == "" and path.read_text() == whole
    cut_off(path, "")
    assert any("cut off by an interrupt" in found.text for found in examine(project))


def test_a_file_that_is_being_written_is_waited_for(project: Path) -> None:
    path = project / ".dvc/tmp/rwlock"
    path.write_text("")
    code = f"import time; time.sleep(0.4); open({str(path)!r}, 'w').write('{{}}')"
    with subprocess.Popen([sys.executable, "-c", code]):
        assert mend_locks(project) == "" and path.read_text() == "{}"


def test_a_lock_file_of_dvc_cut_off_anywhere_costs_nothing(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = project / "dvc.lock"
    whole = path.read_text()
    for length in (0, 5, 16, 90):
        path.write_text(whole[:length])
        with caplog.at_level(logging.WARNING):
            ask(project, "status", "--json")
        said = ask(project, "repro")
        assert path.read_text() == whole, length
        assert "Running stage" not in said, "DVC has the results"
    assert "it is now dvc.lock.broken" in caplog.text
