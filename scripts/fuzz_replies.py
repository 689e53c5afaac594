"""Coverage-guided fuzzing of the judge's decoding of replies; runs until it finds a fault or is stopped.

    pip install atheris
    python scripts/fuzz_replies.py -max_total_time=60 -max_len=4096 -timeout=5

A reply must be refused with `BadValue`, or become builtin values that survive another round trip; anything else ends
the run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports():
    from pipeline_lib.sandbox import calls
    from pipeline_lib.sandbox.inside import messages, values
    from pipeline_lib.sandbox.inside.values import BadValue

DEPTH = 8  # levels at which types are looked at


def one_reply(data: bytes) -> None:
    """Read ``data`` as a reply, its parts as values, and as the description of an exception."""
    try:
        _, _, *parts = messages.read_reply(data)
    except BadValue:
        return
    calls.exception(parts).rebuild({}, "")
    for part in parts:
        try:
            value = values.decode(part)
        except BadValue:
            continue
        check(value, DEPTH)


def check(value: object, depth: int) -> None:
    """Raise unless ``value`` and what is in it are builtins or plain types of the standard library."""
    module = type(value).__module__
    if module not in ("builtins", "collections", "decimal", "fractions"):
        raise AssertionError(f"a reply became a {module}.{type(value).__name__}")
    if depth and isinstance(value, list | tuple | set | frozenset):
        for item in value:
            check(item, depth - 1)
    elif depth and isinstance(value, dict):
        for key, item in value.items():
            check(key, depth - 1)
            check(item, depth - 1)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_reply)
    atheris.Fuzz()
