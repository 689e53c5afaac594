"""Which values are plain and can be sent between the judge and a program, and properties of other types."""

from __future__ import annotations

import array
import collections
import keyword
import sys
from functools import lru_cache
from typing import Any

SIMPLE = frozenset({type(None), bool, float, str})
ATOMS = SIMPLE | {int}
CELLS = frozenset(
    {list, dict, set, bytearray, array.array, collections.deque, collections.OrderedDict, collections.Counter}
)
VIEWS = {
    type(getattr(kind(), name)()): name
    for kind in (dict, collections.OrderedDict)
    for name in ("keys", "values", "items")
}
MAPPINGS = ("OrderedDict", "Counter")  # dicts with their own comparison or lookup
#: Builtins whose subclasses exist on both sides, with the same content.
FIXED_BASES = (int, float, str, complex, bytes, tuple, frozenset)
BASES = (*FIXED_BASES, *sorted(CELLS - {array.array}, key=lambda kind: kind.__name__))
_PLAIN_TYPES = (
    *(("decimal", "Decimal"), ("fractions", "Fraction")),
    *(("collections", name) for name in ("deque", *MAPPINGS)),
    *(("datetime", name) for name in ("date", "datetime", "time", "timedelta")),
)
TIMES = {
    "date": ("year", "month", "day"),
    "datetime": ("year", "month", "day", "hour", "minute", "second", "microsecond"),
    "time": ("hour", "minute", "second", "microsecond"),
    "timedelta": ("days", "seconds", "microseconds"),
}
CONSTANTS = {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}
_LEAF_TYPES = (*ATOMS, bytes, complex, range, *map(type, CONSTANTS.values()))
_LEAF_NAMES = ("Decimal", "Fraction", *TIMES)
LEAF_TAGS = ("int", "bytes", "complex", "range", "constant", "slice", *_LEAF_NAMES)
_ENDS = {int, type(None)}
BROKEN = (ValueError, TypeError, KeyError, IndexError, RecursionError, ArithmeticError, AttributeError, MemoryError)


class BadValue(Exception):
    """A value without a plain form, or a malformed message; ``kind`` is ``type``, ``size`` or ``form``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def base_of(kind: type) -> Any:
    """Return the builtin of `BASES` that a class derives from, or is; None if there is none."""
    return next((base for base in kind.__mro__ if id(base) in _BASES), None)  # a metaclass may define ``==``


_BASES = frozenset(map(id, BASES))


def owners(kind: type) -> dict[str, type]:
    """Return the class of ``kind``'s method resolution order in which Python finds each name."""
    found: dict[str, type] = {}
    for base in kind.__mro__:
        for name in vars(base):
            found.setdefault(name, base)
    return found


def is_own(kind: type) -> bool:
    """Return whether a class is a program's own: not of the standard library, nor of numpy, whatever it says."""
    name = str(kind.__module__)
    if name.partition(".")[0] not in {*sys.stdlib_module_names, "numpy"}:
        return True
    return getattr(sys.modules.get(name), kind.__name__, None) is not kind and bool(kind.__flags__ & _IS_HEAP_TYPE)


_IS_HEAP_TYPE = 1 << 9


def fields_of(kind: type) -> list[str] | None:
    """Return the fields of a class made by ``collections.namedtuple`` that nothing was added to, else None.

    Named tuples of the standard library written in C, such as ``time.struct_time``, have fields, too.
    """
    if not issubclass(kind, tuple) or kind is tuple:
        return None
    names = vars(kind).get("__match_args__", ())
    if len(names) == vars(kind).get("n_sequence_fields", -1):
        return list(names)
    return [str(name) for name in vars(kind)["_fields"]] if _is_named_tuple(kind) else None


@lru_cache(maxsize=64)
def _is_named_tuple(kind: type) -> bool:
    parts = vars(kind)
    fields = parts.get("_fields")
    if kind.__bases__ != (tuple,) or type(fields) is not tuple or not {type(name) for name in fields} <= {str}:
        return False
    if {type(parts.get(name)) for name in fields} - {type(_NAMED.part)} or parts.keys() - _USUAL - {*fields}:
        return False
    return all(_code(parts.get(name)) == _code(part) for name, part in vars(_NAMED).items() if name != "__new__")


def _code(part: Any) -> Any:
    return getattr(getattr(part, "__func__", part), "__code__", None)


_NAMED: Any = collections.namedtuple("_NAMED", "part")
_USUAL = vars(_NAMED).keys() - {"part"} | {"__orig_bases__", "__annotations__", "__annotate__", "__annotate_func__"}


@lru_cache(maxsize=64)
def namedtuple(name: str, fields: tuple[str, ...]) -> Any:
    """Return a class made by ``collections.namedtuple``; raises BadValue or ValueError for bad names."""
    if len(fields) > 255 or len(name) > 100 or not name.isidentifier() or keyword.iskeyword(name):
        raise BadValue("form", "not a named tuple")
    return collections.namedtuple(name, fields)  # which checks the fields


def flatten(value: Any, base: Any) -> Any:
    """Return the exact builtin of `FIXED_BASES` inside an instance of a subclass, without calling its methods."""
    if base in (tuple, frozenset):
        return base(base.__iter__(value))
    if base is complex:
        return complex(base.__add__(value, 0))
    if base is bytes:
        return bytes(memoryview(value))
    return {int: int.__int__, float: float.__float__, str: str.__str__}[base](value)


def is_leaf(value: Any) -> bool:
    """Return whether a value has a plain form and holds no other values."""
    kind = type(value)
    if kind is slice:
        return _ENDS.issuperset(map(type, (value.start, value.stop, value.step)))
    return kind in _LEAF_TYPES or (stdlib_name(kind) in _LEAF_NAMES and zone_of(value) is not None)


def refuse_attributes(value: Any) -> None:
    """Raise BadValue for a counter or ordered dict to which attributes have been added."""
    if type(value) in (collections.Counter, collections.OrderedDict) and vars(value):
        raise BadValue("type", f"a {type(value).__name__} with attributes of its own cannot be sent")


def make_array(code: Any, items: Any) -> array.array[Any]:
    """Return an array; raises one of `BROKEN` or `BadValue` for other input."""
    if type(code) is not str or type(items) is not list:
        raise BadValue("form", "not an array")
    return array.array(code, items)


def zone_of(value: Any) -> list[int] | None:
    """Return the offset of a time from UTC in microseconds as a list of one, empty for a time without a zone.

    None stands for a time zone without a plain form.
    """
    zone = getattr(value, "tzinfo", None)
    if zone is None:
        return []
    import datetime

    if type(zone) is not datetime.timezone:
        return None
    ahead = zone.utcoffset(None)
    return [ahead // datetime.timedelta(microseconds=1)] if repr(datetime.timezone(ahead)) == repr(zone) else None


def stdlib_name(kind: type) -> str | None:
    """Return the name of a plain type of the standard library if ``kind`` is exactly that type."""
    for module, name in _PLAIN_TYPES:
        if kind.__name__ == name and getattr(sys.modules.get(module), name, None) is kind:
            return name
    return None
