"""What `make test` draws of the slow tests: a third of their seconds, and each of them now and then."""

import ast
import random
import subprocess
import sys
from pathlib import Path

from scripts.list_slow_tests import listed
from tests.sampling import SHARE, draw_slow, slow_tests

ROOT = Path(__file__).parents[1]


def test_each_slow_test_is_drawn_now_and_then_and_the_whole_takes_a_third() -> None:
    seconds = {"a long one": 600.0, **{f"short {number}": 10.0 for number in range(100)}}
    drawn = [draw_slow(seconds, random.Random(seed)) for seed in range(500)]
    times = [sum(seconds[name] for name in names) for names in drawn]
    assert min(times) >= SHARE * 1600 and max(times) < SHARE * 1600 + 600
    for name in ("a long one", "short 0", "short 99"):
        assert 0.2 < sum(name in names for names in drawn) / len(drawn) < 0.7


def test_every_slow_test_exists() -> None:
    missing = []
    for name in slow_tests():
        file, *inside = name.partition("[")[0].split("::")
        tree: ast.AST = ast.parse((ROOT / file).read_text()) if (ROOT / file).exists() else ast.Module([], [])
        for word in inside:
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            found = [node for node in ast.iter_child_nodes(tree) if isinstance(node, kinds) and node.name == word]
            if not found:
                missing.append(name)
                break
            tree = found[0]
    assert not missing, "python -m scripts.list_slow_tests writes the list again"


def test_the_list_is_made_from_what_pytest_reports(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        """
import time, pytest
@pytest.fixture(scope="module")
def shared(): time.sleep(0.5)
def test_fast(shared): pass
class TestOf:
    @pytest.mark.parametrize("case", ["a b", "c"])
    def test_slow(self, case): time.sleep(0.5)
"""
    )
    ini = [word for line in ("junit_family=xunit1", "junit_duration_report=call") for word in ("-o", line)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=report.xml", *ini]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    lines = [line.split(maxsplit=1)[1].strip() for line in listed(tmp_path / "report.xml", 0.5)]
    assert lines == ["test_it.py::TestOf::test_slow[a b]", "test_it.py::TestOf::test_slow[c]"]
