"""Whatever dies, the verdicts are right; whoever ends, nothing is left."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from pipeline_lib.sandbox import Executor, Job, Limits, Status, Verdict, judges, local, runtime, wire
from pipeline_lib.sandbox import executor as executing
from pipeline_lib.sandbox.backend import SandboxUnavailable
from pipeline_lib.sandbox.local import Patience
from pipeline_lib.sandbox.runtime import claim_user
from pipeline_lib.sandbox.tests_source import Planned
from pipeline_lib.sandbox.time_limits import runnable_s
from pipeline_lib.sandbox.worker import ProcessJail
from tests.needs import JAILS
from tests.sandbox.busy import HOLDER, stopped_holder
from tests.sandbox.chaos import wrong_verdicts

LIMITS = Limits(cpu_s=1.0, call_cpu_s=0.5, wall_s=3.0)
TESTS = "def check(candidate):\n    assert candidate(1) == 2\n"
_ROOT = Path(__file__).parents[2]


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def wait_until_gone(processes: list[psutil.Process]) -> list[psutil.Process]:
    return psutil.wait_procs(processes, timeout=120)[1]


@pytest.mark.parametrize("victim", ["parent", "judge", "fork server", "program"])
def test_a_job_survives_the_death_of_any_process(victim: str) -> None:
    # Limits that a program which stands still for a while does not come near.
    with Executor(slots=2, limits=Limits(cpu_s=60.0, call_cpu_s=60.0, wall_s=600.0)) as executor:
        killer = threading.Thread(target=kill_when_busy, args=(executor, victim))
        killer.start()
        verdicts = executor.run([Job(str(i), HOLDER + f"# {i}", TESTS, "f") for i in range(2)])
        killer.join()
    assert [verdict.status for verdict in verdicts] == [Status.PASSED] * 2
    if victim != "parent":  # a new parent does not know what the old one did
        assert sorted(verdict.attempts for verdict in verdicts) == [1, 2]


@pytest.mark.parametrize("jail", JAILS)
def test_a_program_is_not_blamed_for_kills_of_its_fork_server(jail: str) -> None:
    ample = Limits(cpu_s=60.0, call_cpu_s=60.0, wall_s=600.0)
    with ThreadPoolExecutor(1) as thread, Executor(slots=1, cache=0, jail=jail, limits=ample) as executor:
        judged = thread.submit(executor.run, [Job("1", HOLDER, TESTS, "f")])

        def above() -> list[psutil.Process]:
            assert not judged.done(), judged.result()
            return [psutil.Process(executor.health()["parent"])]

        for kills in (True, True, False):
            program = stopped_holder(above)
            if kills:
                program.parents()[0].kill()
                assert wait_until_gone([program]) == []
            else:
                program.send_signal(signal.SIGCONT)
        (verdict,) = judged.result()
    assert (verdict.status, verdict.attempts) == (Status.PASSED, 3), verdict


def kill_when_busy(executor: Executor, victim: str) -> None:
    parent = psutil.Process(executor.health()["parent"])
    program = stopped_holder(lambda: [parent])
    above = program.parents()
    judge = above[above.index(parent) - 1]
    {"parent": parent, "judge": judge, "fork server": above[0], "program": program}[victim].kill()


@pytest.mark.parametrize("jail", JAILS)
def test_close_leaves_nothing(jail: str) -> None:
    executor = Executor(slots=2, limits=LIMITS, jail=jail)
    before = set(Path(tempfile.gettempdir()).glob(f"{runtime.PREFIX}*"))
    executor.run([Job("1", "def f(x): return x + 1", TESTS, "f")])
    parent = executor.health()["parent"]
    processes = [psutil.Process(parent), *descendants(parent)]
    assert len(processes) >= 3  # parent, judge and fork server of the first slot; the second may still be starting
    own = [folder for folder in before if f"-{parent}-" in f"-{folder.name.removeprefix(runtime.PREFIX)}"]
    assert own
    executor.close()
    executor.close()
    assert wait_until_gone(processes) == []
    assert not [folder for folder in own if folder.exists()]
    with pytest.raises(RuntimeError, match="closed"):
        executor.run([Job("2", "def f(x): return x + 2", TESTS, "f")])


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("jail", [JAILS[0], "bare"])
def test_the_end_of_the_trainer_leaves_nothing(end: signal.Signals, jail: str) -> None:
    trainer = subprocess.Popen(
        [sys.executable, "-c", _TRAINER, jail], cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert trainer.stdout is not None
    parent = int(trainer.stdout.readline())
    processes = descendants(trainer.pid)
    for _ in range(100):
        if len(processes) >= 5:
            break
        time.sleep(0.05)
        processes = descendants(trainer.pid)
    trainer.send_signal(end)
    trainer.wait()
    assert wait_until_gone(processes) == []
    assert not list(Path(tempfile.gettempdir()).glob(f"{runtime.PREFIX}{parent}-*"))


_TRAINER = """
import sys
from pipeline_lib.sandbox import Executor, Job
executor = Executor(slots=2, jail=sys.argv[1])
print(executor.health()["parent"], flush=True)
tests = "def check(candidate):\\n    assert candidate(1)"
executor.run([Job(str(i), f"def f(x):\\n    while True: {i}", tests, "f") for i in range(2)])
"""


def test_what_dead_executors_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    dead = base / f"{runtime.PREFIX}999999-123-abc"
    reused = base / f"{runtime.PREFIX}{os.getpid()}-1-abc"
    living = base / f"{runtime.PREFIX}{runtime.identity(os.getpid())}-abc"
    for folder in (dead, reused, living):
        (folder / "slot-0").mkdir(parents=True)
    own = runtime.make_run_folder()
    assert [folder.exists() for folder in (dead, reused, living, own)] == [False, False, True, True]


def test_no_two_slots_of_a_machine_have_the_same_user() -> None:
    claim = "from pipeline_lib.sandbox.runtime import claim_user; user = claim_user(); print(user.number, flush=True)"
    commands = [[sys.executable, "-c", f"{claim}; import time; time.sleep(60)"] for _ in range(3)]
    own = [claim_user() for _ in range(100)]  # more than there are between two process numbers
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE)) for command in commands]
        for process in others:
            stack.callback(process.kill)
        numbers = [int(process.stdout.readline()) for process in others if process.stdout is not None]
        assert len({user.number for user in own} | set(numbers)) == 103
    for user in own:
        user.claim.close()
    assert claim_user().number == own[0].number, "what was claimed is free again"


def test_executors_that_start_together_remove_the_same_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for number in range(300):
        (tmp_path / f"{runtime.PREFIX}999999-123-{number}" / "slot-0").mkdir(parents=True)
    with ThreadPoolExecutor(8) as threads:
        own = [made.result() for made in [threads.submit(runtime.make_run_folder) for _ in range(8)]]
    assert set(tmp_path.iterdir()) == set(own) and len(own) == 8


def test_a_job_that_stalls_the_judge_is_a_timeout_and_others_go_on() -> None:
    # No Python code of the judge runs during the sum, so only the kernel can end it.
    tests = "def check(candidate):\n    assert sum(range(candidate(1))) == 0\n"
    with Executor(slots=2, limits=Limits(cpu_s=0.1, call_cpu_s=0.1, wall_s=1)) as executor:
        stalls, good = executor.run(
            [
                Job("stalls", "def f(x):\n    return 10 ** 15\n", tests, "f"),
                Job("good", "def f(x):\n    return x + 1\n", TESTS, "f"),
            ]
        )
    assert (stalls.status, good.status) == (Status.TIMEOUT, Status.PASSED)
    assert "in a step without an end" in stalls.error, "the kernel ended it, and that was final"


@pytest.mark.parametrize(("runnable_s", "stuck"), [(2.0, False), (0.1, True), (None, True)])
def test_a_late_judge_is_stuck_only_if_it_does_nothing(
    monkeypatch: pytest.MonkeyPatch, runnable_s: float | None, stuck: bool
) -> None:
    """On a machine on which it gets a tenth of a processor it may take minutes until the kernel ends it."""
    seconds = itertools.count(0.0, runnable_s or 0.0)
    monkeypatch.setattr(local, "runnable_s", lambda pid: None if runnable_s is None else next(seconds))
    patience = Patience(os.getpid(), 60.0)
    assert not patience.is_over()
    for _ in range(100):
        patience.deadline = 0.0
        found = patience.is_over()
        if found:
            break
    assert found is stuck


def test_a_verdict_that_nobody_can_read_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = wire.unpack_verdict, list[bytes]()

    def unpack(body: bytes, planned: Planned) -> Verdict:
        seen.append(body)
        return real(body if len(seen) > 1 else body[:-1], planned)

    monkeypatch.setattr(wire, "unpack_verdict", unpack)
    with Executor(slots=1, limits=LIMITS) as executor:
        (verdict,) = executor.run([Job("1", "def f(x): return x + 1", TESTS, "f")])
    assert (verdict.status, verdict.attempts) == (Status.PASSED, 2)


def test_a_judge_that_stands_still_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_LEAST_S", 1.0)
    monkeypatch.setattr(local, "_CHECK_S", 0.2)
    with ThreadPoolExecutor(1) as thread, Executor(slots=1, cache=0, limits=LIMITS) as executor:
        (judge,) = executor.health()["judges"]
        os.kill(judge, signal.SIGSTOP)
        verdict = thread.submit(executor.run, [Job("1", "def f(x): return x + 1", TESTS, "f")]).result()[0]
        assert (verdict.status, verdict.attempts) == (Status.PASSED, 2)
        assert executor.health()["judges"] != [judge]
        assert not psutil.pid_exists(judge) or psutil.Process(judge).status() == psutil.STATUS_ZOMBIE


def test_a_process_is_at_work_while_it_runs_and_not_while_it_waits() -> None:
    code = "input()\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as one:
        try:
            while (started := runnable_s(one.pid) or 0.0) == 0.0:
                time.sleep(0.01)
            assert one.stdin is not None
            one.stdin.write(b"go on\n")
            one.stdin.flush()
            while (runnable_s(one.pid) or 0.0) < started + 0.5:  # ends only if it is counted
                time.sleep(0.01)
        finally:
            one.kill()
    assert runnable_s(one.pid) is None


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_chaos(count: int) -> None:
    with Executor(slots=6, limits=LIMITS, cache=0) as executor:
        wrong, killed = wrong_verdicts(executor, count, each=15)
    assert wrong == []
    assert len(killed) >= count // 15 - 1
    assert count < 2000 or set(killed) == {"parent", "judge", "jail"}


KILLS_ITSELF = {
    "the program": "import os\ndef f(x):\n    os.kill(os.getpid(), 9)\n",
    "the program while it loads": "import os\nos.kill(os.getpid(), 9)\ndef f(x):\n    return x + 1\n",
    "its fork server": "import os\ndef f(x):\n    os.kill(os.getppid(), 9)\n",
}


@pytest.mark.parametrize(("count", "programs"), [(1, 1), (2, 3)])
def test_a_program_that_finds_a_way_to_kill_has_no_verdict(
    monkeypatch: pytest.MonkeyPatch, count: int, programs: int
) -> None:
    # No filter of system calls: as if there were a hole in it.
    monkeypatch.setattr(executing, "filters", lambda: {})
    with Executor(slots=count, limits=LIMITS, jail="bare", min_isolation="rlimits") as executor:
        jobs = [Job(name, code, TESTS, "f") for name, code in KILLS_ITSELF.items()][:programs]
        *hostile, good = executor.run([*jobs, Job("good", "def f(x): return x + 1", TESTS, "f")])
    assert [(verdict.status, verdict.fraction) for verdict in hostile] == [(Status.INFRA_ERROR, None)] * programs
    assert all(verdict.error.endswith(": 20 times") for verdict in hostile)
    assert good.status is Status.PASSED


@pytest.mark.parametrize(("end", "attempts"), [("os._exit(0)", 2), ("os.kill(os.getpid(), f(8))", 6)])
def test_tests_that_end_their_process_are_a_crash(end: str, attempts: int) -> None:
    tests = f"import os\nassert f(1) == 2\n{end}\n"
    with Executor(slots=1, limits=LIMITS) as executor:
        jobs = [Job("ends", "def f(x): return x + 1", tests, "f"), Job("good", "def f(x): return x + 1", TESTS, "f")]
        ends, good = executor.run(jobs)
    assert (ends.status, ends.passed, ends.attempts, good.status) == (Status.CRASH, 0, attempts, Status.PASSED)


def test_a_killer_from_outside_that_finds_one_worker_alone_makes_no_crash() -> None:
    """Whoever kills everything below the parent again and again also kills the worker when it has no program."""
    code = "import time\ndef f(x):\n    time.sleep(1.2)\n    return x + 1\n"
    with ThreadPoolExecutor(1) as thread, Executor(slots=1, cache=0, limits=LIMITS) as executor:
        judged = thread.submit(executor.run, [Job("1", code, "assert f(1) == 2\nassert f(2) == 3\n", "f")])
        parent = psutil.Process(executor.health()["parent"])
        while executor.health()["restarts"] < 8 and not judged.done():
            end = time.monotonic() + 3.0
            while time.monotonic() < end and not executor.health()["busy"]:
                time.sleep(0.05)
            time.sleep(0.5)
            for child in parent.children():
                child.kill()
        (verdict,) = judged.result()
    assert verdict.status is Status.PASSED, verdict
    assert verdict.attempts > 6


def test_jobs_are_given_back_when_nothing_works_and_judged_when_it_does_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with Executor(slots=1, limits=LIMITS) as executor:
        health = executor.health()
        parent, own = health["parent"], [psutil.Process(pid) for pid in health["judges"]]
        with monkeypatch.context() as broken:
            broken.setattr(local, "_BROKEN_S", 1.0)
            broken.setattr(judges, "_START", "raise SystemExit('main() does not start')")
            os.kill(parent, signal.SIGKILL)
            assert wait_until_gone(own) == []  # with their parent, if not at once
            (lost,) = executor.run([Job("1", "def f(x): return x + 1", TESTS, "f")])
            assert lost.status is Status.INFRA_ERROR
            assert lost.error == "no worker could be started for 1 s: the parent of the judges ended while starting"
        (judged,) = executor.run([Job("1", "def f(x): return x + 1", TESTS, "f")])
        assert judged.status is Status.PASSED


def test_an_executor_closes_while_its_judges_cannot_be_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    endless = Limits(cpu_s=3600.0, call_cpu_s=3600.0, wall_s=3600.0)
    with ThreadPoolExecutor(1) as thread, Executor(slots=1, limits=endless) as executor:
        made = thread.submit(executor.run, [Job("1", "while True: pass", TESTS, "f")])
        while executor.health()["busy"] == 0:
            time.sleep(0.02)
        start = f"print('main()', file=open({str(tries)!r}, 'a')); raise SystemExit('main() does not start')"
        monkeypatch.setattr(judges, "_START", start)
        os.kill(executor.health()["parent"], signal.SIGKILL)
        while not tries.exists() or len(tries.read_text().splitlines()) < 2:
            time.sleep(0.02)
        executor.close()
        (lost,) = made.result()
    assert (lost.status, lost.error) == (Status.INFRA_ERROR, "the executor was closed")


@pytest.mark.parametrize(("kills", "starts"), [(2, True), (99, False)])
def test_a_parent_of_judges_that_is_killed_while_it_starts_is_started_again(
    kills: int, starts: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries = tmp_path / "tries"
    count = f"import os; file = open({str(tries)!r}, 'a'); file.write('.'); file.close()"
    killed = f"os.stat({str(tries)!r}).st_size > {kills} or os.kill(os.getpid(), 9)"
    monkeypatch.setattr(judges, "_START", f"{count}; {killed}; {judges._START}")
    if starts:
        with Executor(slots=1, limits=LIMITS) as executor:
            assert executor.run([Job("1", "def f(x): return x + 1", TESTS, "f")])[0].status is Status.PASSED
    else:
        with pytest.raises(SandboxUnavailable, match="the parent of the judges ended while starting"):
            Executor(slots=1, limits=LIMITS)
    assert len(tries.read_text()) == (kills + 1 if starts else 5)


def test_a_judge_that_is_killed_while_it_starts_is_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tries := tmp_path / "tries").touch()
    count = f"file = open({str(tries)!r}, 'a'); file.write('.'); file.close()"
    killed = f"os.stat({str(tries)!r}).st_size > 2 or os.kill(os.getpid(), 9)"
    serve = f"def serve(*given):\n    {count}; {killed}; real(*given)"
    patched = f"import os; from pipeline_lib.sandbox import judge; real = judge.serve\n{serve}\njudge.serve = serve\n"
    before, end = judges._START.split("; main()")
    monkeypatch.setattr(judges, "_START", f"{before}\n{patched}main(){end}")
    with Executor(slots=1, limits=LIMITS) as executor:
        assert executor.run([Job("1", "def f(x): return x + 1", TESTS, "f")])[0].status is Status.PASSED
    assert len(tries.read_text()) == 3


def test_a_jail_that_is_killed_while_it_starts_leaves_no_child() -> None:
    """As bubblewrap, whose child waits for its parent before it ends with it."""
    command = ["sh", "-c", "sleep 600 & echo $! >&2; kill -9 $$"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    assert process.wait() == -signal.SIGKILL
    child = [found for found in psutil.process_iter() if _group(found.pid) == process.pid]
    assert len(child) == 1, "the test is too easy"
    assert ProcessJail("bwrap", process).kill() == str(child[0].pid)
    assert wait_until_gone(child) == []


def _group(pid: int) -> int:
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid)
    return 0


def test_a_parent_of_judges_that_is_never_ready_is_told_in_words_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    before, end = judges._START.split("; main()")
    monkeypatch.setattr(judges, "_START", f"{before}; import time; time.sleep(600); main(){end}")
    monkeypatch.setattr(judges, "_START_S", 0.5)
    monkeypatch.setattr(judges, "_END_S", 0.5)
    there = set(psutil.Process().children())
    with pytest.raises(SandboxUnavailable, match=r"cannot start: the parent of the judges is not ready after 0\.5 s"):
        Executor(slots=1, limits=LIMITS)
    assert set(psutil.Process().children()) == there
