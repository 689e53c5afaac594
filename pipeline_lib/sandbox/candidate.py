"""The object that tests call: a proxy of the program's function, without misleading attributes of its own."""

from __future__ import annotations

from types import MethodType
from typing import Any, Protocol

_PROGRAM = "__symposium_program__"


class Target(Protocol):
    """The part of `proxy.Program` that a candidate uses."""

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the program's function."""
        ...

    def function(self) -> Any:
        """Return a handle of the program's function."""
        ...


class Candidate:
    """A proxy of the program's function.

    Args:
        program: answers the calls.
        name: of the function.
    """

    __slots__ = (_PROGRAM, "__symposium_name__")
    __module__ = "program"

    def __init__(self, program: Target, name: str) -> None:
        object.__setattr__(self, _PROGRAM, program)
        object.__setattr__(self, "__symposium_name__", name)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the program's function and return a copy of its value.

        Arguments are copied, too, but the program's changes to them are applied to the tests' objects: see `common`.

        Raises:
            Exception: the exception known to the tests that is nearest to the one that the program raised.
            CallFailed: the program raised an exception that no test may expect.
            NoAnswer: there is no answer.
        """
        return _program(self).call(args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(_program(self).function(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_program(self).function(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_program(self).function(), name)

    def __get__(self, thing: Any, kind: Any = None) -> Any:
        """Return a bound method, as for a function that is an attribute of a class."""
        return self if thing is None else MethodType(self, thing)

    def __copy__(self) -> Candidate:
        return self

    def __deepcopy__(self, memo: Any) -> Candidate:
        return self

    def __repr__(self) -> str:
        return f"<function {object.__getattribute__(self, '__symposium_name__')}>"

    @property
    def __signature__(self) -> Any:
        """Raise ValueError, as ``inspect.signature`` does for builtins: the signature is not known here."""
        raise ValueError("no signature found for a function that stays in the program")


class _Documentation:
    """Makes ``__doc__`` of a candidate the program's documentation and not that of `Candidate`."""

    def __get__(self, thing: Any, kind: Any) -> Any:
        return None if thing is None else _program(thing).function().__doc__


type.__setattr__(Candidate, "__doc__", _Documentation())


def _program(candidate: Candidate) -> Target:
    program: Target = object.__getattribute__(candidate, _PROGRAM)
    return program
