"""The process of the tests: what a program's values can make tests do there, and what one job leaves for the next."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.sandbox import Executor, Job, Limits, Status, Verdict
from pipeline_lib.sandbox.inside.confine import landlock_version
from pipeline_lib.sandbox.tests_source import leaves_nothing
from tests.needs import JAILS
from tests.sandbox.corpus import pairs

pytestmark = pytest.mark.sample("executor", "pipeline_lib/sandbox")  # one jail for each case
SECRET = "the-key-of-the-trainer"
BRIEF = Limits(wall_s=0.3)


@pytest.fixture(scope="module", params=JAILS)
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    os.environ["SYMPOSIUM_TEST_KEY"] = SECRET
    with Executor(slots=1, cache=0, jail=request.param) as opened:
        del os.environ["SYMPOSIUM_TEST_KEY"]
        yield opened


def judged(executor: Executor, tests: str, *values: Any, limits: Limits | None = None) -> Verdict:
    """Return the verdict on a program whose answer to n is the n-th value."""
    code = f"VALUES = {values!r}\ndef f(n):\n    return VALUES[n]\n"
    (verdict,) = executor.run([Job("job", code, tests, "f", limits=limits)])
    return verdict


# What tests do with a file whose name, or number, the program chose; `f(0)` is the name, `f(1)` bytes.
USES = {
    "read": "print(open(f(0)).read())\nassert False, open(f(0)).read()",
    "quote": "with open(f(0), 'rb') as file:\n    assert file.read() == b''",
    "write": "with open(f(0), 'wb') as file:\n    file.write(f(1))\nassert not f(1)",
    "append": "with open(f(0), 'ab', buffering=0) as file:\n    file.write(f(1))\nassert not f(1)",
    "update": "with open(f(0), 'r+b', buffering=0) as file:\n    file.write(f(1))\nassert not f(1)",
    "os.open": "number = os.open(f(0), os.O_WRONLY | os.O_CREAT)\nos.write(number, f(1))\nassert not f(1)",
    "os.mkfifo": "os.mkfifo(f(0) + '-new')\nassert not f(1)",
    "os.mknod": "os.mknod(f(0) + '-new')\nassert not f(1)",
    "os.mkdir": "os.mkdir(f(0) + '-new')\nassert not f(1)",
    "os.symlink": "os.symlink('/etc/passwd', f(0) + '-new')\nassert not f(1)",
    "os.link": "os.link(f(0), 'mine')\nassert open('mine').read() == ''",
    "symlink and read": "os.symlink(f(0), 'mine')\nassert open('mine').read() == ''",
    "os.rename": "os.rename(f(0), 'mine')\nassert open('mine').read() == ''",
    "os.replace": "open('x', 'w').close()\nos.replace('x', f(0))\nassert not f(1)",
    "os.remove": "os.remove(f(0))\nassert not f(1)",
    "os.remove below": (
        "folder, name = os.path.split(f(0))\nos.remove(name, dir_fd=os.open(folder, os.O_PATH))\nassert not f(1)"
    ),
    "os.truncate": "os.truncate(f(0), 0)\nassert not f(1)",
    "os.chmod": "os.chmod(f(0), 0o777)\nassert not f(1)",
    "os.utime": "os.utime(f(0), (1, 1))\nassert not f(1)",
    "os.chdir": "os.chdir(os.path.dirname(f(0)))\nassert open(os.path.basename(f(0))).read() == ''",
    "shutil.copy": "import shutil\nshutil.copy(f(0), 'mine')\nassert open('mine').read() == ''",
    "shutil.move": "import shutil\nshutil.move(f(0), 'mine')\nassert open('mine').read() == ''",
    "shutil.rmtree": "import shutil\nshutil.rmtree(os.path.dirname(f(0)))\nassert not f(1)",
    "sqlite3": "import sqlite3\nsqlite3.connect(f(0)).execute('create table t (x)')\nassert not f(1)",
    "sqlite3 attach": (
        "import sqlite3\nlink = sqlite3.connect(':memory:')\nlink.execute('attach ? as other', (f(0),))\n"
        "link.execute('create table other.t (x)')\nlink.commit()\nassert not f(1)"
    ),
    "pathlib": "import pathlib\nassert pathlib.Path(f(0)).read_text() == ''",
    "glob": "import glob\nassert [open(name).read() for name in glob.glob(f(0) + '*')] == [1]",
    "zipfile": "import zipfile\nzipfile.ZipFile(f(0), 'w').writestr('x', f(1))\nassert not f(1)",
    "linecache": "import linecache\nassert linecache.getlines(f(0)) == [1]",
    "subprocess": "import subprocess\nassert subprocess.run(['/bin/cat', f(0)], capture_output=True).stdout == b'-'",
}


@pytest.mark.parametrize("use", USES)
def test_tests_reach_no_file_that_a_program_names(executor: Executor, use: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:3]:
        if parent.name.startswith(("pytest-", "test_")):
            parent.chmod(0o755)
    victim = tmp_path / "victim"
    victim.write_text(SECRET)
    victim.chmod(0o666)
    before = victim.stat()
    verdict = judged(executor, f"import os\n{USES[use]}\n", str(victim), b"forged")
    assert verdict.status is not Status.PASSED
    assert SECRET not in str(verdict)
    after = victim.stat()
    assert (victim.read_text(), after.st_mode, after.st_mtime) == (SECRET, before.st_mode, before.st_mtime)
    assert list(tmp_path.iterdir()) == [victim]


@pytest.mark.parametrize(
    "name",
    [
        *("/etc/shadow", "/etc/passwd", "/proc/self/environ", "/proc/1/environ", "/proc/self/mem", "/proc/self/maps"),
        *("/proc/self/fd/3", "/dev/fd/3", "/proc/self/cwd/../../etc/passwd", "../../../../../../etc/passwd"),
        *("/root/.bash_history", "/proc/self/cmdline", "/sys/kernel/notes", "/dev/mem", "/dev/shm", "/var/log"),
    ],
)
def test_tests_read_nothing_of_the_machine(executor: Executor, name: str) -> None:
    tests = "import os\nassert open(f(0), 'rb').read(1000) == b'-'\nassert os.listdir(f(0)) == ['-']\n"
    verdict = judged(executor, tests, name)
    assert verdict.passed == 0
    assert all("Error" in case.message for case in verdict.cases), verdict.cases
    assert SECRET not in str(verdict)


def test_tests_do_not_have_the_trainers_environment(executor: Executor) -> None:
    tests = "import os\nassert f(0) == os.environ.get('SYMPOSIUM_TEST_KEY')\nassert 'TMPDIR' in os.environ\n"
    assert judged(executor, tests, None).status is Status.PASSED


NUMBERS = {
    "open": "with open(f(0), 'wb', closefd=False) as file:\n    file.write(f(1))",
    "open unbuffered": "file = open(f(0), 'wb', buffering=0, closefd=False)\nfile.write(f(1))",
    "os.write": "os.write(f(0), f(1))",
    "os.fdopen": "os.fdopen(f(0), 'wb').write(f(1))",
    "os.dup": "os.write(os.dup(f(0)), f(1))",
    "os.dup2": "os.dup2(f(0), 9)\nos.write(9, f(1))",
    "os.writev": "os.writev(f(0), [f(1)])",
    "os.close": "os.close(f(0))",
    "os.closerange": "os.closerange(f(0), 100)",
    "os.close, another file": "os.close(f(0))\nfile = open('x', 'wb')\nfile.write(f(1))",
    "over it": "os.dup2(os.open('x', os.O_RDWR | os.O_CREAT), f(0))",
    "shutdown": "import socket\nsocket.socket(fileno=f(0)).shutdown(2)",
    "send": "import socket\nsocket.socket(fileno=f(0)).sendall(f(1))",
    "read": "os.set_blocking(f(0), False)\nos.read(f(0), 100)",
    "read for good": "os.read(f(0), 100)",
    "os.ftruncate": "os.ftruncate(f(0), 0)",
}
FORGED = b"\0\0\0\2{}" + b"\0" * 60, b"\xff" * 100, b"", b"\0\0\0\1x" * 1000


@pytest.mark.parametrize("use", NUMBERS)
@pytest.mark.parametrize("number", [3, 4])
def test_a_program_that_names_a_descriptor_forges_nothing(executor: Executor, use: str, number: int) -> None:
    for data in FORGED[: None if "f(1)" in NUMBERS[use] else 1]:
        verdict = judged(
            executor, f"import os\n{NUMBERS[use]}\nassert f(1) == 'never'\nassert f(0)\n", number, data, limits=BRIEF
        )
        assert verdict.status not in (Status.PASSED, Status.INFRA_ERROR), verdict
    assert judged(executor, "assert f(0)\n", 1).status is Status.PASSED


WAITS = {
    "sleep": "time.sleep(f(0))",
    "event": "threading.Event().wait(f(0))",
    "select": "select.select([], [], [], f(0))",
    "lock": "lock = threading.Lock()\nlock.acquire()\nlock.acquire(timeout=f(0))",
    "join": "thread = threading.Thread(target=time.sleep, args=(f(0),))\nthread.start()\nthread.join()",
    "suppressed": "for _ in range(f(0)):\n    with contextlib.suppress(BaseException):\n        time.sleep(f(0))",
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_value_that_makes_tests_wait_is_a_timeout(executor: Executor, wait: str) -> None:
    verdict = judged(
        executor,
        f"import contextlib, select, threading, time\nassert f(0)\n{WAITS[wait]}\nassert f(0)\n",
        1000,
        limits=BRIEF,
    )
    assert verdict.status is Status.TIMEOUT
    assert verdict.wall_s < 30  # of a thousand seconds


def test_tests_signal_no_process_that_is_not_theirs(executor: Executor) -> None:
    calls = ["os.kill(os.getppid(), number)"]
    if landlock_version() >= 6:
        calls += ["ctypes.CDLL(None).tgkill(os.getppid(), os.getppid(), number)"]
    before = executor.health()["restarts"]
    for call in calls:
        tests = f"import ctypes, os\nfor number in (15, 9):\n    try: {call}\n    except OSError: pass\nassert f(0)\n"
        for verdict in (judged(executor, tests, 1), judged(executor, "import os\nassert f(0)\n", 1)):
            assert (verdict.status, verdict.attempts) == (Status.PASSED, 1)
    assert executor.health()["restarts"] == before


# What tests may leave in their process, and tests that would notice it.
STATE = {
    **pairs("left_by_tests", "in their process"),
    "nice": ("import os\nos.nice(1)", f"assert os.nice(0) == {os.nice(0)}"),
}
_IMPORTS = """
import atexit, builtins, codecs, collections, copy, decimal, gc, json, locale, logging, math, numbers, os, random, re
import resource, signal, sys, tempfile, threading, time, unittest, warnings
"""


def test_nothing_that_tests_change_outlives_them() -> None:
    """Each pair runs on one slot: the verdict of the second job is what it is alone."""
    with Executor(slots=1, cache=0, limits=Limits(wall_s=3.0)) as executor:
        wrong = []
        for name, (leave, notice) in STATE.items():
            code = f"def f(n):\n    return n + 1  # {name}\n"
            wrecking = f"{leave}\ndef check(candidate):\n    assert candidate(1) == 2\n"
            indented = "".join(f"    {line}\n" for line in notice.splitlines())
            noticing = f"{_IMPORTS}def check(candidate):\n    assert candidate(1) == 2\n{indented}"
            jobs = [Job("first", code, wrecking, "f"), Job("second", code, noticing, "f")]
            verdicts = [executor.run([job])[0] for job in jobs]
            if verdicts[1].status is not Status.PASSED:
                wrong.append((name, verdicts[1].error))
    assert not wrong
    assert len(STATE) >= 40


_ADD_KEY = {"x86_64": 248, "aarch64": 217}[platform.machine()]
#: What outlives even all processes of the tests' session.
REMAINS = {
    **pairs("left_by_tests", "beyond it"),
    "a key": (
        f"import ctypes\nctypes.CDLL(None).syscall({_ADD_KEY}, b'user', b'left', b'x', 1, -4)",
        f"assert call.syscall({_ADD_KEY + 1}, b'user', b'left', None, 0) == -1",
    ),
    "priority of all": (
        "import os\ntry: os.setpriority(os.PRIO_USER, 0, 19)\nexcept OSError: pass",
        f"assert os.nice(0) == {os.nice(0)}",
    ),
}


@pytest.mark.parametrize("remains", REMAINS)
def test_nothing_outlives_the_session_of_the_tests(executor: Executor, remains: str) -> None:
    leave, notice = REMAINS[remains]
    code = f"def f(n):\n    return n + 1  # {remains}\n"
    wrecking = f"import time\n{leave}\nassert f(1) == 2\n"
    noticing = f"import ctypes, os, time\ncall = ctypes.CDLL(None)\nassert f(1) == 2\n{notice}\n"
    first, second = [executor.run([Job("job", code, tests, "f")])[0] for tests in (wrecking, noticing)]
    assert (first.status, second.status) == (Status.PASSED, Status.PASSED), (first, second)


CLEAN = [
    "def check(candidate):\n    assert candidate(1) == [1, 2][0]\n",
    "import math\nfrom random import randint\nfor i in range(3):\n    x = [randint(1, i)]\n    assert f(x) == math.e\n",
    "try:\n    f([])\n    assert False\nexcept ValueError as e:\n    assert 'x' in str(e).lower()\n",
    "def close(a, b=1e-6):\n    return abs(a - b) < 1e-6\nassert close(f(1), 2)\nassert 'x'.join(f(2)) == ''\n",
]
LASTING = [
    *(f"{leave}\nassert f(1)\n" for leave, _ in STATE.values()),
    "def g(open): pass\nopen('x', 'w')\nassert f(1)\n",
    "def g(os): pass\nos.remove('x')\nassert f(1)\n",
    "assert f(1).__class__\n",
    "f.attribute = 1\nassert f(1)\n",
    "class A: pass\nassert f(1)\n",
    "global_ = globals()\nassert f(1)\n",
    "def g(__builtins__): pass\n__builtins__['len'] = 1\nassert f(1)\n",
    "import typing\ntyping.get_type_hints(f)\nassert f(1)\n",
    "from math import *\nassert f(1)\n",
    "import collections.abc\nassert f(1)\n",
    "import random\nrandom._inst = 1\nassert f(1)\n",
    "from copy import copyreg\nassert f(1)\n",
    "np.random.seed(1)\nassert f(1)\n",
    "import string\nx = string\nx.Formatter.format = 1\nassert f(1)\n",
    "@f\ndef g(): pass\nassert f(1)\n",
    "with f(1): pass\nassert f(1)\n",
    "async def g(): pass\nassert f(1)\n",
    "exec(f(1))\nassert f(1)\n",
    "setattr(int, 'x', 1)\nassert f(1)\n",
    "for io in [1]:\n    assert f(io)\n",  # the program's files come to the tests
]


def test_only_tests_that_can_leave_nothing_share_a_process() -> None:
    assert [tests for tests in CLEAN if not leaves_nothing("", tests, "f")] == []
    assert [tests for tests in LASTING if leaves_nothing("", tests, "f")] == []
    assert not leaves_nothing("import os\n", CLEAN[0], "f")
    assert leaves_nothing("from typing import List\ndef helper(x: List[int]): return x\n", "assert helper(f(1))\n", "f")


def test_tests_with_packages_and_without_have_a_folder_each(executor: Executor) -> None:
    tests = "with open('x', 'w') as file:\n    file.write('1')\nassert f(1) == 2\nassert open('x').read() == '1'\n"
    for head in ("", "import numpy\n", ""):
        (verdict,) = executor.run([Job("job", f"{head}def f(n):\n    return n + 1\n", tests, "f")])
        assert verdict.status is Status.PASSED, verdict
