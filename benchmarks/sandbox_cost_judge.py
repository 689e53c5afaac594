"""Judges HumanEval with the sandbox of any checkout, one round per line that comes in; for `benchmarks.sandbox_cost`.

    python sandbox_cost_judge.py HumanEval.jsonl.gz CHECKOUT

Answers each line with one of its own: milliseconds of processor time per verdict, by who has spent them.
"""

from __future__ import annotations

import ast
import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil

_SLOW = "HumanEval/75"


def main() -> None:
    """Judge a round for each line."""
    sys.path.insert(0, sys.argv[2])
    from pipeline_lib.sandbox import Executor, Job

    with gzip.open(sys.argv[1], "rt") as file:
        problems = [problem for problem in map(json.loads, file) if problem["task_id"] != _SLOW]
    jobs = [
        Job(p["task_id"], p["prompt"] + p["canonical_solution"], p["test"], p["entry_point"], _prelude(p))
        for p in problems
    ]
    with Executor("process", slots=2, cache=0) as executor:
        for _ in sys.stdin:
            before = _used_s(executor.health())
            verdicts = executor.run(jobs)
            after = _used_s(executor.health())
            assert all(verdict.fraction == 1.0 for verdict in verdicts)
            used = {name: after[name] - before[name] for name in before}
            used["program"] = sum(verdict.cpu_s for verdict in verdicts)
            print(json.dumps({name: 1000 * seconds / len(jobs) for name, seconds in used.items()}), flush=True)


def _used_s(health: dict[str, Any]) -> dict[str, float]:
    """Return the seconds that each kind of process has used so far, those of programs left out."""
    parent = health.get("parent") or health["broker"]  # as earlier commits called it
    judges = psutil.Process(parent).children()
    below = [process for judge in judges for process in judge.children(recursive=True)]
    command = psutil.Process(parent).cmdline()
    tests = [process for process in below if process.cmdline() == command]  # forked from judges
    servers = [process for process in below if process not in tests and process.children()]  # others are programs
    return {
        "trainer": time.process_time(),
        "parent": _clock_s(parent),
        "judge": sum(_clock_s(judge.pid) for judge in judges),
        "tests": sum(_clock_s(process.pid) + _ended_s(process) for process in tests),
        "server": sum(_clock_s(server.pid) for server in servers),
    }


def _clock_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _ended_s(process: psutil.Process) -> float:
    """Return the seconds of its children that have ended."""
    times = process.cpu_times()
    return float(times.children_user + times.children_system)


def _prelude(problem: dict[str, str]) -> str:
    """Return what the prompt defines beside the function that is asked for."""
    tree = ast.parse(problem["prompt"] + "    pass\n")
    return "\n".join(ast.unparse(n) for n in tree.body if getattr(n, "name", "") != problem["entry_point"])


if __name__ == "__main__":
    main()
