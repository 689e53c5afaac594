"""What programs and tests find as in a plain Python process, and what benchmarks/results/verdicts.md names as lower."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_lib.sandbox import Executor, Job, Limits, Status
from pipeline_lib.sandbox.inside.confine import landlock_version
from pipeline_lib.sandbox.inside.folders import Folder
from pipeline_lib.sandbox.inside.values import BadValue
from tests.needs import JAILS
from tests.sandbox.corpus import pairs

pytestmark = pytest.mark.sample("jail", "pipeline_lib/sandbox")  # one jail for each case


@pytest.fixture(scope="module", params=JAILS)
def jail(request: pytest.FixtureRequest) -> Iterator[tuple[str, Executor]]:
    with Executor(slots=1, cache=0, jail=request.param, limits=Limits(wall_s=4.0)) as opened:
        yield request.param, opened


def holds_in_python(code: str, tests: str, folder: Path) -> bool:
    """Return whether the tests pass in a plain Python process."""
    (folder / "both.py").write_text(f"{code}\n{tests}\n")
    return subprocess.run([sys.executable, "both.py"], cwd=folder, check=False, capture_output=True).returncode == 0


AS_PYTHON = pairs("as_python", "as in plain Python")

#: With a Landlock that confines signals as in plain Python, also in `bare`.
SIGNALS = pairs("as_python", "signals")
if landlock_version() >= 6:
    AS_PYTHON |= SIGNALS


@pytest.mark.parametrize("name", AS_PYTHON)
def test_as_in_plain_python(name: str, jail: tuple[str, Executor], tmp_path: Path) -> None:
    code, tests = AS_PYTHON[name]
    (verdict,) = jail[1].run([Job("job", code, tests, "f")])
    assert (verdict.status is Status.PASSED) == holds_in_python(code, tests, tmp_path), verdict.error


#: By the words with which benchmarks/results/verdicts.md names it: what passes in plain Python only.
LOWER = pairs("as_python", "lower")
#: The same, in `bare` only.
LOWER_IN_BARE = pairs("as_python", "lower in bare")
if not SIGNALS.keys() <= AS_PYTHON.keys():
    LOWER_IN_BARE["send signals to processes"] = SIGNALS["send signals to processes"]
_DOCS = " ".join((Path(__file__).parents[2] / "benchmarks/results/verdicts.md").read_text().split())


@pytest.mark.parametrize("name", [*LOWER, *LOWER_IN_BARE])
def test_what_is_lower_than_in_plain_python_is_named(name: str, jail: tuple[str, Executor], tmp_path: Path) -> None:
    code, tests = (LOWER | LOWER_IN_BARE)[name]
    assert name in _DOCS
    assert holds_in_python(code, tests, tmp_path)
    (verdict,) = jail[1].run([Job("job", code, tests, "f")])
    if name in LOWER_IN_BARE and jail[0] != "bare":
        assert verdict.status is Status.PASSED, verdict.error
    else:
        assert verdict.status in (Status.FAILED, Status.CRASH), verdict.error
        assert verdict.error


@pytest.mark.parametrize("called", ["E()", "E", "[E()]", "(E(),)", "{1: E()}"])
def test_a_class_that_says_it_is_every_class_is_refused_in_words(called: str, jail: tuple[str, Executor]) -> None:
    meta = "class M(type):\n    def __eq__(self, other):\n        return True\n    __hash__ = type.__hash__\n"
    code = f"{meta}class E(metaclass=M):\n    pass\ndef f(x):\n    return {called}\n"
    (verdict,) = jail[1].run([Job("job", code, "assert f(1) == 2", "f")])
    assert verdict.status is Status.FAILED
    assert "the class E defines how its objects are recognised; it cannot be sent" in verdict.error


def test_changes_of_files_go_through_no_link(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside):
        folder.mkdir()
    (outside / "a").write_text("kept")
    (inside / "link").symlink_to(outside)
    for change in (["link/a", 0o100644, ""], ["link/new", 0o100644, ""], ["link/a", 0, None], ["link/b", 0o40755, ""]):
        with pytest.raises(BadValue, match=re.escape("below what is no folder")):
            Folder(str(inside), 1 << 20).apply(["", change])
    Folder(str(inside), 1 << 20).apply(
        ["", ["link", 0o40755, ""], ["link/a", 0o100644, "aGk="]]
    )  # a folder in place of the link
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"a": "kept"}
    assert (inside / "link/a").read_text() == "hi"
