"""Programs with tests of their own: honest ones that are easily judged wrong, and what one job leaves for the next."""

from pathlib import Path

import pytest

from pipeline_lib.sandbox import Executor, Job, Limits, Status, Verdict
from pipeline_lib.sandbox.calls import printable
from pipeline_lib.storage import canonical_json
from tests.needs import JAILS
from tests.sandbox.corpus import OwnTests, own_tests
from tests.sandbox.sample import some_own_tests

FIVE = "def check(candidate):\n" + "".join(f"    assert candidate({n}) == {n + 1}\n" for n in range(5))


def wrong(programs: list[OwnTests], jail: str) -> list[str]:
    """Return a line for every program that ends otherwise than it must."""
    with Executor(slots=2, jail=jail) as executor:
        verdicts = executor.run([Job(p.name, p.code, p.tests, "f", prelude=p.prelude) for p in programs])
    assert all((verdict.fraction == 1.0) == (verdict.status is Status.PASSED) for verdict in verdicts)
    return [
        f"{program.name}: {verdict.status} {verdict.passed}, {verdict.error}"
        for program, verdict in zip(programs, verdicts, strict=True)
        if (verdict.status.value, verdict.passed) != (program.status, program.passed)
    ]


@pytest.mark.parametrize("jail", JAILS)
def test_some_programs_with_tests_of_their_own(jail: str) -> None:
    assert not wrong(some_own_tests(jail, 40), jail)


@pytest.mark.exhaustive
@pytest.mark.parametrize("jail", JAILS)
def test_programs_with_tests_of_their_own(jail: str) -> None:
    programs = own_tests()
    assert len({program.name for program in programs}) == len(programs) > 100
    assert not wrong(programs, jail)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ('"""\nimport numpy\n"""\ndef f(x):\n    return len(bytearray(b"a") * (1500 << 20))\n', Status.OOM),
        ("import numpy\ndef f(x):\n    return len(numpy.ones(1500 << 20, dtype=numpy.int8))\n", Status.OOM),
        ("import time\ndef f(x):\n    time.sleep(0.045)\n    return x + 1\n", Status.TIMEOUT),
    ],
)
def test_limits_hold_for_many_short_calls_and_with_numpy(code: str, status: Status) -> None:
    tests = "def check(candidate):\n    for n in range(1000):\n        assert candidate(n) == n + 1\n"
    with Executor(slots=1, limits=Limits(wall_s=2.0)) as executor:
        (verdict,) = executor.run([Job("job", code, tests, "f")])
    assert verdict.status is status  # without limits it would sleep for 45 seconds, and then pass


def test_nothing_of_a_program_is_left_on_its_first_descriptors() -> None:
    leaves = """
import fcntl, os
def f(x):
    fcntl.flock(1, fcntl.LOCK_EX)
    fcntl.fcntl(1, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)
    return x + 1
"""
    finds = """
import fcntl, os
def f(x):
    assert not fcntl.fcntl(1, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK)
    with open("/dev/null", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return x + 1
"""
    with Executor(slots=1, cache=0) as executor:
        for code in (leaves, finds):
            (verdict,) = executor.run([Job("job", code, FIVE, "f")])
            assert verdict.status is Status.PASSED, verdict.error


@pytest.mark.parametrize(
    ("code", "hidden"),
    [
        (
            """
import os, threading
def burn():
    numbers = []
    thread = threading.Thread(target=lambda: numbers.append(threading.get_native_id()))
    thread.start(); thread.join()
    return numbers[0]
def f(x):
    if x == 0: return (os.getpid() - 1) % 512
    for _ in range(600):
        if burn() % 512 == x: break
    return x
""",
            417,
        ),
        (
            """
import os
def new():
    with open("a", "w") as file: number = os.fstat(file.fileno()).st_ino
    os.unlink("a")
    return number
def f(x):
    if x == 0: return (new() - 1) % 4096
    while new() % 4096 != x: pass
    return x
""",
            1417,
        ),
    ],
)
def test_what_is_shown_comes_from_a_jail_without_hidden_tests(code: str, hidden: int) -> None:
    tests = f"def check(candidate):\n    assert candidate({hidden}) == {hidden}\n"
    with Executor(slots=1, cache=0) as executor:
        (verdict,) = executor.run([Job("job", code, tests, "f")])
        (shown,) = executor.run([Job("job", code, tests.replace(str(hidden), "0"), "f", shown=True)])
    assert verdict.status is Status.PASSED
    assert str(hidden) not in shown.cases[0].message


