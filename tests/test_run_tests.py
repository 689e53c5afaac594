"""The command behind ``make test``: what passes alone is told, what fails twice fails."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from scripts.run_tests import MOST_AGAIN

ROOT = Path(__file__).resolve().parent.parent
ALWAYS = "def test_always_fails():\n    assert 1 == 2\n"
ONCE = """
import os, pathlib
def test_fails_once():
    seen = pathlib.Path(os.environ["SEEN"])
    again = seen.exists()
    seen.touch()
    assert again
"""
PASSES = "def test_passes():\n    pass\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_XDIST_AUTO_NUM_WORKERS", raising=False)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def started(*bodies: str) -> tuple[int, str]:
        for number, body in enumerate(bodies):
            (tmp_path / f"test_{number}.py").write_text(body)
        command = [sys.executable, "-m", "scripts.run_tests", "-n", "1", "-p", "no:randomly"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    return started


def test_what_passes_alone_passes_and_is_named(run) -> None:
    status, said = run(ONCE, PASSES)
    assert status == 0
    assert "1 failed, 1 passed" in said
    assert "UNSTEADY" in said and "    test_0.py::test_fails_once" in said.split("UNSTEADY")[1]


def test_what_fails_twice_fails(run) -> None:
    status, said = run(ALWAYS, ONCE)
    assert status == 1 and "run once more" in said and "UNSTEADY" not in said


def test_many_failures_do_not_run_again(run) -> None:
    status, said = run(*[ALWAYS] * (MOST_AGAIN + 1))
    assert status == 1 and "run once more" not in said


def test_a_file_that_does_not_load_fails_and_is_not_taken_for_a_failure_of_the_next_run(run) -> None:
    assert run("import nothing_of_this_name\n", PASSES)[0] != 0
    status, said = run(PASSES, PASSES)
    assert status == 0 and "run once more" not in said


DIES_ONCE = """
import os, pathlib, pytest
@pytest.mark.parametrize("number", range(3))
def test_dies_once(number):
    seen = pathlib.Path(os.environ["SEEN"])
    if number == 1 and not seen.exists():
        seen.touch()
        os.kill(os.getpid(), 9)
"""


def test_when_a_process_dies_what_has_not_passed_runs_in_another(run, tmp_path: Path) -> None:
    hooks = "from tests.crashes import *\nfrom tests.crashes import leave_out_passed\n\n\n"
    hooks += "def pytest_collection_modifyitems(config, items):\n    leave_out_passed(config, items)\n"
    (tmp_path / "conftest.py").write_text(hooks)
    status, said = run(DIES_ONCE, PASSES)
    assert status == 0
    assert "UNSTEADY: a process died" in said and "    test_0.py::test_dies_once[1]" in said
    assert "3 passed" in said.split("UNSTEADY")[1], "the one that died, the one after it, and the other file"


def test_samples_are_drawn_over_parameters_that_there_are(request: pytest.FixtureRequest) -> None:
    """Of another name nothing is drawn, and everything runs; seen in a run of all tests."""
    there = defaultdict(set)
    for item in request.session.items:
        if marker := item.get_closest_marker("sample"):
            there[item.path, marker.args[0]] |= set(item.callspec.params if hasattr(item, "callspec") else ())
    assert {(path, over) for (path, over), names in there.items() if over not in names} == set()
