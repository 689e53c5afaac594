"""Do the sandbox's verdicts agree with plain Python?

    python -m benchmarks.differential [--pairs 4000] [--seed 0] [--problems HumanEval.jsonl.gz]

Every pair of a program and tests (`benchmarks.differential_pairs`) is run twice: by the sandbox, and in a plain process
of its own, where it passes if the check returns.  The sandbox must never pass what plain Python does not, and may fail
what plain Python passes only for a reason that benchmarks/results/verdicts.md names; each is counted here under its
name.  Exits with 1 and lists the pairs otherwise.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from benchmarks.differential_pairs import Pair, pairs
from pipeline_lib.sandbox import Executor, Job, Limits, Status, Verdict

LIMITS = Limits(cpu_s=1.0, call_cpu_s=0.5, wall_s=4.0, memory_mb=512)

#: Why a verdict may be lower than plain Python's, in the words of benchmarks/results/verdicts.md.
REASONS = (
    "a value without a plain form",
    "only plain values are compared",
    "a failed assert always counts",
    "an exit is not an exception",
    "an exception of a test framework",
    "a StopIteration that the tests do not name",
    "a program that ends or exceeds a limit",
    "the tests never call the program",
)

_PLAIN = r"""
import json, os, random, resource, select, sys, tempfile

def run(code, tests, entry_point, prelude):
    random.seed(0)
    program, space = {"__name__": "program"}, {"__name__": "tests"}
    for part, where in ((prelude, program), (code, program), (prelude, space)):
        exec(compile(part, "<part>", "exec", dont_inherit=True), where)
    space |= {entry_point: program[entry_point], "candidate": program[entry_point]}
    exec(compile(tests, "<tests>", "exec", dont_inherit=True), space)
    if "check" in space:
        space["check"](program[entry_point])

verdicts = []
for pair in json.load(sys.stdin):
    inside, outside = os.pipe()
    pid = os.fork()
    if pid == 0:
        passed = b"0"
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nothing, number)
            os.dup2(outside, 100)
            os.chdir(tempfile.mkdtemp())
            resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
            run(*pair)
            passed = b"1"
        finally:
            os.write(100, passed)
            os._exit(0)
    os.close(outside)
    ready = select.select([inside], [], [], 20)[0]
    verdicts.append(bool(ready) and os.read(inside, 1) == b"1")
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    os.close(inside)
json.dump(verdicts, sys.stdout)
"""


def plain_verdicts(wanted: Sequence[Pair]) -> list[bool]:
    """Return for each pair whether it passes in plain Python, in a process of its own."""
    jobs = [(pair.code, pair.tests, pair.entry_point, pair.prelude) for pair in wanted]
    done = subprocess.run(
        [sys.executable, "-I", "-c", _PLAIN], input=json.dumps(jobs), capture_output=True, text=True, check=True
    )
    verdicts: list[bool] = json.loads(done.stdout)
    return verdicts


def sandbox_verdicts(wanted: Sequence[Pair], slots: int) -> list[Verdict]:
    """Return the sandbox's verdict on each pair."""
    with Executor("process", slots=slots, limits=LIMITS) as executor:
        return executor.run(
            [Job(str(n), pair.code, pair.tests, pair.entry_point, pair.prelude) for n, pair in enumerate(wanted)]
        )


def reason(pair: Pair, verdict: Verdict) -> str | None:
    """Return the documented reason for which the sandbox fails what plain Python passes, or None if there is none."""
    texts = [verdict.error, *(case.message for case in verdict.cases)]
    failed = any(case.result == "fail" or (case.result == "error" and case.message) for case in verdict.cases)
    found = (
        any("cannot leave the program" in text or "that cannot be sent" in text for text in texts),
        pair.ending.endswith("equal to all"),
        failed and any(word in pair.shape for word in ("thread", "suppressed", "finally", "forgiven")),
        pair.shape == "exit expected" and pair.ending in ("exits", "interrupts"),
        pair.ending == "skips" or pair.shape == "skipped",
        pair.ending == "stops",
        verdict.status in (Status.CRASH, Status.TIMEOUT, Status.OOM, Status.OUTPUT_LIMIT, Status.VIOLATION),
        any("ended without calling the program" in text for text in texts),
    )
    return next((why for why, holds in zip(REASONS, found, strict=True) if holds), None)


def compare(wanted: Sequence[Pair], slots: int) -> tuple[Counter[str], list[str]]:
    """Run the pairs; return how many ended in which way, and a line for each verdict that must not be."""
    plain, judged = plain_verdicts(wanted), sandbox_verdicts(wanted, slots)
    counts: Counter[str] = Counter()
    wrong = []
    for pair, expected, verdict in zip(wanted, plain, judged, strict=True):
        passed = verdict.status is Status.PASSED
        if (verdict.fraction == 1.0) != passed or verdict.status is Status.INFRA_ERROR:
            wrong.append(f"contradicts itself: {pair.name}: {verdict.status.value} {verdict.fraction}")
        elif passed == expected:
            counts["passed by both" if passed else "failed by both"] += 1
        elif passed:
            wrong.append(f"higher than plain Python: {pair.name}")
        elif (why := reason(pair, verdict)) is not None:
            counts[f"lower: {why}"] += 1
        else:
            wrong.append(f"lower than plain Python: {pair.name}: {verdict.status.value}, {verdict.error}")
    return counts, wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4000, help="how many pairs")
    parser.add_argument("--seed", type=int, default=0, help="of the pairs")
    parser.add_argument("--slots", type=int, default=4, help="programs side by side")
    parser.add_argument("--problems", type=Path, help="HumanEval.jsonl.gz; without it, generated problems alone")
    chosen = parser.parse_args(arguments)
    counts, wrong = compare(list(islice(pairs(chosen.seed, chosen.problems), chosen.pairs)), chosen.slots)
    print(json.dumps(dict(sorted(counts.items())), indent=1))
    print("\n".join(wrong) or "No verdict differs without a reason.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
