"""Programs with planted bugs, and somebody who kills processes of the sandbox while they run."""

import os
import random
import signal
from collections.abc import Callable
from contextlib import suppress

import psutil

from pipeline_lib.sandbox import Executor, Job, Status, Verdict

TESTS = """
def check(candidate):
    for n in range(5):
        assert candidate(n) == n * {factor}
    assert candidate(10) == {ten}
    assert candidate(-1) == -{factor}
"""
# What a bug makes of the verdict; {factor} is filled in.
BUGS = {
    "    return n * {factor} + 1": Status.FAILED,
    "    return n * {factor} if n < 10 else 0": Status.FAILED,
    "    raise ValueError(n)": Status.FAILED,
    "    return n * {factor": Status.LOAD_ERROR,
    "    import os; os._exit(0)": Status.CRASH,
    "    while n == 10: pass\n    return n * {factor}": Status.TIMEOUT,
    "    return bytearray(1 << 34)": Status.OOM,
}


def programs(count: int, seed: int = 0) -> list[tuple[Job, Status]]:
    """Return ``count`` different jobs, 30 % of them with a bug, and the status each must get."""
    chance = random.Random(seed)
    jobs = []
    for index in range(count):
        factor = chance.randrange(2, 1000)
        body, status = "    return n * {factor}", Status.PASSED
        if chance.random() < 0.3:
            # Hanging programs are rare, or the test would only wait.
            names = list(BUGS)
            body = chance.choices(names, [5 if BUGS[name] is not Status.TIMEOUT else 1 for name in names])[0]
            status = BUGS[body]
        code = f"# {index}\ndef f(n):\n" + body.replace("{factor}", str(factor)).replace("{factor", str(factor))
        code = code.replace(f"n * {factor}\n", f"n * {factor}\n") if status is not Status.LOAD_ERROR else code + "("
        tests = TESTS.format(factor=factor, ten=10 * factor)
        jobs.append((Job(str(index), code, tests, "f"), status))
    return jobs


class Killer:
    """Kills a random process of the sandbox, one at each call.

    Args:
        executor: whose processes.
        also: may kill something else instead; returns what, or None.

    Attributes:
        killed: what was killed, by kind: ``parent``, ``judge``, ``jail``, and what ``also`` says.
    """

    def __init__(self, executor: Executor, also: Callable[[random.Random], str | None]) -> None:
        self.executor = executor
        self.also = also
        self.killed: list[str] = []
        self.chance = random.Random(1)

    def __call__(self) -> None:
        """Kill, however often a process that was chosen has ended before."""
        before = len(self.killed)
        while len(self.killed) == before:
            other = self.also(self.chance)
            if other is not None:
                self.killed.append(other)
                continue
            with suppress(psutil.NoSuchProcess, KeyError, IndexError, ProcessLookupError):
                parent = psutil.Process(self.executor.health()["parent"])
                kind = self.chance.choices(("parent", "judge", "jail"), (1, 6, 6))[0]
                judges = parent.children()
                if kind == "parent":
                    victim = parent
                elif kind == "judge":
                    victim = self.chance.choice(judges)
                else:
                    victim = self.chance.choice(self.chance.choice(judges).children(recursive=True))
                os.kill(victim.pid, signal.SIGKILL)
                self.killed.append(kind)


def wrong_verdicts(
    executor: Executor, count: int, each: int, also: Callable[[random.Random], str | None] = lambda chance: None
) -> tuple[list[str], list[str]]:
    """Run ``count`` programs, and kill something after ``each`` verdicts, while the next programs run.

    Returns:
        What is wrong with the verdicts, and what was killed.
    """
    jobs = programs(count)
    kill = Killer(executor, also)
    found: dict[str, Verdict] = {}
    for verdict in executor.stream([job for job, _ in jobs]):
        found[verdict.id] = verdict
        if len(found) % each == 0 and len(found) < count:
            kill()
    verdicts = [found[job.id] for job, _ in jobs]
    wrong = [
        f"{verdict.id}: {verdict.status} instead of {status} after {verdict.attempts} attempts: {verdict.error}"
        for (job, status), verdict in zip(jobs, verdicts, strict=True)
        if verdict.status is not status or verdict.id != job.id or (status is Status.PASSED and verdict.passed != 3)
    ]
    return wrong, kill.killed
