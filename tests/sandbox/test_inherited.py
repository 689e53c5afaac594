"""Whatever process opens an executor, and however it was started, an innocent program is not blamed."""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline_lib.sandbox import Executor, Job, Limits, Status
from pipeline_lib.sandbox.inside import confine
from tests.needs import JAILS, needs

TESTS = "def check(candidate):\n    assert candidate(1) == 2\n"
GOOD = "def f(x):\n    return x + 1\n"
_ROOT = Path(__file__).parents[2]
_RUN = f"""
from pipeline_lib.sandbox import Executor, Job
from pipeline_lib.sandbox.backend import SandboxUnavailable
try:
    with Executor(slots=1) as executor:
        (verdict,) = executor.run([Job("job", {GOOD!r}, {TESTS!r}, "f")])
        print(verdict.status.value, verdict.error)
except SandboxUnavailable as error:
    print("unavailable", error)
"""


def started(before: str, run: str = _RUN) -> str:
    """Return what a process prints that does ``before`` and then judges a good program."""
    done = subprocess.run([sys.executable, "-c", before + run], cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "before",
    [
        "import os, signal; os.umask(0o777); signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        "from resource import *\n"
        "for kind in (RLIMIT_AS, RLIMIT_DATA): setrlimit(kind, (1 << 29, RLIM_INFINITY))\n"
        "for kind in (RLIMIT_STACK, RLIMIT_FSIZE): setrlimit(kind, (1 << 20, RLIM_INFINITY))\n"
        "setrlimit(RLIMIT_NOFILE, (40, getrlimit(RLIMIT_NOFILE)[1]))",
    ],
)
def test_masks_and_soft_limits_of_the_caller_do_not_matter(before: str) -> None:
    assert started(before) == "passed \n"


@pytest.mark.parametrize("jail", [jail for jail in JAILS if jail != "bare"])
def test_packages_below_tmp_cost_the_tests_no_namespaces(jail: str) -> None:
    tests = "import socket\ndef check(candidate):\n    socket.socket().close()\n    assert candidate(1) == 2\n"
    run = _RUN.replace("slots=1", f"slots=1, jail={jail!r}").replace(repr(TESTS), repr(tests))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        (packages := Path(folder, "site-packages")).mkdir()
        assert started(f"import sys; sys.path.append({str(packages)!r})", run) == "passed \n"


@pytest.mark.parametrize(("name", "most"), [("AS", 300 << 20), ("CPU", 3)])
def test_a_hard_limit_that_is_too_low_is_told_at_the_start(name: str, most: int) -> None:
    told = started(f"import resource; resource.setrlimit(resource.RLIMIT_{name}, ({most}, {most}))")
    assert told.startswith("unavailable")
    assert f"the hard limit RLIMIT_{name} is {most}, but programs are promised" in told


def test_a_hard_limit_that_is_too_low_for_tests_alone_is_told_at_the_start() -> None:
    most = 700 << 20
    told = started(f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({most}, {most}))")
    assert told.startswith("unavailable")
    assert told.count(f"the hard limit RLIMIT_AS is {most}, but tests are promised") == 1


