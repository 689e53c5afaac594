"""Nothing that one program leaves, or holds while it runs, can be seen by another one."""

import itertools
import platform
import signal
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from pipeline_lib.sandbox import Executor, Job, Limits, Status, Verdict
from tests.needs import JAILS
from tests.sandbox.busy import stopped_holder

# Each is one thing that two programs could have in common.  The program does it in a call and then answers rightly.
TRACES = {
    "times of devices": """
        for path, when in itertools.product(("/dev/null", "/dev/urandom"), (None, (5, 7))):
            attempt(os.utime, path, when)
        attempt(os.utime, os.open("/dev/null", os.O_WRONLY))""",
    "modes and owners of devices": """
        for path in ("/dev/null", "/dev/urandom", "/dev", "/", "/tmp"):
            attempt(os.chmod, path, 0o741)
            attempt(os.chown, path, os.getuid(), -1)
            attempt(os.setxattr, path, "user.note", b"secret")""",
    "times of folders": """
        for path in (home, "/tmp", "/", os.path.dirname(home), stdlib):
            attempt(os.utime, path, (5, 7))""",
    "a file that is gone": "open('note', 'w').close(); os.unlink('note')",
    "file numbers": "for n in range(40): open(str(n), 'w').close()",
    "files without a name": "tempfile.TemporaryFile().write(b'secret')",
    "a listed folder": "os.listdir('.')",
    "mode of the folder": "attempt(os.chmod, '.', 0o751); attempt(os.setxattr, '.', 'user.note', b'secret')",
    "umask and current folder": "os.umask(0o77); os.chdir('/')",
    "process numbers": """
        for n in range(30):
            thread = threading.Thread(target=int)
            thread.start()
            thread.join()""",
    "priority and place": """
        attempt(os.nice, 5)
        attempt(os.sched_setaffinity, 0, {0})
        attempt(os.sched_setscheduler, 0, os.SCHED_IDLE, os.sched_param(0))""",
    "limits": "attempt(resource.setrlimit, resource.RLIMIT_NOFILE, (20, 20))",
    "locks": """
        for path in (stdlib + "/os.py", "/dev/null"):
            file = open(path)
            attempt(fcntl.flock, file, fcntl.LOCK_EX)
            attempt(fcntl.lockf, file, fcntl.LOCK_SH)
            kept.append(file)""",
    "flags and offsets": """
        for number in range(3):
            attempt(fcntl.fcntl, number, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)
            attempt(os.lseek, number, 100, 0)""",
    "abstract sockets": """
        other = attempt(socket.socket, socket.AF_UNIX)
        if isinstance(other, socket.socket):
            other.bind("\\0secret")""",
    "memory of the machine": """
        library = ctypes.CDLL(None)
        library.shmget(77, 4096, 0o1666)
        library.semget(77, 1, 0o1666)
        library.msgget(77, 0o1666)
        library.memfd_create(b"note", 0)""",
    "cookies of sockets": """
        for pair in [socket.socketpair() for n in range(5)]:
            attempt(pair[0].getsockopt, socket.SOL_SOCKET, 57, 8)""",
    "pages of files": """
        with open(stdlib + "/turtle.py", "rb") as file:
            file.read()
            attempt(os.posix_fadvise, file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)""",
    "modules and environment": "os.environ['NOTE'] = 'secret'; sys.modules['note'] = sys; sys.setrecursionlimit(77)",
}

_HEAD = """
import ctypes, fcntl, itertools, os, resource, socket, sys, tempfile, threading
home, stdlib = os.environ["HOME"], os.path.dirname(os.__file__)
kept = []
def attempt(function, *args):
    try:
        return function(*args)
    except OSError as error:
        return error.errno
"""

