"""Folders that appear complete, or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_lib.storage import new_folder, process_label


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_when_its_content_is_complete(tmp_path: Path):
    target = tmp_path / "deep" / "target"
    with new_folder(target) as folder:
        (folder / "a.txt").write_text("a")
        assert not target.exists()
    assert (target / "a.txt").read_text() == "a"
    assert _names(target.parent) == ["target"]


def test_an_old_folder_is_replaced_not_merged(tmp_path: Path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "old.txt").write_text("old")
    with new_folder(target) as folder:
        (folder / "new.txt").write_text("new")
        assert _names(target) == ["old.txt"]
    assert _names(target) == ["new.txt"]
    assert _names(tmp_path) == ["target"]


def test_a_failure_leaves_the_old_folder_and_no_rest(tmp_path: Path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "old.txt").write_text("old")
    with pytest.raises(KeyboardInterrupt), new_folder(target) as folder:
        (folder / "new.txt").write_text("new")
        raise KeyboardInterrupt
    assert _names(target) == ["old.txt"]
    assert _names(tmp_path) == ["target"]


def test_leftovers_of_killed_processes_go_and_those_of_living_ones_stay(tmp_path: Path):
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    here = process_label().partition("-")[0]
    ended, lives, elsewhere = f"{here}-{int(dead.stdout)}", f"{here}-{os.getppid()}", f"1{here}-{int(dead.stdout)}"
    for name in (ended, lives, elsewhere, f"old.{ended}"):
        (tmp_path / f".target.{name}.part").mkdir()
    with new_folder(tmp_path / "target"):
        pass
    assert _names(tmp_path) == sorted([f".target.{elsewhere}.part", f".target.{lives}.part", "target"])
