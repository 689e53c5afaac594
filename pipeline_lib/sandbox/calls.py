"""The form in which calls are sent to a program, and the checks of its answers."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from pipeline_lib.sandbox.inside import messages, values
from pipeline_lib.sandbox.inside.plain import BadValue
from pipeline_lib.sandbox.recorder import DESCRIPTION, CallFailed

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
    """An exception that a program says it raised.

    Attributes:
        names: of its class and the base classes, with their modules except for builtins.
        text: its ``str``.
        line: of the program, 0 if unknown.
        args: its arguments if they are plain values, else None.
    """

    names: tuple[str, ...]
    text: str
    line: int
    args: tuple[Any, ...] | None

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
        kind = next(filter(None, (_find(name, space) for name in self.names)), None)
        if kind is None:
            return CallFailed("error", self.describe())
        if kind in (StopIteration, StopAsyncIteration) and kind.__name__ not in tests:
            kind = RuntimeError  # as in a generator (PEP 479): it would end an iteration of the tests
        error = _make(kind, (self.text,) if self.args is None else self.args, self.text)
        setattr(error, DESCRIPTION, self.describe())
        return error


def printable(text: str) -> str:
    """Return the text without memory addresses, which differ in every run, and with unprintable characters escaped."""
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], _ADDRESS.sub("", text))


def _find(full_name: str, space: Mapping[str, Any]) -> type[Exception] | None:
    """Return the exception class with this name among builtins, the tests, and modules that they import."""
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
