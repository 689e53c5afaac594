"""Run the tests of a job against its program, and create the verdict from the outcome."""

from __future__ import annotations

import builtins
import marshal
import sys
from dataclasses import dataclass
from types import FrameType, ModuleType

from pipeline_lib.sandbox.blank import Blank
from pipeline_lib.sandbox.bounds import bounded
from pipeline_lib.sandbox.calls import printable
from pipeline_lib.sandbox.imports import imported
from pipeline_lib.sandbox.jobs import Case, Job, Limits, Status, Verdict
from pipeline_lib.sandbox.proxy import Program
from pipeline_lib.sandbox.randomness import seed_tests
from pipeline_lib.sandbox.recorder import CallFailed, NoAnswer, Recorder
from pipeline_lib.sandbox.tests_source import CALL_FAILED, CASES, UNCATCHABLE, Planned, TestPlan
from pipeline_lib.sandbox.unittest_runs import find_tests, is_skipped, name_of, run_tests
from pipeline_lib.sandbox.worker import ProgramWorker

# Kinds of events, worst first: the worst one is the status of a program that did not pass.
_SEVERITY = ("violation", "oom", "timeout", "output_limit", "crash", "load_error")


class _OutOfTime(BaseException):
    """The tests themselves ran for too long, perhaps because of a value the program returned."""


@dataclass(slots=True)
class Outcome:
    """What came of the tests of a job.

    Attributes:
        cases: result and message of each.
        events: what went wrong, as ``(kind, text)``; see `exchange.Exchange`.
        cpu_s: CPU seconds of the program.
        peak_mb: its peak memory, MiB.
    """

    cases: list[tuple[str, str]]
    events: list[tuple[str, str]]
    cpu_s: float = 0.0
    peak_mb: float = 0.0


def verdict_of(planned: Planned, outcome: Outcome, limits: Limits, name: str, wall_s: float) -> Verdict:
    """Return the verdict on a job.

    Args:
        planned: the job.
        outcome: of its tests.
        limits: of its program.
        name: of the worker.
        wall_s: the time it took.
    """
    if planned.job.collect:
        return _collected(planned.job, outcome, name)
    job, cases = planned.job, _cases(outcome, planned.plan)
    passed = sum(case.result == "ok" for case in cases)
    kinds = {kind for kind, _ in outcome.events}
    status, error = Status.PASSED, ""
    if passed < len(cases):
        status = next((Status(kind) for kind in _SEVERITY if kind in kinds), Status.FAILED)
        error = next((text for kind, text in outcome.events if kind == status.value), "")
    if status is Status.FAILED:
        first = next(case for case in cases if case.result != "ok")
        error = f"{first.source}: {first.message}"
    return Verdict(
        id=job.id,
        status=status,
        passed=passed,
        total=len(cases),
        cases=cases,
        error=printable(error)[: limits.error_kb << 10],
        wall_s=wall_s,
        cpu_s=outcome.cpu_s,
        peak_mb=outcome.peak_mb,
        worker=name,
    )


def run_plan(planned: Planned, limits: Limits, worker: ProgramWorker) -> Outcome:
    """Run the tests of a job against a fresh program, whose last process it leaves to the judge."""
    if planned.job.collect:
        return _collect(planned, limits)
    plan = planned.plan
    program = Program(planned, limits, worker)
    recorder = Recorder(plan.total, plan.unreached, plan.once, limits.error_kb << 10)
    late = NoAnswer("timeout", "the tests took too long on the program's values")

    def alarm(number: int, frame: FrameType | None) -> None:
        program.fail(late)  # the tests may lose the exception
        raise _OutOfTime

    try:
        with bounded(limits, alarm):
            if program.load():
                _run(planned, recorder, program)
    except _OutOfTime:
        recorder.stop(late)
    program.leave()
    for failure in program.failures:
        if not failure.recorded:  # the tests continued without an answer
            recorder.stop(failure)
    most = limits.error_kb << 10
    cases = [(result, printable(text[:most])[:most] if text else "") for result, text in recorder.outcome()]
    return Outcome(cases, program.events)


def _collect(planned: Planned, limits: Limits) -> Outcome:
    """Return the names of the `unittest` tests as messages of cases, or as an event why they cannot be collected."""
    job, plan = planned.job, planned.plan

    def alarm(number: int, frame: FrameType | None) -> None:
        raise _OutOfTime

    try:
        with bounded(limits, alarm):
            module = _namespace(planned)
            space = module.__dict__
            space[CASES] = Recorder
            space |= dict.fromkeys(plan.names - (space.keys() - {"candidate", job.entry_point}), Blank())
            exec(marshal.loads(plan.code), space)
            names = [name_of(test) for test in find_tests(module)[1] if not is_skipped(test)]
            return Outcome([("ok", name) for name in names], [])
    except _OutOfTime:
        error = "their module takes too long"
    except BaseException as fault:  # those of test frameworks do not derive from Exception
        error = printable(f"{type(fault).__name__}: {fault}")[: limits.error_kb << 10]
    return Outcome([], [("error", error)])


def _namespace(planned: Planned) -> ModuleType:
    """Return the module of the tests, with what their prelude defines."""
    job, plan = planned.job, planned.plan
    seed_tests(job)
    module = ModuleType("tests")
    space = module.__dict__
    space["__builtins__"] = builtins
    if planned.prelude:
        exec(marshal.loads(planned.prelude), space)
    elif job.prelude:
        compile(job.prelude, "<prelude>", "exec", dont_inherit=True)  # which raises
    space |= {CALL_FAILED: CallFailed, UNCATCHABLE: (NoAnswer, _OutOfTime)}
    if plan.files:
        space["__file__"] = "tests.py"
    if not plan.sources or plan.methods:
        sys.modules["tests"] = module
    return module


def _run(planned: Planned, recorder: Recorder, program: Program) -> None:
    """Run the tests; an exception of theirs ends them, and the cases after it are skipped."""
    job, plan = planned.job, planned.plan
    try:
        module = _namespace(planned)
        space = program.space = module.__dict__
        space[CASES] = recorder
        if plan.names:
            space |= imported(job.code, plan.names - space.keys(), program.worker.modules)
        program.bind()
        exec(marshal.loads(plan.code), space)
        if plan.has_check:
            space["check"](space["candidate"])
        if plan.methods:
            run_tests(module, plan.methods, program, recorder, (_OutOfTime,))
        recorder.finish(program.asked)
    except _OutOfTime:
        raise
    except BaseException as error:  # those of test frameworks do not derive from Exception
        recorder.stop(error)


def _cases(outcome: Outcome, plan: TestPlan) -> tuple[Case, ...]:
    return tuple(Case(n, result, text, plan.sources[n]) for n, (result, text) in enumerate(outcome.cases))


def _collected(job: Job, outcome: Outcome, name: str) -> Verdict:
    cases = tuple(Case(n, result, text) for n, (result, text) in enumerate(outcome.cases))
    error = next((text for _, text in outcome.events), "")
    status = Status.PASSED if cases else Status.FAILED
    return Verdict(job.id, status, len(cases), len(cases), cases, error=error, worker=name)
