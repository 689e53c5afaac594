"""Exceptions of classes that a program defines: those that it raises, and those that it returns as values."""

from __future__ import annotations

from typing import Any

from pipeline_lib.sandbox import calls
from pipeline_lib.sandbox.recorder import DESCRIPTION, CallFailed


def exception(handle: Any, raised: calls.Raised) -> BaseException:
    """Return the exception to raise for one whose class the program defines."""
    if not isinstance(handle, Exception):
        return CallFailed("error", raised.describe())
    args = (raised.text,) if raised.args is None else raised.args
    BaseException.args.__set__(handle, args)  # type: ignore[attr-defined]
    object.__setattr__(handle, DESCRIPTION, raised.describe())
    return handle


def was_raised(error: Any) -> bool:
    """Return whether the program raised the exception; if not, it returned it as a value."""
    try:
        return bool(object.__getattribute__(error, DESCRIPTION))
    except AttributeError:
        return False
