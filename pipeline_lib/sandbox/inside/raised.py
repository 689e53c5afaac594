"""The description of an exception that is sent to the judge."""

from __future__ import annotations

import builtins
import sys
from typing import Any

from . import messages, values

_MOST_BYTES = 1 << 15  # of its arguments


def describe(error: BaseException) -> list[Any]:
    """Return an exception's classes with their modules, its text, the program's line where it arose, its arguments."""
    try:
        text = str.__getitem__(str(error), slice(500))  # even of a subclass
    except BaseException:
        text = ""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<program>":
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == "<program>":
        text, line = str(error.msg), error.lineno or 0
    names = [_full_name(kind) for kind in type(error).__mro__[:12]]
    return [[name[:100] for name in names], text, line, _arguments(error)]


def _full_name(kind: type) -> str:
    """Return name and module of a class; the program's own, whatever they say, are of the module ``program``."""
    if getattr(builtins, kind.__name__, None) is kind:
        return kind.__name__
    module = str(kind.__module__)
    found = getattr(sys.modules.get(module), kind.__name__, None)
    return f"{module if found is kind or module not in sys.stdlib_module_names else 'program'}.{kind.__name__}"


def _arguments(error: BaseException) -> Any:
    """Return the form of the exception's arguments, None if they have none or a long one."""
    try:
        args = list(error.args)
        if isinstance(error, OSError) and len(args) == 2 and type(error.filename) is str:
            args.append(error.filename)  # an argument that is not in ``args``
        form = values.encode(args)
        return form if len(messages.write_reply(_MOST_BYTES, form)) else None
    except BaseException:
        return None
