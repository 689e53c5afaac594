"""What a test needs is asked for in one place: missing, the test is skipped and named at the end, or fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import NEEDS, ROOT

CONFTEST = "from tests.needs import pytest_runtest_setup, pytest_terminal_summary\n"
LACKING = """
import pytest
from tests.needs import NEEDS, Need, needs, require

NEEDS["tea"] = Need(lambda: False, "apt-get install tea")
NEEDS["luck"] = Need(lambda: False, "a lucky machine", installable=False)
NEEDS["air"] = Need(lambda: True, "a window")

@pytest.fixture
def pot():
    require("tea")

@pytest.fixture
def never():
    raise AssertionError("a fixture started although something was missing")

@needs("tea")
def test_marked(never): ...

def test_with_a_fixture(pot): ...

@pytest.mark.parametrize("kind", [pytest.param("a", marks=needs("tea")), pytest.param("b", marks=needs("luck")), "c"])
def test_of_three(kind): ...

@needs("air")
def test_that_runs(): ...
"""


@pytest.mark.parametrize(("processes", "required"), [("0", True), ("1", False)])
def test_what_is_missing_is_skipped_and_named_last_or_fails(tmp_path: Path, required: bool, processes: str) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs\naddopts = --strict-markers\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_tea.py").write_text(LACKING)
    known = {key: value for key, value in os.environ.items() if key != "SYMPOSIUM_REQUIRE_SERVICES"}
    done = subprocess.run(
        [sys.executable, "-m", "scripts.run_tests", "-n", processes],
        cwd=tmp_path,
        env={**known, "PYTHONPATH": str(ROOT), **({"SYMPOSIUM_REQUIRE_SERVICES": "1"} if required else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.rpartition("Not tested here:")[2].split("\n")
    if required:
        assert done.returncode == 1
        assert "3 errors" in done.stdout and "needs tea: apt-get install tea" in done.stdout
        assert last[1:3] == ["       1 needs luck: a lucky machine", ""]
    else:
        assert done.returncode == 0 and "2 passed, 4 skipped" in done.stdout
        assert last[1:4] == ["       1 needs luck: a lucky machine", "       3 needs tea: apt-get install tea", ""]


def test_no_other_place_skips() -> None:
    skips = re.compile(r"pytest\.skip\(|mark\.skip|importorskip|REQUIRE_SERVICES")
    files = [*(ROOT / "tests").rglob("*.py")]
    assert len(files) > 100
    found = {path.name for path in files if skips.search(path.read_text())}
    assert found == {"needs.py", "test_needs.py"}


@pytest.mark.parametrize("name", NEEDS)
def test_every_need_can_be_looked_for(name: str) -> None:
    assert NEEDS[name].here() in (True, False)
