"""Describe what differs between two identities."""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline_lib.storage import canonical_json


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return one line per difference of two identities: ``train.learning_rate: 0.001 -> 0.0005``."""
    lines = []
    for part in ("settings", "code", "versions", "named", "content", "left_out", "image"):
        prefix = "" if part == "settings" else f"{part}: "
        lines += [f"{prefix}{line}" for line in _differences(old.get(part), new.get(part))]
    return lines


def _differences(old: Any, new: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            name = f"{prefix}{key}"
            if key not in old:
                yield f"{name}: new"
            elif key not in new:
                yield f"{name}: gone"
            elif old[key] != new[key]:
                if isinstance(old[key], Mapping) and isinstance(new[key], Mapping):
                    yield from _differences(old[key], new[key], f"{name}.")
                else:
                    yield f"{name}: {_change(old[key], new[key])}"
    elif old != new:
        yield f"{prefix}{_change(old, new)}"


def _change(old: Any, new: Any) -> str:
    if all(isinstance(value, str) and len(value) == 64 for value in (old, new)):
        return "changed"
    return f"{canonical_json(old)} -> {canonical_json(new)}"
