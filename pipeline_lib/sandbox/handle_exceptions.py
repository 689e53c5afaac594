"""Exceptions of a program's own classes: those that it raises, and those that it returns as values."""

from __future__ import annotations

from typing import Any

from pipeline_lib.sandbox import calls
from pipeline_lib.sandbox.inside.recorder import SAID, CallFailed


def exception(handle: Any, raised: calls.Raised) -> BaseException:
    """Return the exception to raise for one of a class of the program's own."""
    if not isinstance(handle, Exception):
        return CallFailed("error", raised.describe())
    args = (raised.text,) if raised.args is None else raised.args
    BaseException.args.__set__(handle, args)  # type: ignore[attr-defined]
    object.__setattr__(handle, SAID, raised.describe())
    return handle


def was_raised(error: Any) -> bool:
    """Return whether the program has raised an exception, and not given it as a value, so that all is known of it."""
    try:
        return bool(object.__getattribute__(error, SAID))
    except AttributeError:
        return False
