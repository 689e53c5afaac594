"""Checks of arguments: each error says what was given and what is accepted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def check_type(name: str, value: object, kinds: type | tuple[type, ...], accepted: str) -> None:
    """Check the type of an argument.

    Args:
        name: of the argument.
        value: what was given.
        kinds: accepted classes.
        accepted: what it must be, in words.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(value, kinds):
        raise TypeError(f"{name} is {value!r}; it must be {accepted}")


def check_whole(name: str, value: object, least: int) -> None:
    """Check that an argument is an integer of at least ``least``; True is none.

    Raises:
        ValueError: it is something else.
    """
    if type(value) is not int or value < least:
        raise ValueError(f"{name} is {value!r}; it must be an integer of at least {least}")


def check_list(name: str, value: Any, accepted: str) -> list[Any]:
    """Return an argument as a list: anything that can be iterated, is no text and not empty.

    Args:
        name: of the argument.
        value: what was given.
        accepted: what the list must contain, in words.

    Raises:
        TypeError: it is no list.
        ValueError: it is empty.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is {value!r}; it must be a list of {accepted}")
    found = list(value)
    if not found:
        raise ValueError(f"{name} is empty; it must be a list of {accepted}")
    return found
