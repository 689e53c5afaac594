"""Cells of a row: ids, numbers and values, with messages that name the place and the column."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pipeline_lib.environment_api.metrics import GREATEST
from pipeline_lib.evaluation.outcomes import OutcomesError

#: Words for a value that is not there.
_MISSING = {"", "na", "n/a", "nan", "none", "null"}
_WORDS = {"true": 1.0, "false": 0.0}


def cell_of(place: str, row: Mapping[str, Any], name: str) -> Any:
    """Return what a row has under a name that must be there."""
    if name not in row:
        raise OutcomesError(f"{place}: {name!r} is missing")
    return row[name]


def list_of(place: str, row: Mapping[str, Any], name: str) -> Sequence[Any]:
    """Return the list that must be there."""
    value = cell_of(place, row, name)
    if not isinstance(value, list):
        raise OutcomesError(f"{place}: {name!r} is not a list")
    return value


def object_of(place: str, row: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object that must be there."""
    value = cell_of(place, row, name)
    if not isinstance(value, dict):
        raise OutcomesError(f"{place}: {name!r} is not an object")
    return value


def number_of(place: str, row: Mapping[str, Any], name: str) -> float:
    """Return the number that must be there."""
    value = cell_of(place, row, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OutcomesError(f"{place}: {name!r} is {value!r}, which is not a number")
    return float(value)


def flat(place: str, row: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested objects as one, with names such as ``doc.subject``."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        name = f"{before}{key}"
        part = flat(place, value, f"{name}.") if isinstance(value, Mapping) else {name: value}
        if twice := sorted(found.keys() & part.keys()):
            raise OutcomesError(f"{place}: {twice[0]!r} stands here twice, as a name and inside of an object")
        found |= part
    return found


def _shown(value: Any) -> str:
    """Return an id as text: the same in a table that turned whole numbers into fractions."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip().encode(errors="backslashreplace").decode()  # JSON can escape half of a character


def _single(place: str, cells: Mapping[str, Any], column: str) -> Any:
    """Return what stands in a column; None if nothing does."""
    if column not in cells and any(name.startswith(f"{column}.") for name in cells):
        raise OutcomesError(f"{place}, column {column!r}: an object stands here, not a single value")
    return cells.get(column)


def id_of(place: str, cells: Mapping[str, Any], column: str | None) -> str:
    """Return an id as text; empty if there is none."""
    value = None if column is None else _single(place, cells, column)
    if not isinstance(value, (str, bytes)) and isinstance(value, Collection):
        raise OutcomesError(f"{place}, column {column!r}: {_quoted(value)} is neither a text nor a number")
    return _shown(value)


def label_of(place: str, cells: Mapping[str, Any], column: str | None) -> str:
    """Return an id as text, which must not be empty."""
    text = id_of(place, cells, column)
    if not text:
        raise OutcomesError(f"{place}, column {column!r}: the cell is empty")
    return text


def value_of(place: str, cells: Mapping[str, Any], column: str) -> float | None:
    """Return a finite number; None for words that stand for a value that is not there."""
    value = _single(place, cells, column)
    if isinstance(value, str):
        text = value.strip().lower()
        value = None if text in _MISSING else _WORDS.get(text, text)
    if value is None:
        return None
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        raise OutcomesError(f"{place}, column {column!r}: {_quoted(value)} is not a number") from None
    if math.isinf(number):
        raise OutcomesError(f"{place}, column {column!r}: the value is infinite")
    if abs(number) > GREATEST:
        raise OutcomesError(f"{place}, column {column!r}: {number:g} is too large to compute with; use another unit")
    return None if math.isnan(number) else number


def whole_of(place: str, cells: Mapping[str, Any], column: str | None) -> int | None:
    """Return a whole number, 0 or more; None if there is none."""
    if column is None or not (text := _shown(_single(place, cells, column))):
        return None
    if text.removesuffix(".0").isascii() and text.removesuffix(".0").isdigit() and len(text) < 19:
        return int(text.removesuffix(".0"))
    raise OutcomesError(f"{place}, column {column!r}: {_quoted(text)} is not a whole number, 0 or more")


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
