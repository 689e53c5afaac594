"""A stand-in for the program's names while tests are collected: every operation on it gives it again.

So the number of cases follows from the tests alone, also if statements of their module call the program.
"""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Iterator
from typing import Any

_UNPACK = dis.opmap["UNPACK_SEQUENCE"]


class Blank:
    """Accepts every operation; is true, equal to everything, and contains everything; as a number it is 1."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)  # other libraries ask objects for their abilities in this way
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        """Change nothing: one blank stands for all names."""

    def __delattr__(self, name: str) -> None:
        """Change nothing."""

    def __iter__(self) -> Iterator[Any]:
        """Yield it once, or as often as the assignment that unpacks it wants."""
        frame = sys._getframe(1)
        kind, count = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
        return iter([self] * (count if kind == _UNPACK else 1))

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "blank"


def _same(self: Blank, *args: Any, **kwargs: Any) -> Blank:
    return self


def _true(self: Blank, *args: Any) -> bool:
    return True


def _one(self: Blank) -> int:
    return 1


_OPERATORS = [name.strip("_") for name in dir(operator) if name.startswith("__") and callable(getattr(operator, name))]
for _name in (*_OPERATORS, "call", "divmod", "round", "trunc", "floor", "ceil", "reversed", "enter", "next"):
    setattr(Blank, f"__{_name}__", _same)
    setattr(Blank, f"__r{_name}__", _same)  # with the other operand on the left
for _name in ("eq", "lt", "le", "gt", "ge", "bool", "contains", "instancecheck", "subclasscheck"):
    setattr(Blank, f"__{_name}__", _true)
Blank.__ne__ = lambda self, other: False  # type: ignore[method-assign]
for _name in ("index", "int", "len"):
    setattr(Blank, f"__{_name}__", _one)
Blank.__float__ = lambda self: 1.0  # type: ignore[attr-defined]
Blank.__exit__ = lambda self, *error: None  # type: ignore[attr-defined]
