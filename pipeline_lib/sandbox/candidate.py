"""The object that tests call: a proxy of the program's function, without misleading attributes of its own."""

from __future__ import annotations

from types import MethodType
from typing import Any, Protocol

_PROGRAM = "__symposium_program__"


class Asked(Protocol):
    """Who answers: see `proxy.Program`."""

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the program's function."""
        ...

    def function(self) -> Any:
        """Return a handle of it."""
        ...


class Candidate:
    """Stands for the program's function.

    Args:
        program: is asked.
        name: of the function.
    """

    __slots__ = (_PROGRAM, "__symposium_name__")
    __module__ = "program"

    def __init__(self, program: Asked, name: str) -> None:
        object.__setattr__(self, _PROGRAM, program)
        object.__setattr__(self, "__symposium_name__", name)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the program's function and return a copy of its value.

        Arguments are copies, too, but what the program does to them is done to the tests' own: see `common`.

        Raises:
            Exception: the exception known to the tests that is nearest to the one that the program raised.
            CallFailed: it raised one that no test may expect.
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
        """Return what a function is as an attribute of an object: a method, which passes the object, too."""
        return self if thing is None else MethodType(self, thing)

    def __copy__(self) -> Candidate:
        return self

    def __deepcopy__(self, memo: Any) -> Candidate:
        return self

    def __repr__(self) -> str:
        return f"<function {object.__getattribute__(self, '__symposium_name__')}>"

    @property
    def __signature__(self) -> Any:
        """Raise ValueError, as ``inspect.signature`` does for builtins: nobody knows it here."""
        raise ValueError("no signature found for a function that stays in the program")


class _Documentation:
    """That of the program's function, and not of the class above."""

    def __get__(self, thing: Any, kind: Any) -> Any:
        return None if thing is None else _program(thing).function().__doc__


type.__setattr__(Candidate, "__doc__", _Documentation())


def _program(candidate: Candidate) -> Asked:
    program: Asked = object.__getattribute__(candidate, _PROGRAM)
    return program
