"""Mocks of the tests, which the program uses through a stand-in: see `objects.Mock`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pipeline_lib.sandbox.inside.shared import SPECIAL


def is_mock(value: Any) -> bool:
    """Return whether a value of the tests is a mock of `unittest.mock`."""
    module = sys.modules.get("unittest.mock")
    return module is not None and issubclass(type(value), module.NonCallableMock)


def operations(mock: Any) -> Callable[..., Any]:
    """Return the function that executes the program's operations on a mock, always the same one.

    A program can read and set public attributes only, because others lead from a mock to code of this process; and
    none of those with which tests ask a mock what it was called with.
    """
    found: Callable[..., Any] | None = mock.__dict__.get(_OPERATIONS)
    if found is None:

        def found(operation: str, name: str, *args: Any) -> Any:
            if type(name) is not str or (name not in SPECIAL if operation == "special" else _is_closed(name)):
                raise AttributeError(str(name)[:100])
            if operation == "special":
                return _special(mock, name, args)
            return setattr(mock, name, *args) if operation == "set" else getattr(mock, name)

        mock.__dict__[_OPERATIONS] = found
    return found


def _is_closed(name: str) -> bool:
    return name.startswith(("_", "assert")) or hasattr(sys.modules["unittest.mock"].NonCallableMock, name)


def _special(mock: Any, name: str, args: tuple[Any, ...]) -> Any:
    if name == "__bool__":
        return bool(mock)  # also without a method of this name
    found = getattr(mock, name)(*args) if hasattr(mock, name) else NotImplemented
    if found is NotImplemented:
        raise TypeError(f"the mock has no {name} for these operands")
    return found


_OPERATIONS = "_symposium_operations"
