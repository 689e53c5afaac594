"""The door to the sandbox: order, statuses, cases, limits, bad input."""

import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline_lib.sandbox import BadTests, Executor, Job, Limits, Status
from pipeline_lib.sandbox.executor import job_key
from pipeline_lib.sandbox.randomness import seed_of_program
from tests.sandbox.human_eval import human_eval

LIMITS = Limits(cpu_s=1.0, call_cpu_s=0.3, wall_s=2.0, memory_mb=256)
TESTS = (
    "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 3\n    assert candidate(-1) == 0\n"
)


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(slots=2, limits=LIMITS) as executor:
        yield executor


def job(code: str, tests: str = TESTS, **more: object) -> Job:
    return replace(Job(id="job", code=code, tests=tests, entry_point="f"), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "status", "passed"),
    [
        ("def f(x):\n    return x + 1", Status.PASSED, 3),
        ("def f(x):\n    return 2", Status.FAILED, 1),
        ("def f(x:\n    return 2", Status.LOAD_ERROR, 0),
        ("def g(x):\n    return x + 1", Status.LOAD_ERROR, 0),
        ("import nothing_like_it", Status.LOAD_ERROR, 0),
        ("while True: pass", Status.TIMEOUT, 0),
        ("def f(x):\n    while x < 0: pass\n    return x + 1", Status.TIMEOUT, 2),
        ("import time\ndef f(x):\n    if x < 0: time.sleep(60)\n    return x + 1", Status.TIMEOUT, 2),
        ("import os\ndef f(x):\n    if x == 1: os._exit(0)\n    return x + 1", Status.CRASH, 2),
        ("def f(x):\n    if x == 1: return 'a' * (1 << 20)\n    return x + 1", Status.OUTPUT_LIMIT, 2),
        ("def f(x):\n    if x == 1: return bytearray(1 << 30)\n    return x + 1", Status.OOM, 2),
        ("def f(x):\n    raise SystemExit(0)", Status.FAILED, 0),
    ],
)
def test_statuses_and_counts(executor: Executor, code: str, status: Status, passed: int) -> None:
    (verdict,) = executor.run([job(code)])
    assert (verdict.status, verdict.passed, verdict.total) == (status, passed, 3), verdict


def test_order_and_equal_jobs(executor: Executor) -> None:
    jobs = [replace(job(f"def f(x):\n    return x + {i % 3}"), id=str(i)) for i in range(12)]
    verdicts = executor.run(jobs)
    assert [verdict.id for verdict in verdicts] == [str(i) for i in range(12)]
    assert [verdict.status for verdict in verdicts] == [
        Status.PASSED if i % 3 == 1 else Status.FAILED for i in range(12)
    ]
    assert {verdict.id for verdict in executor.stream(jobs)} == {str(i) for i in range(12)}


def test_tests_without_asserts_are_refused(executor: Executor) -> None:
    with pytest.raises(BadTests, match="no assert"):
        executor.run([job("def f(x): pass", "def check(candidate):\n    assert True")])


def passes(executor: Executor, code: str, tests: str, **more: object) -> None:
    (verdict,) = executor.run([job(code, tests, **more)])
    assert verdict.status is Status.PASSED, verdict


def test_expected_exceptions_keep_class_text_and_arguments(executor: Executor) -> None:
    tests = """
def check(candidate):
    for x, kind, text in ((0, ZeroDivisionError, 'division by zero'), (1, KeyError, "'key'"), (2, ValueError, 'bad')):
        try:
            candidate(x)
        except kind as error:
            assert str(error) == text
    try:
        candidate(3)
    except OSError as error:
        assert isinstance(error, FileNotFoundError) and error.errno == 2
"""
    code = """
class Odd(ValueError): pass

def f(x):
    if x == 0: return 1 / 0
    if x == 1: return {}['key']
    if x == 2: raise Odd('bad')
    open('not-there')
"""
    passes(executor, code, tests)


def test_what_a_program_does_to_its_arguments_is_done_to_the_tests_own(executor: Executor) -> None:
    tests = """
def check(candidate):
    items, table = [3, 1, 2], {}
    candidate(items, table=table)
    assert items == [1, 2, 3]
    assert table == {"seen": [1, 2, 3]}
    other = [2, 1]
    assert candidate(other) is None
    assert other == [1, 2]
"""
    passes(executor, "def f(x, table=None):\n    x.sort()\n    if table is not None: table['seen'] = x\n", tests)


