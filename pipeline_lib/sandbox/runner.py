"""Run the tests of one job against its program and create the verdict."""

from __future__ import annotations

import _signal
import builtins
import contextvars
import io
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import lru_cache
from types import CodeType, FrameType, ModuleType
from typing import Any

from pipeline_lib.sandbox.blank import Blank
from pipeline_lib.sandbox.bounds import bounded
from pipeline_lib.sandbox.calls import printable, results
from pipeline_lib.sandbox.imports import imported
from pipeline_lib.sandbox.inside.recorder import CallFailed, NoAnswer, Recorder
from pipeline_lib.sandbox.jobs import COLLECT, Case, Job, Limits, Status, Verdict
from pipeline_lib.sandbox.proxy import Program
from pipeline_lib.sandbox.randomness import seed_tests
from pipeline_lib.sandbox.tests_folder import tests_folder
from pipeline_lib.sandbox.tests_source import CALL_FAILED, CASES, UNCATCHABLE, Planned, TestPlan
from pipeline_lib.sandbox.worker import Worker, WorkerDied

# Kinds of events, worst first: the worst one is the status of a program that did not pass.
_SEVERITY = ("violation", "oom", "timeout", "output_limit", "crash", "load_error")


class Ended(BaseException):
    """The broker wants this judge to end."""


class _OutOfTime(BaseException):
    """The tests themselves ran for too long, perhaps because of a value the program returned."""


_SANDBOX_EXCEPTIONS = (WorkerDied, _OutOfTime, Ended)  # must pass through the tests


def judge(planned: Planned, limits: Limits, worker: Worker, name: str) -> Verdict:
    """Run one job to its verdict.

    Visible tests run first, in a separate process of the program, so feedback about them cannot contain anything about
    the hidden ones, not even through counters of the kernel.

    Raises:
        WorkerDied: the jail died; the job can be tried on another worker.
    """
    started = time.monotonic()
    job, plans = planned.job, planned.plans
    if job.mode == COLLECT:
        return _collect(planned, limits, name)
    visible: tuple[Case, ...] = ()
    other = None
    if job.visible_tests:
        alone = replace(job, tests=job.visible_tests, visible_tests="")
        other, visible = _judge_plan(Planned(alone, plans[1:]), limits, worker)
        planned = Planned(replace(job, visible_tests=""), plans[:1])
    program, hidden = _judge_plan(planned, limits, worker)
    if other is not None:
        program.clocks.cpu_s += other.clocks.cpu_s
        program.peak_mb = max(program.peak_mb, other.peak_mb)
    return _verdict(job, program, hidden, visible, name, time.monotonic() - started)


def _judge_plan(planned: Planned, limits: Limits, worker: Worker) -> tuple[Program, tuple[Case, ...]]:
    """Run the one plan of a job against a fresh program; return the program, ended, and the cases."""
    (plan,) = planned.plans
    program = Program(planned, limits, worker)
    recorder = Recorder(plan.total, plan.unreached, plan.once, limits.error_kb << 10)
    outcome = None
    late = NoAnswer("timeout", "the tests took too long on the program's values")

    def alarm(number: int, frame: FrameType | None) -> None:
        program.fail(late)  # the tests may lose the exception
        raise _OutOfTime

    try:
        with bounded(limits, alarm):
            if program.load():
                if planned.job.mode == "inline":
                    outcome = _inline_results(program)
                else:
                    with _restored():
                        contextvars.copy_context().run(_run, planned.job, plan, recorder, program)
    except _OutOfTime:
        recorder.stop(late)
    program.end()
    if program.broken is not None:
        raise program.broken
    for failure in program.failures:
        if not failure.recorded:  # the tests continued without an answer
            recorder.stop(failure)
    cases = enumerate(outcome or recorder.outcome())
    most = limits.error_kb << 10
    return program, tuple(
        Case(index, result, printable(text[:most])[:most] if text else "", plan.sources[index])
        for index, (result, text) in cases
    )


def _collect(planned: Planned, limits: Limits, name: str) -> Verdict:
    """Return a verdict that names the `unittest` tests in a case each, or has an error if they cannot be collected."""
    job, (plan,) = planned.job, planned.plans
    cases: tuple[Case, ...] = ()
    error = ""

    def alarm(number: int, frame: FrameType | None) -> None:
        raise _OutOfTime

    try:
        with bounded(limits, alarm), _restored(), _namespace(job, plan) as (module, space):
            space |= dict.fromkeys(plan.names - (space.keys() - {"candidate", job.entry_point}), Blank())
            exec(plan.code, space)
            from pipeline_lib.sandbox.unittest_runs import find_tests, is_skipped, name_of

            found = [name_of(test) for test in find_tests(module)[1] if not is_skipped(test)]
            cases = tuple(Case(index, "ok", text) for index, text in enumerate(found))
    except (Ended, WorkerDied):
        raise
    except _OutOfTime:
        error = "their module takes too long"
    except BaseException as fault:  # those of test frameworks do not derive from Exception
        error = printable(f"{type(fault).__name__}: {fault}")[: limits.error_kb << 10]
    status = Status.PASSED if cases else Status.FAILED
    return Verdict(job.id, status, len(cases), len(cases), cases, error=error, trust=job.mode, worker=name)


