"""Find and run `unittest` tests as `unittest` itself does; every test is one case."""

from __future__ import annotations

import functools
import unittest
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any
from unittest import case, suite

from pipeline_lib.sandbox.handle_classes import is_handle
from pipeline_lib.sandbox.proxy import Program
from pipeline_lib.sandbox.recorder import CallFailed, Recorder

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
        """Begin a test; restart the program if it has ended."""
        self._lost = len(self.program.failures)
        self._latest = self._places.get(id(test), self._latest)
        self.program.restart()

    def stopTest(self, test: unittest.TestCase) -> None:
        """Count the exceptions that the test has lost."""
        for failure in self.program.failures[self._lost :]:
            if not failure.recorded:
                self._fail(test, failure)

    def addSuccess(self, test: unittest.TestCase) -> None:
        """Count a test that held."""
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
        """Count a test in which an assertion failed."""
        self._fail(test, error[1])

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, error: Any) -> None:
        """Count a failed part of a test."""
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
        """Count a test that failed as expected."""
        if isinstance(error[1], self.own):
            raise error[1]
        self.addSuccess(test)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        """Count a test that should have failed."""
        self._fail(test, CallFailed("error", "the test should have failed"))

    def close(self) -> None:
        """Count the tests that did not run."""
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
