"""ClassEval's tasks as jobs: a class each, judged by its `unittest` tests.

``python -m tests.sandbox.class_eval [PACKAGE ...]`` judges the canonical solutions and names those that miss full
marks; programs may import the packages, which must be installed (docs/sandbox.md says which the classes want).
"""

import gzip
import json
import sys

from pipeline_lib.sandbox import Executor, Job, Limits, Verdict
from tests.needs import CLASS_EVAL

SLOW = Limits(cpu_s=30.0, call_cpu_s=20.0, wall_s=120.0)  # one solution searches for nine seconds


def class_eval() -> dict[str, Job]:
    """Return the jobs of the canonical solutions by name of their class."""
    with gzip.open(CLASS_EVAL, "rt") as file:
        tasks = json.load(file)
    return {
        task["class_name"]: Job(task["task_id"], task["solution_code"], task["test"], task["class_name"])
        for task in tasks
    }


def misses(verdicts: dict[str, Verdict]) -> list[str]:
    """Return a line for every verdict below full marks."""
    return [
        f"{name}: {verdict.status.value} {verdict.passed}/{verdict.total}, {verdict.error.splitlines()[0][:150]}"
        for name, verdict in verdicts.items()
        if verdict.status.value != "passed"
    ]


def main() -> int:
    """Judge the canonical solutions."""
    jobs = class_eval()
    packages = sys.argv[1:] or None
    with Executor(slots=2, limits=SLOW, packages=packages) as executor:
        verdicts = dict(zip(jobs, executor.run(list(jobs.values())), strict=True))
    missed = misses(verdicts)
    cases = [(verdict.passed, verdict.total) for verdict in verdicts.values()]
    print("\n".join(missed))
    print(f"{len(jobs) - len(missed)} of {len(jobs)} at full marks, {sum(c[0] for c in cases)} of", end=" ")
    print(f"{sum(c[1] for c in cases)} test methods, CPU {sum(v.cpu_s for v in verdicts.values()):.1f} s")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
