"""Runs the solutions that classes came with: if its own solution fails, a problem cannot be solved by any team.

It may be that the sandbox lacks a package or time that it needs.  Such a problem is not left out silently, because
which problems are used must not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline_lib.environments.modules.problems.problem import ModulesProblem
from pipeline_lib.environments.modules.program import program
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.sandbox import BadTests, Executor, Job, Status, Verdict

#: Problems whose failure is explained; all are named.
_EXPLAINED = 5


def solution_jobs(problem: ModulesProblem) -> list[Job]:
    """Return the jobs of a problem's first known solution: all tests of the whole, and those of each part."""
    code = program(problem, problem.references[0], problem.parts[-1])
    tests = (problem.system_tests, *problem.unit_tests.values())
    return [Job(problem.id, code, source, problem.entry_point) for source in tests]


def check_solutions(problems: Sequence[ModulesProblem], executor: Callable[[], Executor]) -> None:
    """Run the known solutions of classes, all in one batch.

    Raises:
        ProblemsError: one fails, or the sandbox does; the message names the problems and how to go on.
    """
    jobs = [job for problem in problems if problem.references for job in solution_jobs(problem)]
    if not jobs:
        return
    failing: dict[str, str] = {}
    with executor() as sandbox:
        try:
            verdicts = sandbox.run(jobs)
        except BadTests:
            verdicts = [verdict for job in jobs for verdict in _judged(sandbox, job, failing)]
    if broken := [verdict for verdict in verdicts if verdict.status is Status.INFRA_ERROR]:
        raise ProblemsError(f"the sandbox failed on the solution of {broken[0].id}: {broken[0].error}")
    for verdict in verdicts:
        if verdict.status is not Status.PASSED:
            failing.setdefault(
                verdict.id, f"{verdict.passed} of {verdict.total} tests pass: {_last_line(verdict.error)}"
            )
    if not failing:
        return
    reasons = "".join(f"\n  {name}: {reason}" for name, reason in list(failing.items())[:_EXPLAINED])
    more = f"\n  and {len(failing) - _EXPLAINED} more" if len(failing) > _EXPLAINED else ""
    raise ProblemsError(
        f"{len(failing)} of {len(problems)} problems came with a solution that fails their own tests in this sandbox:"
        f"{reasons}{more}\n"
        "mend them in the source, give the sandbox what they need (sandbox.limits, sandbox.packages), or leave them "
        f"out: problems.leave_out: [{', '.join(failing)}]"
    )


def _judged(sandbox: Executor, job: Job, failing: dict[str, str]) -> list[Verdict]:
    """Return the verdict on a job; none if its tests are refused, for a reason that is added to ``failing``."""
    try:
        return sandbox.run([job])
    except BadTests as error:
        failing.setdefault(job.id, str(error).partition(": ")[2])
        return []


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
