"""Run the tests of a job against its program, and create the verdict from the outcome.

`unittest` tests are found and run as `unittest` itself does; every test is one case.
"""

from __future__ import annotations

import builtins
import dis
import functools
import gc
import marshal
import operator
import os
import sys
import unittest
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, NoReturn
from unittest import case, suite

from pipeline_lib.sandbox.calls import CallFailed, NoAnswer, Recorder, printable
from pipeline_lib.sandbox.imports import imported
from pipeline_lib.sandbox.jobs import Case, Job, Limits, Status, Verdict
from pipeline_lib.sandbox.objects import is_handle
from pipeline_lib.sandbox.proxy import Program
from pipeline_lib.sandbox.randomness import seed_tests
from pipeline_lib.sandbox.tests_source import CALL_FAILED, CASES, UNCATCHABLE, Planned, TestPlan
from pipeline_lib.sandbox.time_limits import bounded
from pipeline_lib.sandbox.worker import ProgramWorker

_UNPACK = dis.opmap["UNPACK_SEQUENCE"]


class Blank:
    """Accepts every operation; is true, equal to everything, and contains everything; as a number it is 1."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)  # other libraries ask objects for their abilities in this way
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        """Change nothing: one blank stands for all names."""

    def __delattr__(self, name: str) -> None:
        """Change nothing."""

    def __iter__(self) -> Iterator[Any]:
        """Yield it once, or as often as the assignment that unpacks it wants."""
        frame = sys._getframe(1)
        kind, count = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
        return iter([self] * (count if kind == _UNPACK else 1))

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "blank"


def _same(self: Blank, *args: Any, **kwargs: Any) -> Blank:
    return self


def _true(self: Blank, *args: Any) -> bool:
    return True


def _one(self: Blank) -> int:
    return 1


_OPERATORS = [name.strip("_") for name in dir(operator) if name.startswith("__") and callable(getattr(operator, name))]
for _name in (*_OPERATORS, "call", "divmod", "round", "trunc", "floor", "ceil", "reversed", "enter", "next"):
    setattr(Blank, f"__{_name}__", _same)
    setattr(Blank, f"__r{_name}__", _same)  # with the other operand on the left
for _name in ("eq", "lt", "le", "gt", "ge", "bool", "contains", "instancecheck", "subclasscheck"):
    setattr(Blank, f"__{_name}__", _true)
Blank.__ne__ = lambda self, other: False  # type: ignore[method-assign]
for _name in ("index", "int", "len"):
    setattr(Blank, f"__{_name}__", _one)
Blank.__float__ = lambda self: 1.0  # type: ignore[attr-defined]
Blank.__exit__ = lambda self, *error: None  # type: ignore[attr-defined]


_MODULE = "tests."


class _NoDiff:
    """Replaces `difflib`, whose diffs below an assertion's message take minutes for long values."""

    @staticmethod
    def ndiff(left: Any, right: Any) -> tuple[str, ...]:
        return ()


case.difflib = _NoDiff  # type: ignore[attr-defined]


def _among_equals(method: Any) -> Any:
    """Return an assertion that fails for a number and an object of the program, which would receive the number."""

    @functools.wraps(method)
    def assertion(self: unittest.TestCase, first: Any, second: Any, *args: Any, **kwargs: Any) -> None:
        if is_handle(first) != is_handle(second):
            self.fail(f"{first!r} and {second!r} cannot be subtracted here")
        method(self, first, second, *args, **kwargs)

    return assertion


for _name_of_assertion in ("assertAlmostEqual", "assertNotAlmostEqual"):
    setattr(unittest.TestCase, _name_of_assertion, _among_equals(getattr(unittest.TestCase, _name_of_assertion)))


def find_tests(module: ModuleType) -> tuple[unittest.TestSuite, list[unittest.TestCase]]:
    """Return what ``unittest`` finds in a module: the suite, and the tests in it in the order in which they run.

    Raises:
        ValueError: ``load_tests`` of the module failed.
        TypeError: it returned something other than suites and test cases.
    """
    loader = unittest.TestLoader()
    found = loader.loadTestsFromModule(module)
    if loader.errors:
        raise ValueError(str(loader.errors[0]).strip().rpartition("\n")[2])
    tests = {id(test): test for test in _flat(found)}
    return unittest.TestSuite([found]), list(tests.values())


def _flat(found: Any) -> Iterator[unittest.TestCase]:
    if isinstance(found, suite.BaseTestSuite):
        for part in found:
            yield from _flat(part)
    elif isinstance(found, unittest.TestCase):
        yield found
    else:
        raise TypeError(f"unittest found a {type(found).__name__}; it must be a TestCase or a TestSuite")


def name_of(test: unittest.TestCase) -> str:
    """Return the name of a test: its class and method."""
    return str(test.id()).removeprefix(_MODULE)


def is_skipped(test: unittest.TestCase) -> bool:
    """Return whether a decorator of the test or its class says that it is not run."""
    method = getattr(test, getattr(test, "_testMethodName", ""), None)
    return any(getattr(marked, "__unittest_skip__", False) for marked in (type(test), method))