# Everything that a program can look at, without clocks; a child inherits the rest from a process that saw no program.
_OBSERVER = (
    _HEAD
    + """
def facts(path):
    found = attempt(os.stat, path)
    if isinstance(found, int):
        return found
    mount = os.statvfs(path)
    times = [int(t) for t in (found.st_atime, found.st_mtime)] if path.startswith("/dev/") and SHARED else []
    return [path, found.st_mode, OWN and (found.st_ino, found.st_nlink, found.st_size), found.st_uid, times,
            path == home and OWN and (mount.f_bfree, mount.f_ffree), os.listxattr(path)]

def probe_lock(path):
    with open(path) as file:
        return [attempt(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB),
                attempt(fcntl.fcntl, file, fcntl.F_GETLK, bytes(32)), attempt(fcntl.fcntl, file, 36, bytes(32))]

def look():
    library = ctypes.CDLL(None)
    open("probe", "w").close()
    seen = [facts(path) for path in ("/dev/null", "/dev/urandom", "/dev", "/tmp", home, home + "/probe")]
    seen += [sorted(os.listdir("."))] if os.listdir(".") != ["probe"] else []
    seen += [OWN and facts("probe"), os.getcwd(), os.umask(0), os.getpid(), threading.get_native_id()]
    seen += [OWN and os.getppid(), os.getpgrp(), attempt(os.getsid, 0), attempt(os.getloadavg), attempt(os.nice, 0)]
    seen += [sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0)]
    seen += [resource.getrlimit(kind) for kind in range(16)]
    seen += [probe_lock(stdlib + "/os.py"), probe_lock("/dev/null")]
    seen += [[fcntl.fcntl(n, fcntl.F_GETFL), attempt(os.lseek, n, 0, 1), os.isatty(n)] for n in (0, 1, 2)]
    seen += [library.shmget(77, 0, 0), library.semget(77, 0, 0), library.msgget(77, 0), library.sysinfo(bytes(200))]
    seen += [attempt(socket.socket, socket.AF_UNIX), attempt(os.listdir, "/dev/shm"), attempt(os.listdir, "/proc")]
    seen += [attempt(socket.socketpair()[0].getsockopt, socket.SOL_SOCKET, 57, 8)]
    import time
    seen += [attempt(time.clock_gettime, ~1 << 3 | 2), attempt(time.clock_getres, ~1 << 3 | 2)]
    with open(stdlib + "/turtle.py", "rb") as file:
        seen += [attempt(os.preadv, file.fileno(), [bytearray(9)], 0, os.RWF_NOWAIT)]
        seen += [library.mincore(ctypes.create_string_buffer(8192), 1, bytes(9)) and 1]
    seen += [os.environ.get("NOTE"), "note" in sys.modules, sys.getrecursionlimit()]
    seen += [sorted(os.listdir("/")) if OWN and SHARED else 0]
    own = int.from_bytes(ctypes.string_at(pthread_self() + 0x2D0, 4), "little") if OWN and NUMBERS else 0
    return repr([*seen, own])

def pthread_self():
    library = ctypes.CDLL(None)
    library.pthread_self.restype = ctypes.c_ulong
    return library.pthread_self()

def f(x):
    return look() if x else 0
"""
)


LIMITS = Limits(cpu_s=20.0, call_cpu_s=20.0, wall_s=60.0, error_kb=64)
LEAVES = "def check(candidate):\n    assert candidate(1) == 2\n"
TELLS = "def check(candidate):\n    assert candidate(0) == 0\n    raise ValueError(candidate(1))\n"
_count = itertools.count()


def leaver(trace: str, then: str = "") -> Job:
    return Job(
        f"leaver {trace}", f"{_HEAD}def f(x):\n    if True:{_body(trace)}\n    {then}\n    return x + 1\n", LEAVES, "f"
    )


def _body(trace: str) -> str:
    return "\n" + textwrap.indent(textwrap.dedent(TRACES[trace]), " " * 8)


def observer(jail: str, numbers: bool = False) -> Job:
    head = f"OWN, SHARED = {jail != 'bare'}, {jail != 'docker'}  # its devices are as old as a container\n"
    head += f"NUMBERS = {numbers and platform.machine() == 'x86_64'}  # {next(_count)}\n"
    return Job("observer", head + _OBSERVER, TELLS, "f")


def report(verdict: Verdict) -> str:
    assert verdict.error.startswith("assert candidate(0) == 0: ValueError: ["), (verdict.status, verdict.error)
    return verdict.error


@pytest.fixture(scope="module", params=JAILS)
def jail(request: pytest.FixtureRequest) -> Iterator[tuple[str, Executor]]:
    with Executor(slots=1, cache=0, jail=request.param, limits=LIMITS) as executor:
        yield request.param, executor


