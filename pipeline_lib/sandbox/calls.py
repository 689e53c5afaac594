"""The form in which calls are sent to a program, and the checks of its answers."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pipeline_lib.sandbox.inside import messages, values
from pipeline_lib.sandbox.inside.common import Common, holds_itself, too_many_parts
from pipeline_lib.sandbox.inside.plain import ATOMS, BROKEN, BadValue
from pipeline_lib.sandbox.inside.recorder import SAID, CallFailed, NoAnswer
from pipeline_lib.sandbox.tests_source import CALL_FAILED, CASES, UNCATCHABLE, Planned, rewritten_source

_RESULTS = ("ok", "fail", "error", "timeout", "skipped")
_TEXT, _NAME, _NAMES = 500, 100, 12  # most characters of a text and of a name, most names, that are kept

_EXCEPTIONS: dict[str, type[Exception]] = {
    name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, Exception)
}
_TEST_FRAMEWORKS = frozenset({"unittest", "pytest", "_pytest", "doctest", "hypothesis", "nose", "nose2"})
# Controls, what turns the direction of a text round, breaks its lines or is not seen at all, halves of characters.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e0fff]"
)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that a program says it raised.

    Attributes:
        names: of its class and the classes above it, with their modules, but for those of builtins.
        text: what ``str`` made of it.
        line: of the program, 0 if unknown.
        args: its arguments if they are plain values, else None.
    """

    names: tuple[str, ...]
    text: str
    line: int
    args: tuple[Any, ...] | None

    def describe(self) -> str:
        """Return a line for people."""
        return f"{self.names[0].rpartition('.')[2]}: {self.text}" + (f" (line {self.line})" if self.line else "")

    def is_known(self, space: Mapping[str, Any]) -> bool:
        """Return whether tests know its very class."""
        return _find(self.names[0], space) is not None

    def rebuild(self, space: Mapping[str, Any], tests: str) -> BaseException:
        """Return the nearest exception that tests may expect; `CallFailed` for exits and interrupts.

        A class of the program's own is that of the tests which has its name, as if both stood in one module; any other
        has to be of the same module.  Exceptions by which a test framework learns that a test is skipped, or right to
        fail, never come from a program.

        Args:
            space: the tests' namespace, whose classes, and those of the modules in it, are known beside the builtins.
            tests: their source.
        """
        kind = next(filter(None, (_find(name, space) for name in self.names)), None)
        if kind is None:
            return CallFailed("error", self.describe())
        if kind in (StopIteration, StopAsyncIteration) and kind.__name__ not in tests:
            kind = RuntimeError  # as in a generator (PEP 479): it would end what the tests iterate over
        error = _make(kind, (self.text,) if self.args is None else self.args, self.text)
        setattr(error, SAID, self.describe())
        return error


def printable(text: str) -> str:
    """Return the text without addresses, which no two runs share, and with unprintable characters as escapes."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], _ADDRESS.sub("", text))


def _find(full_name: str, space: Mapping[str, Any]) -> type[Exception] | None:
    """Return the builtin exception class, or that of the tests, be it in a module that they have imported."""
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
    """Return an exception; one that wants other arguments than there are is made without being initialised."""
    for given in (args, (text,)):
        try:
            return kind(*given)
        except Exception:
            continue
    try:
        return kind.__new__(kind, text)
    except TypeError:
        return Exception(text)


def exception(rest: list[Any]) -> Raised:
    """Return the exception that the parts of a reply describe, whatever they are."""
    described = rest[0] if rest else None
    if isinstance(described, list) and len(described) == 4:
        names, text, line, args = described
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
            kept = tuple(printable(name[:_NAME]) for name in names[:_NAMES])
            return Raised(kept, printable(str(text)[:_TEXT]), line if type(line) is int else 0, _arguments(args))
    return Raised(("Exception",), "an exception without description", 0, None)


def _arguments(form: Any) -> tuple[Any, ...] | None:
    try:
        args = values.decode(form)
    except BadValue:
        return None
    return tuple(args) if isinstance(args, list) else None


def request(number: int, args: list[Any], kwargs: dict[str, Any], known: Common, gone: list[int]) -> bytes | None:
    """Return the request of a call, with what has happened to the containers that both sides know.

    Args:
        number: of the call.
        args, kwargs: its arguments.
        known: gets to know the containers in them.
        gone: numbers of containers that the tests have no name for any more.

    Returns:
        None if an argument has no plain form, or holds itself.

    Raises:
        NoAnswer: an argument is nested too deep.
    """
    gone += known.prune()
    held = set(known.cells)
    try:
        news = (known.changes(), gone)
        known.repeats = False
        written = messages.write_call(number, args, kwargs, known, news)
        if known.repeats and holds_itself([*args, *kwargs.values()]):
            raise BadValue("type", "an argument holds itself")
        return written
    except BadValue as error:
        if error.kind == "type":
            known.forget([number for number in known.cells if number not in held])
            return None
        gone += known.cells
        known.clear()
        raise NoAnswer("error", f"the tests pass what cannot be sent: {error}") from None


def value(rest: list[Any], known: Common) -> Any:
    """Return the value that a reply brings, once everything is done that the program has done to known containers.

    Raises:
        BadValue: of `values`, for parts that are no such thing.
    """
    if len(rest) == 1 and not known.cells and type(rest[0]) in ATOMS:
        return rest[0]
    known.shares = False
    result = values.decode(rest[0], known)
    take_over(rest[1:], known, result)
    return result


def take_over(news: list[Any], known: Common, result: Any = None) -> None:
    """Do to known containers what the program has done to its own; raises `BadValue` as `value` does."""
    try:
        changes, kept = news or ([], [])
        known.change(changes)
        if known.shares and too_many_parts([result, *known.cells.values()]):
            raise BadValue("size", "a value that holds itself over and over")
        known.keep(kept)
    except BROKEN as error:
        raise BadValue("form", f"no list of changes: {type(error).__name__}") from None


def same_arguments(args: tuple[Any, ...], known: bytes) -> bool:
    """Return whether a call has the arguments, to the type, that `tests_source.TestPlan` has foreseen."""
    try:
        return messages.write_request(*args) == known
    except ValueError:  # they have no such form
        return False


def inline_form(planned: Planned) -> dict[str, Any]:
    """Return the tests in the form in which a program runs them itself."""
    job, (plan,) = planned.job, planned.plans
    return {
        "source": rewritten_source(job.tests, job.entry_point),
        "total": plan.total,
        "unreached": plan.unreached,
        "once": plan.once,
        "has_check": plan.has_check,
        "recorder": CASES,
        "failed": CALL_FAILED,
        "uncatchable": UNCATCHABLE,
    }


def results(rest: list[Any], total: int) -> list[tuple[str, str]] | None:
    """Return what a program says of tests it ran itself, None if it is not what such a program would say."""
    try:
        checked = [(result, text) for result, text in rest[0]]
    except (IndexError, TypeError, ValueError):
        return None
    good = all(type(text) is str and result in _RESULTS for result, text in checked)
    return checked if good and len(checked) == total else None