def _inline_results(program: Program) -> list[tuple[str, str]] | None:
    """Return the results of tests that the program's process ran, None if it reported none that are valid."""
    try:
        found = results(program.exchange(b"", program.limits.cpu_s)[2:], program.planned.total)
        if found is None:
            program.failed("output_limit", "a reply that is not a list of results")
        return found
    except NoAnswer:
        return None


@contextmanager
def _restored() -> Iterator[None]:
    """Restore the settings of this process that tests may change; changes of modules remain."""
    recursion, digits = sys.getrecursionlimit(), sys.get_int_max_str_digits()
    alarm = _signal.getsignal(signal.SIGALRM)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if _signal.getsignal(signal.SIGALRM) is not alarm:
            signal.signal(signal.SIGALRM, alarm)
        sys.setrecursionlimit(recursion)
        sys.set_int_max_str_digits(digits)


@contextmanager
def _namespace(job: Job, plan: TestPlan) -> Iterator[tuple[ModuleType, dict[str, Any]]]:
    """Prepare the module of the tests and its namespace; while the body runs, it can be imported."""
    seed_tests(job)
    module = ModuleType("tests")
    space = module.__dict__
    space["__builtins__"] = builtins
    silence = io.StringIO()
    before = sys.modules.get("tests")
    with redirect_stdout(silence), redirect_stderr(silence), ExitStack() as folder:
        if job.prelude:
            exec(_compiled(job.prelude), space)
        space |= {CALL_FAILED: CallFailed, UNCATCHABLE: (NoAnswer, *_SANDBOX_EXCEPTIONS)}
        if plan.files:
            folder.enter_context(tests_folder())
            space["__file__"] = "tests.py"
        try:
            if not plan.sources or plan.methods:
                sys.modules["tests"] = module
            yield module, space
        finally:
            if before is not None:
                sys.modules["tests"] = before
            else:
                sys.modules.pop("tests", None)


def _run(job: Job, plan: TestPlan, recorder: Recorder, program: Program) -> None:
    """Run one plan; an exception of the tests ends it, and the cases after it are skipped."""
    try:
        with _namespace(job, plan) as (module, space):
            space[CASES] = recorder
            program.space = space
            if plan.names:
                space |= imported(job.code, plan.names - space.keys(), program.worker.modules)
            program.bind()
            exec(plan.code, space)
            if plan.has_check:
                space["check"](space["candidate"])
            if plan.methods:
                from pipeline_lib.sandbox.unittest_runs import run_tests  # imports unittest, which few tests need

                run_tests(module, plan.methods, program, recorder, _SANDBOX_EXCEPTIONS)
        recorder.finish(program.asked)
    except _SANDBOX_EXCEPTIONS:
        raise
    except BaseException as error:  # those of test frameworks do not derive from Exception
        recorder.stop(error)


@lru_cache(maxsize=1024)
def _compiled(source: str) -> CodeType:
    return compile(source, "<prelude>", "exec", dont_inherit=True)


def _verdict(
    job: Job, program: Program, hidden: tuple[Case, ...], visible: tuple[Case, ...], name: str, wall_s: float
) -> Verdict:
    passed = sum(case.result == "ok" for case in hidden)
    kinds = {kind for kind, _ in program.events}
    status, error = Status.PASSED, ""
    if passed < len(hidden):
        status = next((Status(kind) for kind in _SEVERITY if kind in kinds), Status.FAILED)
        error = next((text for kind, text in program.events if kind == status.value), "")
    if status is Status.FAILED:
        first = next(case for case in hidden if case.result != "ok")
        error = f"{first.source}: {first.message}"
    return Verdict(
        id=job.id,
        status=status,
        passed=passed,
        total=len(hidden),
        cases=hidden,
        visible=visible,
        error=printable(error)[: program.limits.error_kb << 10],
        wall_s=wall_s,
        cpu_s=program.clocks.cpu_s,
        peak_mb=program.peak_mb,
        trust=job.mode,
        worker=name,
    )
