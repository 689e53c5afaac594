"""Wrong implementations of ClassEval's classes, judged here and by plain Python.

``python -m tests.sandbox.class_mutants 200 SEED [PACKAGE ...]`` makes so many mutants of canonical solutions and names
every test method that passes in the sandbox and not in plain Python, which must be none, and those that pass in plain
Python alone.
"""

import ast
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipeline_lib.sandbox import Executor, Job, Limits
from tests.sandbox.class_eval import class_eval

SHORT = Limits(cpu_s=3.0, call_cpu_s=2.0, wall_s=10.0)
_AGAIN = 5
_PLAIN = """
import json, sys, unittest
sys.path.insert(0, ".")
class Result(unittest.TestResult):
    good = []
    def addSuccess(self, test):
        self.good.append(type(test).__name__ + "." + test._testMethodName)
import job
unittest.defaultTestLoader.loadTestsFromModule(job).run(Result())
print("\\n" + json.dumps(Result.good))
"""
_SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE}
_SWAPS |= {ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In}
_SWAPS |= {ast.And: ast.Or, ast.Or: ast.And, ast.Is: ast.IsNot, ast.IsNot: ast.Is}


def mutant(code: str, draw: random.Random) -> str:
    """Return the program with one thing changed in it."""
    tree = ast.parse(code)
    changes = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, str, bool):
            value = node.value
            changes.append((node, "value", not value if value is True or value is False else value * 2 or 1))
        elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPS:
            changes.append((node, "op", _SWAPS[type(node.op)]()))
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
            changes.append((node, "ops", [_SWAPS[type(node.ops[0])](), *node.ops[1:]]))
        elif isinstance(node, ast.Return) and node.value is not None:
            changes.append((node, "value", draw.choice([None, ast.Name("self", ast.Load()), ast.List([], ast.Load())])))
        elif isinstance(node, ast.FunctionDef) and len(node.body) > 1:
            gone = draw.randrange(len(node.body))
            changes.append((node, "body", [*node.body[:gone], *node.body[gone + 1 :]]))
            changes.append((node, "body", [*node.body, ast.Raise(ast.Name("SystemExit", ast.Load()))]))
    if changes:
        setattr(*draw.choice(changes))
    return ast.unparse(ast.fix_missing_locations(tree))


def plain(job: Job) -> set[str] | None:
    """Return the test methods that pass in plain Python, None if it does not come to an end."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "job.py").write_text(job.code + "\n" + job.tests)
        command = [sys.executable, "-B", "-c", _PLAIN]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30, check=False)
        except subprocess.TimeoutExpired:
            return None
    return set(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 and done.stdout else set()


def differences(count: int, seed: int, packages: Sequence[str] = ()) -> tuple[list[str], list[str], int]:
    """Return what passes here alone, what passes in plain Python alone, and how many methods failed in both.

    Methods that the canonical solution itself fails in plain Python are left out: as root it may write everything.
    """
    draw = random.Random(seed)
    known = class_eval()
    jobs = []
    for number in range(count):
        name, job = draw.choice(list(known.items()))
        jobs.append(replace(job, id=f"{name}-{number}", code=mutant(job.code, draw)))
    here_alone, plain_alone, failed = [], [], 0
    canonical: dict[str, set[str]] = {}
    with Executor(slots=2, limits=SHORT, packages=packages or None) as executor:
        for job, verdict in zip(jobs, executor.run(jobs), strict=True):
            wanted = plain(job)
            if wanted is None:
                continue
            name = job.entry_point
            if name not in canonical:
                canonical[name] = plain(known[name]) or set()
            found = {case.source for case in verdict.cases if case.result == "ok"} & canonical[name]
            for _ in range(_AGAIN):  # some tests draw their arguments, and fail now and then
                wanted |= (plain(job) or set()) if found - wanted else set()
            here_alone += [f"{job.id}: {method}" for method in sorted(found - wanted)]
            plain_alone += [
                f"{job.id}: {method} ({verdict.error[:100]})" for method in sorted((wanted & canonical[name]) - found)
            ]
            failed += verdict.total - len(found | wanted)
    return here_alone, plain_alone, failed


def main() -> int:
    """Compare as many mutants as the command line says."""
    here_alone, plain_alone, failed = differences(int(sys.argv[1]), int((*sys.argv, 0)[2]), sys.argv[3:])
    print("\n".join(["only in plain Python:", *plain_alone, "only in the sandbox:", *here_alone]))
    print(f"{failed} test methods failed in both, {len(plain_alone)} here alone, {len(here_alone)} passed here alone")
    return bool(here_alone)


if __name__ == "__main__":
    sys.exit(main())
