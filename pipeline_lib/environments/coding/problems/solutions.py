"""Runs the solutions that a dataset came with: a problem whose own solution fails is one that no team can solve.

Such a problem has wrong tests, a wrong solution, or asks for more than the sandbox gives (a package, time).  It is not
left out silently: which problems are used must not depend on how fast a machine is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline_lib.environments.coding.problems.problem import CodingProblem
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.sandbox import BadTests, Executor, Job, Status, Verdict

#: Problems whose failure is explained; all are named.
_EXPLAINED = 5


def check_solutions(problems: Sequence[CodingProblem], executor: Callable[[], Executor]) -> None:
    """Run the reference of every problem that has one against its visible and hidden tests, all in one batch.

    Args:
        problems: of a dataset; generated ones need no check, since their tests come from running their solutions.
        executor: makes the sandbox; it is not called if there is nothing to run.

    Raises:
        ProblemsError: a solution fails, or the sandbox does; the message names the problems and how to go on.
    """
    known = [problem for problem in problems if problem.reference]
    jobs = [(problem.id, job) for problem in known for job in _jobs(problem)]
    if not jobs:
        return
    with executor() as sandbox:
        try:
            verdicts = sandbox.run([job for _, job in jobs])
        except BadTests as error:
            raise ProblemsError(
                f"{error}\nmend the tests in the source, give the sandbox what they need (sandbox.packages), or leave "
                "the problem out with problems.leave_out"
            ) from None
    if broken := [verdict for verdict in verdicts if verdict.status is Status.INFRA_ERROR]:
        raise ProblemsError(f"the sandbox failed on the solution of {broken[0].id}: {broken[0].error}")
    found: dict[str, list[Verdict]] = {}
    for (problem, _), verdict in zip(jobs, verdicts, strict=True):
        found.setdefault(problem, []).append(verdict)
    failing = {name: all_of for name, all_of in found.items() if any(v.status is not Status.PASSED for v in all_of)}
    if not failing:
        return
    reasons = "".join(f"\n  {problem}: {_reason(all_of)}" for problem, all_of in [*failing.items()][:_EXPLAINED])
    more = f"\n  and {len(failing) - _EXPLAINED} more" if len(failing) > _EXPLAINED else ""
    raise ProblemsError(
        f"{len(failing)} of {len(known)} problems came with a solution that fails their own tests in this sandbox:"
        f"{reasons}{more}\n"
        "mend them in the source, give the sandbox what they need (sandbox.limits, sandbox.packages), or leave them "
        f"out: problems.leave_out: [{', '.join(failing)}]"
    )


def _jobs(problem: CodingProblem) -> list[Job]:
    code = "\n\n".join(problem.reference.values())
    tests = [problem.hidden_tests, *([problem.visible_tests] if problem.visible_tests else [])]
    names = problem.id, f"{problem.id} (visible tests)"
    return [Job(name, code, t, problem.entry_point, problem.prelude) for name, t in zip(names, tests, strict=False)]


def _reason(verdicts: Sequence[Verdict]) -> str:
    cases = [case for verdict in verdicts for case in verdict.cases]
    wrong = [case for case in cases if case.result != "ok"]
    worst = next(verdict for verdict in verdicts if verdict.status is not Status.PASSED)
    told = [worst.error, *(case.message or case.source for case in wrong), worst.status.value]
    said = next(text for text in told if text.strip()).strip().rpartition("\n")[2]
    return f"{len(wrong)} of {len(cases)} tests fail: {said}" if cases else said
