"""Runs the corpus and says what went wrong.  Needs the standard library alone, so that any user and Python can run it:

``python -m tests.sandbox.corpus.check JAIL [N]`` (a kind of process jail, ``docker``, or ``runsc`` for Docker with
gVisor) runs all programs, or a sample with N of each family, prints one line per problem and ends with 1 if there are
any.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline_lib.sandbox import Executor, Job, Limits, Status, Verdict
from tests.sandbox.corpus import TESTS, Program, corpus

LIMITS = Limits(cpu_s=12.0, call_cpu_s=6.0, wall_s=60.0, memory_mb=256)  # for programs that end by themselves
WORK = Limits(cpu_s=2.0, call_cpu_s=1.0, wall_s=60.0, memory_mb=256)  # for those that end by a limit on their work
SHORT = Limits(cpu_s=0.3, call_cpu_s=0.1, wall_s=0.4, memory_mb=256)

# Passes only on a worker that nobody has left anything on.
CANARY = """
import builtins, os, random, sys

def f(x):
    assert not hasattr(builtins, "left_behind"), "builtins"
    assert os.getcwd() == os.environ["HOME"], os.getcwd()
    assert os.listdir(".") == [], os.listdir(".")
    with open("probe", "w") as file:
        file.write("x")
    os.unlink("probe")
    assert set(sys.modules) >= {"os", "random"} and random.random
    return x + 1
"""


def job(program: Program) -> Job:
    """Return a program as a job, with the limits that its verdict needs."""
    limits = SHORT if program.hangs else WORK if program.statuses == (Status.TIMEOUT,) else LIMITS
    return Job(program.name, program.code, TESTS, "f", limits=limits)


def problem(program: Program, verdict: Verdict) -> str:
    """Return what is wrong with the verdict, or an empty text."""
    if verdict.status not in program.statuses:
        return f"{program.name}: {verdict.status} instead of {program.statuses}: {verdict.error}"
    if verdict.total != 5 or verdict.passed > program.passed or (program.honest and verdict.passed != program.passed):
        return f"{program.name}: {verdict.passed}/{verdict.total} instead of {program.passed}"
    return ""


def canary(executor: Executor, after: str) -> str:
    """Return what is wrong with a good program run now, or an empty text."""
    code = CANARY + f"\n# after {after}\n"  # a text of its own, so that the cache does not answer
    verdict = executor.run([Job("canary", code, TESTS, "f", limits=LIMITS)])[0]
    return "" if verdict.status is Status.PASSED else f"canary after {after}: {verdict.status} {verdict.error}"


def processes(executor: Executor) -> dict[int, str]:
    """Return the processes that the sandbox has, and their names."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                head, _, tail = (folder / "stat").read_text().rpartition(")")
            except OSError:
                continue
            if tail.split()[0] != "Z":
                parents[int(folder.name)] = int(tail.split()[1])
                names[int(folder.name)] = head.partition("(")[2]
    parent = executor.health()["parent"]

    def below(pid: int) -> bool:
        while pid in parents and pid != parent:
            pid = parents[pid]
        return pid == parent

    return {pid: names[pid] for pid in parents if pid != parent and below(pid)}


def _filters(process: int | str) -> int:
    """Return how many filters of system calls a process has, 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return int(next(line for line in lines if line.startswith("Seccomp_filters")).split()[1])


def _is_fork(process: int) -> bool:
    """Return whether a process is a fork server or a fork of one: both have its command line."""
    try:
        return b"zygote" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


_STEADY_S = 1.0


def at_rest(executor: Executor) -> Counter[str]:
    """Return the processes of a sandbox that waits for a job, once every fork server has a program on offer.

    A fork server has one filter of its own, a program that and another.  In a container neither can be seen, so the
    processes must also stay the same for a while.
    """
    before, last, since = _filters("self"), Counter[str](), time.monotonic()
    while True:
        found = processes(executor)
        more = Counter(_filters(pid) - before for pid in found if _is_fork(pid))
        if (names := Counter(found.values())) != last:
            last, since = names, time.monotonic()
        if more[1] == more[2] and time.monotonic() - since > _STEADY_S:
            return names
        time.sleep(0.02)


def settled(executor: Executor, wanted: Counter[str]) -> Counter[str]:
    """Return the processes once they are as wanted, or what they still are after a minute."""
    end = time.monotonic() + 60
    while (found := Counter(processes(executor).values())) != wanted and time.monotonic() < end:
        time.sleep(0.02)
    return found


def check(executor: Executor, programs: Iterable[Program]) -> list[str]:
    """Run each program, then a good one on the same worker; count processes, look for files; return the problems."""
    problems = [canary(executor, "nothing"), canary(executor, "a program that names numpy, whose fork server stays")]
    wanted = at_rest(executor)
    outside = {path.name for path in Path("/tmp").iterdir()}
    for program in programs:
        problems += [problem(program, executor.run([job(program)])[0]), canary(executor, program.name)]
        if (found := settled(executor, wanted)) != wanted:
            problems.append(f"processes after {program.name}: {found} instead of {wanted}")
    problems += [
        f"left in /tmp: {name}" for name in {path.name for path in Path("/tmp").iterdir()} - outside if "left" in name
    ]
    return [text for text in problems if text]


def main() -> int:
    """Run the corpus in one jail."""
    from tests.sandbox.sample import some_of_corpus

    jail, *each = sys.argv[1:]
    options: dict[str, Any] = {"backend": "docker"} if jail in ("docker", "runsc") else {"jail": jail}
    if jail == "runsc":
        options["runtime"] = jail
    with Executor(slots=1, cache=0, **options) as executor:
        found = check(executor, some_of_corpus(jail, int(each[0])) if each else corpus())
    print("\n".join(found))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
