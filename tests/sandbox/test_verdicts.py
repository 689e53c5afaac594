"""Every cell of the tables in benchmarks/results/verdicts.md, and every reason for a lower verdict."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.differential import REASONS
from pipeline_lib.sandbox import Executor, Job, Limits, Verdict

_ROOT = Path(__file__).parents[2]
_TABLES = (_ROOT / "benchmarks/results/verdicts.md").read_text()
LIMITS = Limits(cpu_s=1.0, call_cpu_s=0.4, wall_s=4.0, memory_mb=256)
BEHAVIOURS = {
    "answers rightly": "return x",
    "answers wrongly": "return -1",
    "raises an exception": "raise ValueError(x)",
    "exits": "raise SystemExit",
    "raises MemoryError": "raise MemoryError",
    "takes too much memory": "return len(bytearray(1 << 30))",
    "returns too much": "return 'a' * (1 << 20)",
    "ends its process": "import os; os._exit(0)",
    "does what is forbidden": "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)",
    "hangs": "while True: pass",
    "does not load": "return (",
}
RIGHT = "def f(x):\n    return x\n"


def table(first: str) -> list[list[str]]:
    """Return the rows of the table whose first column has that heading, the heading among them."""
    text = _TABLES[_TABLES.index(f"| {first} |") :].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if "---" not in line]


def check(line: str) -> str:
    """Return the tests that a line of the page stands for."""
    return "def check(f):\n" + "\n".join("    " + part for part in _lines(line.strip("`")))


def _lines(line: str) -> Iterator[str]:
    depth = 0
    for part in line.split("; "):
        if re.match(r"(except|else|finally)\b", part):
            depth = 0
        while head := re.match(r"((?:for|if|try|except|else|finally|while)\b.*?:) (?=\w)", part):
            yield "    " * depth + head[1]
            depth, part = depth + 1, part[head.end() :]
        yield "    " * depth + part
        if re.match(r"(?:pass)$", part):
            depth = 0


PLACES = {row[0]: row[1] for row in table("place")[1:]}
(_, *_PLACES), *_ROWS = table("the program")
CELLS = {(row[0], place): cell for row in _ROWS for place, cell in zip(_PLACES, row[1:], strict=True)}
ENDS = {row[0]: (row[1], row[2]) for row in table("the tests")[1:]}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    jobs = [
        Job(f"{behaviour}, {place}", _program(behaviour), check(PLACES[place]), "f") for behaviour, place in CELLS
    ] + [Job(name, RIGHT, check(tests), "f") for name, (tests, _) in ENDS.items()]
    with Executor("process", slots=4, limits=LIMITS) as executor:
        return {verdict.id: verdict for verdict in executor.run(jobs)}


def _program(behaviour: str) -> str:
    return f"def f(x):\n    if x == 2:\n        {BEHAVIOURS[behaviour]}\n    return x\n"


def _says(verdict: Verdict) -> str:
    return f"{verdict.status.value} {verdict.passed}/{verdict.total}"


@pytest.mark.parametrize(("behaviour", "place"), CELLS)
def test_what_a_program_does(verdicts: dict[str, Verdict], behaviour: str, place: str) -> None:
    verdict = verdicts[f"{behaviour}, {place}"]
    assert _says(verdict) == CELLS[behaviour, place], verdict
    assert (verdict.fraction == 1.0) == (verdict.status == "passed")


@pytest.mark.parametrize("name", ENDS)
def test_how_tests_end(verdicts: dict[str, Verdict], name: str) -> None:
    assert _says(verdicts[name]) == ENDS[name][1], verdicts[name]


def test_the_page_has_every_behaviour_place_and_reason() -> None:
    assert set(BEHAVIOURS) == {behaviour for behaviour, _ in CELLS}
    assert set(PLACES) == {place for _, place in CELLS}
    assert (len(CELLS), len(ENDS)) == (66, 14)
    assert {row[0] for row in table("reason")[1:]} == set(REASONS)
