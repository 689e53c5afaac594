"""Runs the hostile programs over and over, and says whether one of them ever made the sandbox fail instead of itself.

``python -m tests.sandbox.corpus.endure [RUNS]`` (10,000 by default) prints what became of them, the most memory that a
judge ever held and the longest that a verdict took, and ends with 1 if there was an ``infra_error``.  Every run is of a
text of its own, with limits so short that programs which hang end soon.
"""

import random
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

from pipeline_lib.sandbox import Executor, Job, Limits, Status, Verdict
from tests.sandbox.corpus import TESTS, corpus, own_tests

LIMITS = Limits(cpu_s=0.3, call_cpu_s=0.1, wall_s=0.6, memory_mb=256)
_PERIOD_S = 0.05


def jobs(count: int, seed: int = 0) -> list[Job]:
    """Return ``count`` jobs: each program of the corpus as often as any other, in an order of its own."""
    programs = [(program.name, program.code, TESTS, "") for program in corpus()]
    programs += [(program.name, program.code, program.tests, program.prelude) for program in own_tests()]
    chance = random.Random(seed)
    chosen: list[Job] = []
    for round_number in range(count // len(programs) + 1):
        chance.shuffle(programs)
        chosen += [
            Job(f"{name}-{round_number}", f"{code}\n# {round_number}", tests, "f", prelude, limits=LIMITS)
            for name, code, tests, prelude in programs
        ]
    return chosen[:count]


class PeakOfJudges(threading.Thread):
    """Follows the resident memory of all judges of an executor until stopped; ``mb`` is the most that one ever had."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(daemon=True)
        self.executor = executor
        self.mb = 0.0
        self.ended = threading.Event()

    def run(self) -> None:
        """Look until `ended` is set."""
        judges: list[int] = []
        looks = 0
        while not self.ended.wait(_PERIOD_S):
            if looks % 20 == 0:
                judges = self.executor.health().get("judges", [])
            looks += 1
            for pid in judges:
                with suppress(OSError, StopIteration):
                    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                    held = next(line for line in lines if line.startswith("VmHWM"))
                    self.mb = max(self.mb, int(held.split()[1]) / 1024)


def endure(executor: Executor, count: int, seed: int = 0) -> tuple[list[Verdict], float]:
    """Return the verdicts of ``count`` hostile runs, and the most resident memory of a judge in MiB."""
    peak = PeakOfJudges(executor)
    peak.start()
    verdicts = executor.run(jobs(count, seed))
    peak.ended.set()
    peak.join()
    return verdicts, peak.mb


def main() -> int:
    """Run, print, judge."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with Executor(slots=8, cache=0) as executor:
        verdicts, peak_mb = endure(executor, count)
    print(Counter(verdict.status.value for verdict in verdicts))
    slowest = max(verdicts, key=lambda verdict: verdict.wall_s)
    print(f"most memory of a judge: {peak_mb:.0f} MiB; longest verdict: {slowest.wall_s:.1f} s ({slowest.id})")
    failures = [verdict for verdict in verdicts if verdict.status is Status.INFRA_ERROR]
    for verdict in failures:
        print(f"{verdict.id}: {verdict.error}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