def test_a_job_whose_tests_are_promised_more_than_a_hard_limit_allows_ends_as_an_infra_error() -> None:
    limits = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
    own = _RUN.replace('"f")', '"f", limits=Limits(memory_mb=1900))').replace(
        "import Executor", "import Limits, Executor"
    )
    done = subprocess.run([sys.executable, "-c", limits + own], cwd=_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("infra_error the hard limit RLIMIT_AS is 2147483648, but tests are promised")


def test_tests_of_all_jobs_together_may_take_more_time_than_a_hard_limit_allows() -> None:
    tests = "n = 0\nfor i in range(BIG):\n    n += 1\nassert f(n) == n + 1\n".replace("BIG", str(8_000_000))
    jobs = f"[Job('job', {GOOD!r}, {tests!r}, 'f', seed=seed) for seed in range(8)]"
    burn = (
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (4, 4))\n"
        "from pipeline_lib.sandbox import Executor, Job, Limits\n"
        "with Executor(slots=1, cache=0, limits=Limits(cpu_s=2)) as executor:\n"
        f"    print(*(verdict.status.value for verdict in executor.run({jobs})))\n"
    )
    done = subprocess.run([sys.executable, "-c", burn], cwd=_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["passed"] * 8


_GONE = "import os, tempfile; gone = tempfile.mkdtemp(); os.chdir(gone); os.rmdir(gone)\n"


@pytest.mark.parametrize("jail", JAILS)
def test_an_executor_needs_no_working_folder(jail: str) -> None:
    run = _RUN.replace("slots=1", f"slots=1, jail={jail!r}")
    relative = f"import sys; sys.path[:0] = [{str(_ROOT)!r}, 'relative', '.']\n"
    assert started(relative + _GONE, run) == "passed \n"
    new_parent = "os.kill(executor.health()['parent'], 9)\n        (verdict,)"
    assert started("", run.replace("(verdict,)", _GONE + " " * 8 + new_parent)) == "passed \n"


def test_a_temporary_folder_that_cannot_be_used_is_told() -> None:
    told = started(_GONE + "os.environ['TMPDIR'] = 'relative'\n")
    assert told.startswith("unavailable the sandbox backend 'process' cannot start: it can make no temporary folder")
    assert "TMPDIR" in told


@needs("root")
def test_a_folder_that_only_root_may_enter_is_told(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    run = _RUN.replace("slots=1", "slots=1, jail='bare'")
    environment = os.environ | {"TMPDIR": str(closed)}
    command = [sys.executable, "-c", run]
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("unavailable")
    assert f"chmod o+x {closed}" in done.stdout
    assert not done.stderr


def test_a_job_that_is_promised_more_than_a_hard_limit_allows_ends_as_an_infra_error() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Executor(slots=1) as executor:
        (verdict,) = executor.run([Job("job", GOOD, TESTS, "f", limits=Limits(open_files=most + 1))])
    assert verdict.status is Status.INFRA_ERROR
    assert "RLIMIT_NOFILE" in verdict.error


@pytest.mark.parametrize("kind", ["AS", "CPU", "DATA", "FSIZE", "NOFILE", "STACK", "NPROC"])
def test_every_limit_of_a_program_is_checked(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = {name: getattr(Limits(), name) for name in Limits.__dataclass_fields__}
    low = getattr(resource, f"RLIMIT_{kind}")
    monkeypatch.setattr(confine.resource, "getrlimit", lambda asked: (1, 1) if asked == low else (-1, -1))
    with pytest.raises(ValueError, match=f"RLIMIT_{kind} is 1"):
        confine.resource_limits(usual)


_FULL = """
import json, os, subprocess, sys
from pipeline_lib.sandbox import Executor, Job, Status
from pipeline_lib.sandbox import local
from pipeline_lib.sandbox.backend import SandboxUnavailable
local._BROKEN_S = 2.0
jail, tests, writer, of_files = sys.argv[1:]

def limit(options):
    subprocess.run(["mount", "-o", "remount," + options, os.environ["TMPDIR"]], check=True)

def opened():
    executor = Executor(slots=1, jail=jail, cache=0)
    assert executor.run([Job("first", "def f(x): return x + 1", tests, "f")])[0].status is Status.PASSED
    return executor  # and a child waits for the next program

told = []
for resource, enough in (("size", "1g"), ("nr_inodes", "100000")):
    for job in (Job("w", writer, tests, "f"), Job("t", "def f(x): return x + 1", of_files, "f")):
        with opened() as executor:
            had = os.statvfs(os.environ["TMPDIR"])
            used = {"size": had.f_blocks - had.f_bfree << 12, "nr_inodes": had.f_files - had.f_ffree}[resource]
            limit(f"{resource}={max(used, 4096 if resource == 'size' else 4)}")
            told.append([verdict.status for verdict in executor.run([job] * 2)])
            limit(f"{resource}={enough}")
            while (verdict := executor.run([job])[0]).status is Status.INFRA_ERROR:
                pass  # the judge is started again within seconds
            told[-1].append(verdict.status)
limit("size=64k")
try:
    Executor(slots=1, jail=jail).close()
    told.append("starts")
except SandboxUnavailable as error:
    told.append(str(error))
print(json.dumps(told))
"""


@needs("root")
@needs("namespaces")
@pytest.mark.parametrize("jail", JAILS)
def test_a_temporary_folder_that_is_full_blames_no_program(jail: str) -> None:
    folder = Path(tempfile.mkdtemp())  # pytest's own lets in root alone
    folder.chmod(0o755)
    writer = "def f(x):\n    open('file', 'w').write('y' * 100000)\n    return x + 1\n"
    write = "import tempfile\ndef check(candidate):\n    with tempfile.TemporaryFile() as file:\n"
    of_files = write + "        file.write(b'y' * 100000), file.flush()\n    assert candidate(1) == 2\n"
    mount = 'mount -t tmpfs -o mode=1777 none "$0" && TMPDIR="$0" exec "$@"'
    own = [sys.executable, "-c", _FULL, jail, TESTS, writer, of_files]
    try:
        command = ["unshare", "--mount", "sh", "-c", mount, folder, *own]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    finally:
        folder.rmdir()
    assert done.returncode == 0, done.stderr
    *verdicts, start = json.loads(done.stdout)
    if jail == "bare":
        assert verdicts == [["infra_error", "infra_error", "passed"]] * 4
        assert "No space left on device" in start
        assert "let TMPDIR name another folder" in start
        assert len(start) < 1000
    else:
        assert verdicts == [["passed"] * 3] * 4
        assert start == "starts"


def test_an_executor_works_on_both_sides_of_a_fork() -> None:
    with Executor(slots=1, cache=0) as executor:
        jobs = [Job(str(n), GOOD, TESTS, "f") for n in range(2)]
        assert executor.run(jobs[:1])[0].status is Status.PASSED
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(120)  # it once waited for ever
                with ThreadPoolExecutor(6) as threads:
                    found = [verdicts[0].status for verdicts in threads.map(executor.run, [jobs[1:]] * 6)]
                code = 0 if found == [Status.PASSED] * 6 else 2
                executor.close()
            finally:
                os._exit(code)
        assert executor.run(jobs[1:])[0].status is Status.PASSED
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert executor.run(jobs[:1])[0].status is Status.PASSED