LEAVES_ALARM = """
import signal
def late(*args):
    raise TimeoutError("too slow")
def check(candidate):
    signal.signal(signal.SIGALRM, late)
    signal.alarm(1)
    assert candidate(1) == 2
    value = candidate(2)
    signal.alarm(0)
    assert value == 3
"""
LEAVES_SETTINGS = """
import decimal, sys
decimal.getcontext().prec = 3
sys.setrecursionlimit(200)
sys.set_int_max_str_digits(640)
def check(candidate):
    assert candidate(1) == 2
"""
NEEDS_SETTINGS = """
import time
from decimal import Decimal
def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)
def check(candidate):
    assert candidate(0) == 1
    time.sleep(1.2)
    assert candidate(499) == deep(500)
    assert Decimal(candidate(0)) / 3 == Decimal("0.3333333333333333333333333333")
    assert int("9" * 2000) == 10 ** 2000 - candidate(0)
"""


@pytest.mark.parametrize("tests", [LEAVES_ALARM, LEAVES_SETTINGS])
def test_tests_leave_nothing_in_the_judge(tests: str) -> None:
    with Executor(slots=1, cache=0) as executor:
        executor.run([Job("before", "import os\ndef f(x):\n    return os._exit(0) if x == 2 else x + 1\n", tests, "f")])
        (verdict,) = executor.run([Job("after", "def f(x):\n    return x + 1\n", NEEDS_SETTINGS, "f")])
    assert verdict.status is Status.PASSED, verdict


def test_exceptions_of_test_frameworks_end_the_tests_and_not_the_judge() -> None:
    tests = """
import pytest
def check(candidate):
    assert candidate(1) == 1
    with pytest.raises(ValueError):
        candidate(-1)
    assert candidate(2) == 2
"""
    with Executor(slots=1) as executor:
        (verdict,) = executor.run([Job("job", "def f(x):\n    return x\n", tests, "f")])
        assert executor.health()["restarts"] == 0
    assert (verdict.status, verdict.passed) == (Status.FAILED, 1)
    assert "DID NOT RAISE" in verdict.cases[1].message


def test_texts_of_a_program_can_be_written_anywhere() -> None:
    code = "def f(x):\n    raise ValueError('\\ud800\\x1b[31m\\0' + 'a' * 100_000)\n"
    with Executor(slots=1) as executor:
        (verdict,) = executor.run([Job("job", code, FIVE, "f")])
    texts = [verdict.error, *(case.message for case in verdict.cases)]
    canonical_json(texts).encode()
    assert all(printable(text) == text and len(text) <= Limits().error_kb << 10 for text in texts)
    assert r"\ud800\x1b[31m\x00" in verdict.error


@pytest.mark.parametrize(("status", "passed"), [(Status.CRASH, 2), (Status.PASSED, 1), (Status.FAILED, 3)])
def test_a_verdict_that_contradicts_itself_cannot_be_made(status: Status, passed: int) -> None:
    with pytest.raises(ValueError, match="cannot have passed"):
        Verdict("job", status, passed, 2)


def test_messages_are_the_same_in_every_run_and_cannot_deceive() -> None:
    code = "def f(x):\n    assert x > 1, (f, lambda: 1)\n    return '\\x85\\x9b\\u202e\\u2066\\u2028'\n"
    tests = "assert f(1) == 1\nassert f(2) == 2\nassert f(3) == iter([])\n"
    messages = []
    for _ in range(2):
        with Executor(slots=1, limits=Limits(memory_mb=300)) as executor:
            (verdict,) = executor.run([Job("job", code, tests, "f")])
        messages.append([case.message for case in verdict.cases])
    assert messages[0] == messages[1]
    assert "<function f>" in messages[0][0] and "<list_iterator object>" in messages[0][2]
    assert r"\x85\x9b\u202e\u2066\u2028" in printable("\x85\x9b\u202e\u2066\u2028") == messages[0][1].split("'")[1]


def test_what_tests_write_goes_to_a_folder_that_is_empty_again_for_the_next() -> None:
    before = set(Path.cwd().iterdir())
    tests = """
import os
assert f(os.listdir("."))
os.makedirs("made/by/tests")
with open("written", "w") as file:
    file.write("x")
assert f("made")
os.chdir("made")
"""
    with Executor(slots=1, cache=0) as executor:
        for _ in range(2):
            (verdict,) = executor.run([Job("job", "def f(x):\n    return x in ([], 'made')\n", tests, "f")])
            assert verdict.status is Status.PASSED, verdict.error
    assert set(Path.cwd().iterdir()) == before
