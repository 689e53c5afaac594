"""Counts the cases of one plan of tests while they run."""

from __future__ import annotations

import reprlib
from typing import Any

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 120
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxfrozenset = 12


class CallFailed(BaseException):
    """A call gave no value, and no exception that tests may expect by its class.

    Not an Exception: tests that expect one must not mistake a dead program for it.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class NoAnswer(CallFailed):
    """A call gave no answer at all, so there is nothing that even ``except:`` could have caught."""


class Recorder:
    """What rewritten tests report to.

    Attributes:
        results: ``(result, message)`` per case, None while a case was not reached.
        finished: the tests ran to their end.
    """

    def __init__(self, total: int, unreached: frozenset[int], error_limit: int) -> None:
        self.results: list[tuple[str, str] | None] = [None] * total
        self.unreached = unreached
        self.error_limit = error_limit
        self.finished = False

    def equal(self, index: int, left: Any, right: Any) -> None:
        """Record whether ``left == right``."""
        if left == right:
            self._ok(index)
        else:
            self._bad(index, "fail", "got " + _short.repr(left) + ", expected " + _short.repr(right))

    def true(self, index: int, value: Any) -> None:
        """Record whether ``value`` is true."""
        if value:
            self._ok(index)
        else:
            self._bad(index, "fail", "not true")

    def error(self, index: int, error: BaseException) -> None:
        """Record that evaluating the case raised."""
        if isinstance(error, CallFailed):
            self._bad(index, error.kind if error.kind in ("timeout", "skipped") else "error", str(error))
        else:
            notes = getattr(error, "__notes__", None)
            self._bad(index, "error", notes[0] if notes else type(error).__name__ + ": " + _text(error))

    def reached(self, index: int) -> None:
        """Record that a case was reached that must not be."""
        self._bad(index, "fail", "reached what must not be reached")

    def in_place(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call ``function`` so that it may change the arguments; a program elsewhere has a method for that."""
        return getattr(function, "in_place", function)(*args, **kwargs)

    def stop(self, error: BaseException) -> None:
        """Record an exception outside of any case at the first case that it kept from being reached."""
        for index, result in enumerate(self.results):
            if result is None and index not in self.unreached:
                self.error(index, error)
                return

    def outcome(self) -> list[tuple[str, str]]:
        """Return ``(result, message)`` of every case; one that was never reached is skipped."""
        outcome = []
        for index, result in enumerate(self.results):
            if result is None:
                good = index in self.unreached and self.finished
                result = ("ok", "") if good else ("skipped", "not reached")
            outcome.append((result[0], result[1][: self.error_limit]))
        return outcome

    def _ok(self, index: int) -> None:
        if self.results[index] is None:
            self.results[index] = ("ok", "")

    def _bad(self, index: int, kind: str, text: str) -> None:
        if self.results[index] is None or self.results[index] == ("ok", ""):
            self.results[index] = (kind, text)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as fault:  # a KeyError, for example, whose key is a number too long to be written
        return "its text cannot be had: " + type(fault).__name__