def test_the_prelude_is_there_for_program_and_tests(executor: Executor) -> None:
    prelude = "import math\ndef twice(x):\n    return 2 * x\n"
    tests = "def check(candidate):\n    assert candidate(2) == twice(2) + math.floor(0.5)\n"
    passes(executor, "def f(x):\n    return twice(x) + math.floor(0.9)\n", tests, prelude=prelude)


def test_the_entry_point_is_known_to_the_tests_by_name(executor: Executor) -> None:
    passes(executor, "def f(x):\n    return x", "def check(candidate):\n    assert candidate(1) == f(1)\n")
    passes(executor, "def f(x):\n    return x", "assert f(3) == 3\n")


def test_programs_of_shown_verdicts_are_in_a_jail_without_the_others(executor: Executor) -> None:
    """Even if a program finds a way to leave something behind: here one that is as wide as a jail, its age."""
    born = "import os, time\ndef f(x): return time.time() - os.stat(os.environ['HOME']).st_ctime\n"
    leaves = "def f(x):\n    open('left', 'w').close()\n    return x + 1\n"
    tests = "def check(candidate):\n    assert candidate(1) == 0\n"

    def age() -> float:
        (verdict,) = alone.run([job(born, tests, shown=True)])
        return float(verdict.cases[0].message.split()[1].rstrip(","))

    with Executor(slots=1, cache=0, limits=LIMITS) as alone:
        first = age()
        alone.run([job(leaves) for _ in range(3)])
        assert age() > first


def test_messages_are_short(executor: Executor) -> None:
    (verdict,) = executor.run([job("def f(x):\n    return 'a' * 200000\n")])
    assert all(len(case.message) < 300 for case in verdict.cases)
    (verdict,) = executor.run([job("def f(x):\n    raise ValueError('a' * 10 ** 6)\n")])
    assert all(len(case.message) < 700 for case in verdict.cases)


def test_seeds_decide_what_is_random(executor: Executor) -> None:
    code = "import random\nA = random.random()\ndef f(x):\n    return A, random.random()\n"
    for seed in (1, 2):
        drawn = random.Random(seed_of_program(job(code, seed=seed)))
        passes(executor, code, f"assert f(1) == {(drawn.random(), drawn.random())}", seed=seed)


def test_order_of_sets_is_the_same_in_every_worker(executor: Executor) -> None:
    code = "def f(x):\n    return list({str(n) for n in range(100)})\n# "
    tests = "def check(candidate):\n    assert candidate(1) == list({str(n) for n in range(100)})\n"
    verdicts = executor.run([job(f"{code}{n}", tests) for n in range(6)])
    assert {verdict.status for verdict in verdicts} == {Status.PASSED}


def test_numpy_for_programs_that_import_it(executor: Executor) -> None:
    code = "import numpy as np\ndef f(x):\n    return np.arange(3) * x, np.float64(x), np.random.rand()\n"
    tests = """
import numpy as np

def check(candidate):
    array, number, chance = candidate(2)
    assert array.tolist() == [0, 2, 4]
    assert type(number) is np.float64 and number == 2.0
    assert chance == np.random.RandomState(SEED).rand()
"""
    own = seed_of_program(job(code, seed=5)) % (1 << 32)
    passes(executor, code, tests.replace("SEED", str(own)), seed=5)
    (lean,) = executor.run([job("import sys\ndef f(x):\n    return x + 1 if 'num' 'py' not in sys.modules else 0\n")])
    assert lean.status is Status.PASSED


def test_verdicts_are_remembered_under_their_content() -> None:
    with Executor(slots=1, limits=LIMITS, cache=2) as executor:
        first = executor.run([job("def f(x):\n    return x + 1\n")])[0]
        done = executor.health()["done"]
        again = executor.run([replace(job("def f(x):\n    return x + 1\n"), id="other")])[0]
        assert executor.health()["done"] == done
        assert replace(again, id=first.id) == first
        for change in (
            {"seed": 1},
            {"tests": TESTS + "\n"},
            {"prelude": "x = 1"},
            {"shown": True},
            {"limits": replace(LIMITS, cpu_s=2)},
        ):
            executor.run([job("def f(x):\n    return x + 1\n", **change)])  # type: ignore[arg-type]
            done += 1
            assert executor.health()["done"] == done
        assert executor.health()["cached"] == 2


def test_text_that_moves_from_one_part_of_a_job_to_another_makes_another_job() -> None:
    parts = [("a", "bc", "def"), ("ab", "c", "def"), ("abc", "", "def"), ("", "abc", "def"), ("abcdef", "", "")]
    jobs = [Job("1", code, TESTS, "f", prelude, visible) for code, prelude, visible in parts]
    assert len({job_key(job, LIMITS) for job in jobs}) == len(parts)


