"""`unittest` tests of every shape, judged here and run by plain Python."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_lib.sandbox import BadTests, Executor, Job, Status

SHAPES = Path(__file__).parent / "corpus" / "unittests.txt"
TALLY = """
class Tally:
    def __init__(self): self.total = 0
    def count(self, n): self.total += n
    def list(self): return [1, 2, 3]
    def pair(self): return self.total, self.list()
"""
PROGRAMS = {
    "right": TALLY + "def add(a, b): return a + b\n",
    "wrong": TALLY + "def add(a, b): return a + b + (a > 0)\n",
    "raises": TALLY + "def add(a, b): raise ValueError(a)\n",
    "returns nothing": TALLY + "def add(a, b): pass\n",
    "exits": TALLY + "def add(a, b): raise SystemExit\n",
    "ends its process": TALLY + "import os\ndef add(a, b): os._exit(0)\n",
}
BROKEN = {"does not load": "1 / 0\n", "does not parse": "def add(:\n", "lacks the function": TALLY}
_PLAIN = """
import json, os, sys, types, unittest
found = []
for code, tests in json.load(sys.stdin):
    module = sys.modules["tests"] = types.ModuleType("tests")
    pid = os.fork()
    if not pid:
        result = unittest.TestResult()
        try:
            for source in (code, tests):
                exec(compile(source, "tests", "exec"), module.__dict__)
            loader = unittest.TestLoader()
            suite = unittest.TestSuite([loader.loadTestsFromModule(module)])
            suite.run(result)
            text = f"{result.testsRun - len(result.skipped)} {result.wasSuccessful() and bool(result.testsRun)}"
        except BaseException:
            text = "0 False"
        os.write(3, text.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.lseek(3, 0, 0)
    ran, good = (os.read(3, 100).decode() or "0 False").split()
    os.ftruncate(3, 0)
    os.lseek(3, 0, 0)
    found.append((int(ran), good == "True"))
json.dump(found, sys.stdout)
"""


def shapes():
    """Yield name, expectation, prelude and source of every shape."""
    for part in SHAPES.read_text().split("\n=== ")[1:]:
        head, _, source = part.partition("\n")
        name, _, word = head.partition(": ")
        prelude, _, tests = source.rpartition("--- tests\n")
        yield name, word, prelude, tests


def in_plain_python(pairs: list[tuple[str, str]], folder: Path) -> list[tuple[int, bool]]:
    """Return how many tests of each program ran and were not skipped, and whether there were any and all held."""
    command = ["bash", "-c", f'exec "$0" -c "$1" 3<>{folder}/result', sys.executable, _PLAIN]
    done = subprocess.run(command, input=json.dumps(pairs), capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def executor():
    with Executor(slots=2, cache=0) as started:
        yield started


def test_every_test_that_plain_python_runs_is_judged_and_no_verdict_is_higher(executor, tmp_path):
    kept = [shape for shape in shapes() if shape[1] != "refused"]
    assert len(kept) > 90
    pairs = [(shape, program) for shape in kept for program in ("right", "wrong")]
    pairs += [(shape, program) for shape in kept[::5] for program in PROGRAMS if program not in ("right", "wrong")]
    plain = in_plain_python([(shape[2] + PROGRAMS[program], shape[3]) for shape, program in pairs], tmp_path)
    jobs = [Job(f"{shape[0]}, {program}", PROGRAMS[program], shape[3], "add", shape[2]) for shape, program in pairs]
    verdicts = executor.run(jobs)
    differences = []
    totals = {shape[0]: set() for shape in kept}
    for ((name, word, _, source), program), (ran, good), verdict in zip(pairs, plain, verdicts, strict=True):
        totals[name].add(verdict.total)
        good = program == "right" if "def check(candidate)" in source else good
        wanted = good and word != "lower"
        fewer = program == "right" and verdict.total < ran and word != "more"
        if (verdict.status is Status.PASSED) != wanted or fewer:
            differences.append(
                f"{verdict.id}: plain {ran, good}, here {verdict.passed}/{verdict.total} {verdict.error}"
            )
    assert not differences
    assert not [name for name, found in totals.items() if len(found) > 1], "the number of cases depends on the program"
    assert sum(good for _, good in plain) > 90


def test_tests_that_unittest_cannot_collect_are_refused_in_words(executor):
    for name, word, prelude, source in shapes():
        if word == "refused":
            with pytest.raises(BadTests, match="unittest") as refused:
                executor.run([Job(name, PROGRAMS["right"], source, "add", prelude)])
            assert repr(name) in str(refused.value)


def test_the_number_of_cases_is_known_if_the_program_does_not_load(executor):
    kept = [(name, prelude, source) for name, word, prelude, source in shapes() if word != "refused"]
    right = executor.run([Job(name, PROGRAMS["right"], source, "add", prelude) for name, prelude, source in kept])
    for code in (*BROKEN.values(), "# " + "x" * (300 << 10)):
        verdicts = executor.run([Job(name, code, source, "add", prelude) for name, prelude, source in kept])
        assert {verdict.status for verdict in verdicts} == {Status.LOAD_ERROR}
        assert [verdict.total for verdict in verdicts] == [verdict.total for verdict in right]
        assert {verdict.fraction for verdict in verdicts} == {0.0}
