"""Run the `unittest` classes of tests; every test method is one case."""

from __future__ import annotations

import functools
import unittest
from typing import Any
from unittest import case

from pipeline_lib.sandbox.handle_classes import is_handle
from pipeline_lib.sandbox.inside.recorder import CallFailed, Recorder
from pipeline_lib.sandbox.proxy import Program
from pipeline_lib.sandbox.tests_source import TestPlan


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


class _Result(unittest.TestResult):
    """Reports to the recorder.

    Args:
        plan, program, recorder: the tests, the program, and the recorder of the results.
        own: exceptions of the sandbox, which are raised again.
    """

    def __init__(
        self, plan: TestPlan, program: Program, recorder: Recorder, own: tuple[type[BaseException], ...]
    ) -> None:
        super().__init__()
        self.program, self.recorder, self.own = program, recorder, own
        self._index = {name: index for index, name in enumerate(plan.methods)}
        self._lost = self._latest = 0
        self.kind = ""  # name of the class whose tests run

    def startTest(self, test: unittest.TestCase) -> None:
        """Begin a test; restart the program if it has ended."""
        self._lost = len(self.program.failures)
        self._latest = self._index[_name(test)]
        self.program.restart()

    def stopTest(self, test: unittest.TestCase) -> None:
        """Count the exceptions that the test has lost."""
        for failure in self.program.failures[self._lost :]:
            if not failure.recorded:
                self._fail(test, failure)

    def addSuccess(self, test: unittest.TestCase) -> None:
        """Count a test that held."""
        self.recorder.true(self._index[_name(test)], True)

    def addError(self, test: Any, error: Any) -> None:
        """Count a test that raised."""
        self._fail(test, error[1])

    def addFailure(self, test: Any, error: Any) -> None:
        """Count a test in which an assertion failed."""
        self._fail(test, error[1])

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, error: Any) -> None:
        """Count a failed part of a test."""
        if error is not None:
            self._fail(test, error[1])

    def addSkip(self, test: Any, reason: str) -> None:
        """Count a test that skipped itself as not passed: a program must not be able to cause a skip."""
        self._fail(test, CallFailed("skipped", "the test skipped itself: " + reason))

    def addExpectedFailure(self, test: unittest.TestCase, error: Any) -> None:
        """Count a test that failed as expected."""
        self.addSuccess(test)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        """Count a test that should have failed."""
        self._fail(test, CallFailed("error", "the test should have failed"))

    def _fail(self, test: Any, error: BaseException) -> None:
        if isinstance(error, self.own):
            raise error
        index = self._index.get(_name(test))
        if index is not None:
            self.recorder.error(index, error)
            return
        results = self.recorder.results
        missing = [number for name, number in self._index.items() if name[0] == self.kind and results[number] is None]
        for number in missing or [self._latest]:  # a fixture failed, not a test
            self.recorder.error(number, error)


def _name(test: Any) -> tuple[str, str]:
    return type(test).__name__, getattr(test, "_testMethodName", "")


def run_methods(
    plan: TestPlan,
    space: dict[str, Any],
    program: Program,
    recorder: Recorder,
    own: tuple[type[BaseException], ...],
) -> None:
    """Run the test methods of ``plan`` in ``space``; a method that does not run does not hold."""
    result = _Result(plan, program, recorder, own)
    space.get("setUpModule", bool)()
    for kind in dict.fromkeys(kind for kind, _ in plan.methods):
        result.kind = kind
        names = [name for own_kind, name in plan.methods if own_kind == kind]
        unittest.TestSuite(space[kind](name) for name in sorted(names)).run(result)
    for index, recorded in enumerate(recorder.results):
        if recorded is None:
            recorder.error(index, CallFailed("error", "the test did not run"))
    space.get("tearDownModule", bool)()