def seen_later(name: str, executor: Executor) -> dict[str, str]:
    """Return the traces that a later program sees, and what it then sees."""
    jobs = [observer(name), observer(name)]
    for trace in TRACES:
        jobs += [leaver(trace), observer(name)]
    verdicts = executor.run(jobs)
    assert [v.status for v in verdicts[2::2]] == [Status.PASSED] * len(TRACES)
    first, *rest = [report(verdict) for verdict in verdicts[1::2]]
    assert report(verdicts[0]) == first
    return {trace: seen for trace, seen in zip(TRACES, rest, strict=True) if seen != first}


def test_a_later_program_sees_nothing_of_an_earlier_one(jail: tuple[str, Executor]) -> None:
    assert seen_later(*jail) == {}


# Without namespaces, process numbers are the machine's (docs/sandbox.md).
@pytest.mark.parametrize("jail", [one for one in JAILS if one != "bare"], indirect=True)
def test_process_numbers_are_those_of_a_fresh_jail(jail: tuple[str, Executor]) -> None:
    name, executor = jail
    verdicts = executor.run(
        [leaver("file numbers"), observer(name, True), leaver("process numbers"), observer(name, True)]
    )
    assert report(verdicts[1]) == report(verdicts[3])


ABOVE = """
import os
def f(x):
    above = [os.path.dirname(os.environ["HOME"])]
    while above[-1] != "/":
        above.append(os.path.dirname(above[-1]))
    own = [place for place in above if os.stat(place).st_uid == os.stat(above[0]).st_uid and place.count("/") > 1]
    return repr([[s.st_mtime_ns, s.st_ctime_ns, s.st_nlink] for s in map(os.stat, own)]) if x else 0
"""


def test_programs_that_agents_see_do_not_see_when_hidden_ones_end(jail: tuple[str, Executor]) -> None:
    """A hidden program that leaves something could choose when its jail is replaced, and thus write a number."""
    _, executor = jail
    watching = Job("observer", ABOVE, TELLS, "f", shown=True)
    (before,) = executor.run([watching])
    for number in range(2):
        body = "    import os\n    os.mkdir('d')\n    import numpy\n" if number else "    open('note', 'w').close()\n"
        leaving = Job("hidden", f"def f(x):\n{body}    return x + 1\n", LEAVES, "f")
        hidden, after = executor.run([leaving])[0], executor.run([watching])[0]
        assert hidden.status is Status.PASSED
        assert before.error.startswith("assert candidate(0) == 0: ValueError: [[") == (jail[0] == "bare")
        assert after.error == before.error


def test_what_a_program_leaves_in_the_folder_of_its_tests_reaches_no_other(jail: tuple[str, Executor]) -> None:
    """A variable of the tests is named like a module of files, so both sides have the same files."""
    tests = "for io in [1]:\n    assert f(io) == 2\n"
    leaves = (
        "import os\ndef f(x):\n    os.mkdir('d')\n    os.chdir('d')\n    open('note', 'w').close()\n    return x + 1\n"
    )
    sees = "import os\ndef f(x):\n    return x + 1 + len(os.listdir('.')) + os.getcwd().endswith('d')\n"
    verdicts = [jail[1].run([Job("job", code, tests, "f", shown=code is sees)])[0] for code in (leaves, sees)]
    assert [verdict.status for verdict in verdicts] == [Status.PASSED, Status.PASSED], verdicts[1].error


def test_programs_that_run_at_the_same_time_see_nothing_of_each_other(jail: tuple[str, Executor]) -> None:
    name, executor = jail
    hold = "held = b'x' * (120 << 20); __import__('time').sleep(2.0)"
    with Executor(slots=1, cache=0, jail=name, limits=LIMITS) as other, ThreadPoolExecutor() as pool:
        (before,) = other.run([observer(name)])
        for trace in ("locks", "times of devices", "memory of the machine"):
            holding = pool.submit(executor.run, [leaver(trace, hold)])
            program = stopped_holder(lambda: [psutil.Process(executor.health()["parent"])])
            try:
                (during,) = other.run([observer(name)])
            finally:
                program.send_signal(signal.SIGCONT)
            assert holding.result()[0].status is Status.PASSED
            assert report(during) == report(before), trace
