"""Results: of each case while the tests run, and of a program's calls, as far as a program may decide them."""

from __future__ import annotations

import builtins
import operator
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pipeline_lib.sandbox.inside import messages, shared, values
from pipeline_lib.sandbox.inside.values import BadValue

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

    @property
    def holds(self) -> bool:
        """Return whether no case has failed so far."""
        return {None, _OK}.issuperset(self.results)

    def outcome(self) -> list[tuple[str, str]]:
        """Return ``(result, message)`` of every case.

        A case that was not reached holds if the tests ran to their end and every case that they reached held.
        Otherwise it is skipped, unless it must not be reached.
        """
        clean = self.finished and self.holds
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
    if shared.is_immutable(left) and shared.is_immutable(right):
        return bool(left == right or left != left)
    return isinstance(left, tuple) and len(left) == len(right) and all(map(operator.is_, left, right))


_MAX_TEXT, _MAX_NAME, _MAX_NAMES = 500, 100, 12  # characters of a text and of a name, number of names

_EXCEPTIONS: dict[str, type[Exception]] = {
    name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)
}
_TEST_FRAMEWORKS = frozenset({"unittest", "pytest", "_pytest", "doctest", "hypothesis", "nose", "nose2"})
# Control characters, text direction marks, line breaks, invisible characters and lone surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that a program says it raised."""

    names: tuple[str, ...]  #: of its class and the base classes, with their modules except for builtins
    text: str  #: its ``str``
    line: int  #: of the program, 0 if unknown
    args: tuple[Any, ...] | None  #: its arguments if they are plain values, else None

    def describe(self) -> str:
        """Return class, text and line number in one readable line."""
        return f"{self.names[0].rpartition('.')[2]}: {self.text}" + (f" (line {self.line})" if self.line else "")

    def is_known(self, space: Mapping[str, Any]) -> bool:
        """Return whether its own class, and not only a base class, is known in the tests' namespace."""
        return _find(self.names[0], space) is not None

    def rebuild(self, space: Mapping[str, Any], tests: str) -> BaseException:
        """Return the nearest exception that tests may expect; `CallFailed` for exits and interrupts.

        A class that the program defines matches a class of the tests with the same name, as if both were in one
        module.  Any other class must be from the same module.  Exceptions with a meaning for a test framework (skip,
        expected failure) are never created from a program's answer.

        Args:
            space: the tests' namespace; its classes and those of the modules in it are known, and the builtins.
            tests: their source.
        """
        if any(name in _ENDS and name not in tests for name in self.names):
            kind: type[Exception] | None = RuntimeError  # as in a generator (PEP 479): it would end an iteration
        else:
            kind = _nearest([self.names[0]], space)
            # A class of the program from which its class derives is not one that the tests define later.
            later = {f"program.{name}" for name in re.findall(r"\bclass\s+(\w+)", tests)}
            bases = [name for name in self.names[1:] if name not in later]
            kind = kind or _nearest(bases, space)
        if kind is None:
            return CallFailed("error", self.describe())
        error = _make(kind, (self.text,) if self.args is None else self.args, self.text)
        setattr(error, DESCRIPTION, self.describe())
        return error


def printable(text: str) -> str:
    """Return the text without memory addresses, which differ in every run, and with unprintable characters escaped."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], _ADDRESS.sub("", text))


_ENDS = frozenset({"StopIteration", "StopAsyncIteration"})


def _nearest(names: Sequence[str], space: Mapping[str, Any]) -> type[Exception] | None:
    """Return the known class with one of these names; if there are several, one that derives from them all."""
    kinds: list[type[Exception]] = []
    for kind in filter(None, (_find(name, space) for name in names)):
        if not any(issubclass(nearer, kind) for nearer in kinds):
            kinds.append(kind)
    if len(kinds) < 2:
        return kinds[0] if kinds else None
    try:
        return type(kinds[0].__name__, tuple(kinds), {"__module__": kinds[0].__module__})
    except TypeError:  # no class can derive from them all
        return kinds[0]


def _find(full_name: str, space: Mapping[str, Any]) -> type[Exception] | None:
    if "." not in full_name:
        return _EXCEPTIONS.get(full_name)
    module, _, name = full_name.rpartition(".")
    home = "tests" if module == "program" else module
    for value in (space.get(name), *(getattr(part, name, None) for part in space.values() if type(part) is ModuleType)):
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == home:
            above = {base.__module__.partition(".")[0] for base in value.__mro__}
            return None if above & _TEST_FRAMEWORKS else value
    return None


def _make(kind: type[Exception], args: tuple[Any, ...], text: str) -> Exception:
    """Return an exception; if its constructor does not accept the arguments, it is not initialised."""
    for given in (args, (text,)):
        try:
            error = kind(*given)
        except Exception:  # the constructor of a class of the tests may raise anything
            continue
        if type(error) is kind:
            return error
        error = kind()  # OSError chooses a class by the error number, but the program's class derives from OSError
        error.args = given
        return error
    try:
        return kind.__new__(kind, text)
    except TypeError:
        return Exception(text)


def exception(rest: list[Any]) -> Raised:
    """Return the exception that the parts of a reply describe; parts of any form are accepted."""
    described = rest[0] if rest else None
    if isinstance(described, list) and len(described) == 4:
        names, text, line, args = described
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            kept = tuple(" ".join(printable(name[:_MAX_NAME]).split()) for name in names[:_MAX_NAMES])
            return Raised(kept, printable(str(text)[:_MAX_TEXT]), line if type(line) is int else 0, _arguments(args))
    return Raised(("Exception",), "an exception without description", 0, None)


def _arguments(form: Any) -> tuple[Any, ...] | None:
    try:
        args = values.decode(form)
    except BadValue:
        return None
    return tuple(args) if isinstance(args, list) else None


def same_arguments(args: tuple[Any, ...], known: bytes) -> bool:
    """Return whether a call has exactly the arguments, types included, that `tests_source.TestPlan` predicted."""
    try:
        return messages.write_request(*args) == known
    except ValueError:  # marshal cannot write them
        return False