class _Result(unittest.TestResult):
    """Reports to the recorder.

    Args:
        places: the case of each test by the test's ``id``.  Other tests have no case, but must hold, too.
        program, recorder: the program, and the recorder of the results.
        own: exceptions of the sandbox, which are raised again.
    """

    def __init__(
        self, places: dict[int, int], program: Program, recorder: Recorder, own: tuple[type[BaseException], ...]
    ) -> None:
        super().__init__()
        self.program, self.recorder, self.own = program, recorder, own
        self._places = places
        self._lost = self._latest = 0
        self._obstacle: BaseException = CallFailed("error", "the test did not run")

    def startTest(self, test: unittest.TestCase) -> None:
        self._lost = len(self.program.failures)
        self._latest = self._places.get(id(test), self._latest)
        self.program.restart()

    def stopTest(self, test: unittest.TestCase) -> None:
        for failure in self.program.failures[self._lost :]:
            if not failure.recorded:
                self._fail(test, failure)

    def addSuccess(self, test: unittest.TestCase) -> None:
        if id(test) in self._places:
            self.recorder.true(self._places[id(test)], True)

    def addError(self, test: Any, error: Any) -> None:
        """Count a test that raised; of a fixture that raised before its tests, those that did not run."""
        if isinstance(test, unittest.TestCase) or str(test).startswith("tearDown"):
            self._fail(test, error[1])
        elif isinstance(error[1], self.own):
            raise error[1]
        else:
            self._obstacle = error[1]

    def addFailure(self, test: Any, error: Any) -> None:
        self._fail(test, error[1])

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, error: Any) -> None:
        if error is not None:
            self._fail(test, error[1])

    def addSkip(self, test: Any, reason: str) -> None:
        """Count a test that skipped itself as not passed: a program must not be able to cause a skip."""
        failure = CallFailed("skipped", "the test skipped itself: " + reason)
        if not isinstance(test, unittest.TestCase):  # a fixture
            self._obstacle = failure
        elif id(test) in self._places or not is_skipped(test):
            self._fail(test, failure)

    def addExpectedFailure(self, test: unittest.TestCase, error: Any) -> None:
        if isinstance(error[1], self.own):
            raise error[1]
        self.addSuccess(test)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._fail(test, CallFailed("error", "the test should have failed"))

    def close(self) -> None:
        for index, recorded in enumerate(self.recorder.results):
            if recorded is None:
                self.recorder.error(index, self._obstacle)

    def _fail(self, test: Any, error: BaseException) -> None:
        if isinstance(error, self.own):
            raise error
        whole = getattr(test, "test_case", test)  # of a part of a test
        self.recorder.error(self._places.get(id(whole), self._latest), error)


def _find_places(tests: Sequence[unittest.TestCase], names: Sequence[str]) -> dict[int, int]:
    """Return the case of each test: the one of its name, and for names that depend on the program one that is left."""
    left: defaultdict[str, list[int]] = defaultdict(list)
    for index, name in reversed(list(enumerate(names))):
        left[name].append(index)
    places = {}
    renamed = []
    for test in tests:
        if left[name_of(test)]:
            places[id(test)] = left[name_of(test)].pop()
        elif not is_skipped(test):
            renamed.append(test)
    rest = sorted(index for indices in left.values() for index in indices)
    return places | {id(test): index for test, index in zip(renamed, rest, strict=False)}


def run_tests(
    module: ModuleType,
    names: Sequence[str],
    program: Program,
    recorder: Recorder,
    own: tuple[type[BaseException], ...],
) -> None:
    """Run the tests of a module.

    Args:
        module: the tests; ``unittest`` finds it under its name, for its fixtures.
        names: of the cases, as they were found without the program.  A case whose test is not there does not hold.
        program, recorder, own: as of `_Result`.
    """
    found, tests = find_tests(module)
    result = _Result(_find_places(tests, names), program, recorder, own)
    found.run(result)
    result.close()


# Kinds of events, worst first: the worst one is the status of a program that did not pass.
_SEVERITY = ("violation", "oom", "timeout", "output_limit", "crash", "load_error")


class _OutOfTime(BaseException):
    """The tests themselves ran for too long, perhaps because of a value the program returned."""


@dataclass(slots=True)
class Outcome:
    """What came of the tests of a job."""

    cases: list[tuple[str, str]]  #: result and message of each
    events: list[tuple[str, str]]  #: what went wrong, as ``(kind, text)``; see `exchange.Exchange`
    cpu_s: float = 0.0  #: CPU seconds of the program
    peak_mb: float = 0.0  #: its peak memory, MiB


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
        if not program.in_fork:
            recorder.finish(program.asked)
    except _OutOfTime:
        raise
    except BaseException as error:  # those of test frameworks do not derive from Exception
        recorder.stop(error)
        if program.in_fork:
            _exit_fork(program, error)
    if program.in_fork:
        _exit_fork(program, None if recorder.holds else AssertionError())


def _exit_fork(program: Program, error: BaseException | None) -> NoReturn:
    """End a process that the tests have forked, after the tests, with the exit code that Python would give it."""
    program.space.clear()
    gc.collect()  # files that are still open are written
    code = (error.code or 0) if isinstance(error, SystemExit) else int(error is not None)
    os._exit(code & 0xFF if isinstance(code, int) else 1)


def _cases(outcome: Outcome, plan: TestPlan) -> tuple[Case, ...]:
    return tuple(Case(n, result, text, plan.sources[n]) for n, (result, text) in enumerate(outcome.cases))


def _collected(job: Job, outcome: Outcome, name: str) -> Verdict:
    cases = tuple(Case(n, result, text) for n, (result, text) in enumerate(outcome.cases))
    error = next((text for _, text in outcome.events), "")
    status = Status.PASSED if cases else Status.FAILED
    return Verdict(job.id, status, len(cases), len(cases), cases, error=error, worker=name)
