"""Records the result of each case while the tests run."""

from __future__ import annotations

import operator
import reprlib
from typing import Any

from pipeline_lib.sandbox.inside import graph

DESCRIPTION = "__symposium_said__"  # attribute of an exception with its text for messages
_OK = ("ok", "")
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 120
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxfrozenset = 12


class CallFailed(BaseException):
    """A call gave no value, and no exception that tests may expect by its class.

    Not an Exception: tests that expect one must not take a dead program for it.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class NoAnswer(CallFailed):
    """A call gave no answer at all; not even ``except:`` in the tests may catch this.

    ``recorded`` is true once a case has failed because of it.  Tests can lose an exception without catching it (a
    ``return`` in ``finally``, a thread, ``contextlib.suppress``); the recorder must not.
    """

    recorded = False


class Recorder:
    """Receives the results of rewritten tests.

    Attributes:
        results: ``(result, message)`` per case, None as long as a case was not reached.
        finished: the tests ran to their end, and no exception was lost.

    Args:
        total: number of cases.
        unreached: cases that hold if they are not reached.
        once: cases that are reached at most once.
        error_limit: longest message, characters.
    """

    def __init__(self, total: int, unreached: frozenset[int], once: frozenset[int], error_limit: int) -> None:
        self.results: list[tuple[str, str] | None] = [None] * total
        self.unreached = unreached
        self.once = once
        self.error_limit = error_limit
        self.finished = False
        self._latest = 0

    def equal(self, index: int, left: Any, right: Any) -> None:
        """Record whether ``left == right``."""
        if left == right:
            self._ok(index)
        else:
            self._bad(index, "fail", "got " + _short.repr(left) + ", expected " + _short.repr(right))

    @staticmethod
    def identical(left: Any, right: Any) -> bool:
        """Return ``left is right``; raises CallFailed if only the program knows.

        Immutable values of a program are copies, so two equal ones may be one and the same there.
        """
        if left is not right and _may_be_one(left, right):
            raise CallFailed("error", f"whether two equal values of {type(left).__name__} are identical is not known")
        return left is right

    def true(self, index: int, value: Any) -> None:
        """Record whether ``value`` is true."""
        if value:
            self._ok(index)
        else:
            self._bad(index, "fail", "not true")

    def error(self, index: int, error: BaseException) -> None:
        """Record that evaluating the case raised."""
        if isinstance(error, NoAnswer):
            error.recorded = True
        if isinstance(error, CallFailed):
            self._bad(index, error.kind if error.kind in ("timeout", "skipped") else "error", str(error))
        else:
            text = getattr(error, DESCRIPTION, None)
            self._bad(index, "error", text or type(error).__name__ + ": " + _text(error))

    def reached(self, index: int) -> None:
        """Record that an ``assert False`` was reached."""
        self._bad(index, "fail", "reached a statement that must not be reached")

    def stop(self, error: BaseException) -> None:
        """Record an exception that ended the tests early, or was lost in them.

        It counts against the first case that was not reached, against every case that might have been reached again,
        and, if there is no such case, against the last one reached: tests that were stopped never pass.
        """
        self.finished = False
        kept = [index for index, result in enumerate(self.results) if result is None and index not in self.unreached]
        again = [index for index, result in enumerate(self.results) if result == _OK and index not in self.once]
        for index in again + kept[:1]:
            self.error(index, error)
        if all(result == _OK for result in self.results):
            self.error(self._latest, error)

    def finish(self, asked: bool) -> None:
        """Record that the tests ran to their end.

        Tests that reach none of their cases and never call the program (a check that is a generator, functions without
        a caller) have judged nothing, and count as stopped.

        Args:
            asked: whether they have called the program.
        """
        self.finished = True
        if not any(self.results) and not asked:
            self.stop(CallFailed("error", "the tests ended without calling the program"))

    def outcome(self) -> list[tuple[str, str]]:
        """Return ``(result, message)`` of every case.

        A case that was not reached holds if the tests ran to their end and every case that they reached held.
        Otherwise it is skipped, unless it must not be reached.
        """
        clean = self.finished and {None, _OK}.issuperset(self.results)
        outcome = []
        for index, result in enumerate(self.results):
            if result is None:
                result = _OK if clean or (self.finished and index in self.unreached) else ("skipped", "not reached")
            outcome.append((result[0], result[1][: self.error_limit]))
        return outcome

    def _ok(self, index: int) -> None:
        self._latest = index
        if self.results[index] is None:
            self.results[index] = _OK

    def _bad(self, index: int, kind: str, text: str) -> None:
        if self.results[index] is None or self.results[index] == _OK:
            self.results[index] = (kind, text)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as fault:  # a KeyError, for example, whose key is a number too long to be written
        return "its text cannot be read: " + type(fault).__name__


def _may_be_one(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if graph.is_immutable(left) and graph.is_immutable(right):
        return bool(left == right or left != left)
    return isinstance(left, tuple) and len(left) == len(right) and all(map(operator.is_, left, right))