def test_use_is_measured(executor: Executor) -> None:
    code = "def f(x):\n    a = bytearray(b'a') * (50 << 20)\n    return x + sum(range(2_000_000)) * 0 + 1\n"
    ample = replace(LIMITS, cpu_s=60.0, call_cpu_s=60.0, wall_s=600.0)
    (verdict,) = executor.run([job(code, "def check(candidate):\n    assert candidate(1) == 2\n", limits=ample)])
    assert verdict.status is Status.PASSED
    assert 0.005 < verdict.cpu_s <= ample.cpu_s
    assert 50 < verdict.peak_mb < 100
    assert verdict.wall_s > 0


CALLING_ON = """
import threading
def call():
    while True:
        candidate([1])
def check(candidate):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert candidate([2]) == [2]

"""


def test_threads_of_tests_that_call_on_cost_no_judge(executor: Executor) -> None:
    before = executor.health()["restarts"]
    for seed in range(4):
        (verdict,) = executor.run([job("def f(x):\n    return x\n", CALLING_ON, seed=seed)])
        assert (verdict.status, verdict.passed) == (Status.PASSED, 1), verdict.error
    assert executor.health()["restarts"] == before


def test_the_name_of_an_exceptions_class_is_one_line(executor: Executor) -> None:
    code = "def f(x):\n    raise type('A\\nB\\tC\\x1b', (Exception,), {})('text')\n"
    (verdict,) = executor.run([job(code, "def check(f):\n    assert f(1) == 2\n    assert f([2]) == 2\n")])
    assert {case.message for case in verdict.cases} == {r"A B C\x1b: text (line 2)"}
    (verdict,) = executor.run([job(code.replace("def f(x):\n    ", "").replace("text", "a"), "assert f(1)")])
    assert "\n" not in verdict.error


def test_threads_of_the_caller_share_an_executor(executor: Executor) -> None:
    def run(number: int) -> list[Status]:
        jobs = [job(f"def f(x):\n    return x + 1\n# {number} {n}") for n in range(5)]
        assert executor.health()["slots"] == 2
        return [verdict.status for verdict in executor.run(jobs)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(8))) == [[Status.PASSED] * 5] * 8


def test_a_stream_that_nobody_reads_on_is_given_up(executor: Executor) -> None:
    hung = [job(f"def f(x):\n    while x < 0: pass\n    return x + 1\n# given up {n}") for n in range(40)]
    stream = executor.stream([job("def f(x):\n    return x + 1\n# given up"), *hung])
    assert next(stream).status is Status.PASSED
    stream.close()
    passes(executor, "def f(x):\n    return x + 1\n# afterwards", TESTS)
    assert executor.health()["queued"] == 0


def test_an_executor_that_is_closed_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with Executor(slots=1, limits=LIMITS) as executor:
        passes(executor, "def f(x):\n    return x + 1\n# to be closed", TESTS)
    assert caplog.messages == []


@pytest.mark.parametrize("slots", [2, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (1, 4, 8))])
def test_human_eval_gets_full_marks_with_any_number_of_slots(slots: int) -> None:
    jobs = human_eval()
    with Executor(slots=slots, cache=0) as executor:
        verdicts = executor.run(jobs)
    assert [(verdict.id, verdict.status) for verdict in verdicts] == [(job.id, Status.PASSED) for job in jobs]
    assert sum(verdict.passed for verdict in verdicts) == 1133


def test_one_long_step_of_the_tests_is_late_and_not_the_end_of_their_process() -> None:
    """The interpreter can be interrupted after it only; the kernel must not have ended the process by then."""
    tests = """
import signal, time

def step_of(seconds):  # a signal is heard after it, as it is after a step of C code, however fast the machine
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])

def check(candidate):
    assert candidate(1) == 2
    assert step_of(2.0)
"""
    brief = Limits(cpu_s=0.05, call_cpu_s=0.02, wall_s=5.0)
    with Executor("process", slots=1, limits=brief) as executor:
        (verdict,) = executor.run([Job("long", "def f(x):\n    return x + 1\n", tests, "f")])
    assert (verdict.status, verdict.passed) == (Status.TIMEOUT, 1), verdict


def test_whoever_imports_the_sandbox_keeps_unittest_as_it_is() -> None:
    code = "import sys, pipeline_lib.sandbox; sys.exit('unittest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0
