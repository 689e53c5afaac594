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
BASES = (int, float, str, complex, list, tuple, dict, set, frozenset, bytes, bytearray)
# What a class may define without a difference between its objects and those of the builtin it derives from.
_INVISIBLE = frozenset(
    f"__{name}__"
    for name in (
        *("module", "qualname", "doc", "dict", "weakref", "slots", "annotations", "firstlineno", "static_attributes"),
        *("new", "init", "init_subclass", "subclasshook", "class_getitem", "orig_bases", "parameters", "match_args"),
        *("getnewargs", "reduce", "reduce_ex", "sizeof", "dir"),
    )
)
COMPARISONS = frozenset(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
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


@lru_cache(maxsize=256)
def overrides_behaviour(kind: type) -> bool:
    """Return whether tests can see a difference between a class that derives from a builtin and the builtin.

    True for numpy's numbers, ``defaultdict``, and classes outside of the standard library that define an operator or
    another special method, or a name that the builtin has.
    """
    if (kind.__module__ == "numpy" and not is_own(kind)) or kind is collections.defaultdict:
        return not issubclass(kind, (str, bytes, complex))
    taken = {name for base in BASES if issubclass(kind, base) for name in dir(base)}
    usual = {id(part) for base in kind.__mro__ if not is_own(base) for part in vars(base).values()}  # enums repeat them
    names = {n for base in kind.__mro__ if is_own(base) for n, part in vars(base).items() if id(part) not in usual}
    names -= _INVISIBLE
    return any(name in taken or (name.startswith("__") and name.endswith("__")) for name in names)


def is_own(kind: type) -> bool:
    """Return whether a class is a program's own: not of the standard library, nor of numpy, whatever it says."""
    name = str(kind.__module__)
    if name.partition(".")[0] not in {*sys.stdlib_module_names, "numpy"}:
        return True
    return getattr(sys.modules.get(name), kind.__name__, None) is not kind and bool(kind.__flags__ & _IS_HEAP_TYPE)


_IS_HEAP_TYPE = 1 << 9


def fields_of(kind: type) -> list[str] | None:
    """Return the fields of a class made by ``collections.namedtuple`` or derived from one, else None.

    Named tuples of the standard library written in C, such as ``time.struct_time``, have fields, too.
    """
    if not issubclass(kind, tuple):
        return None
    names = getattr(kind, "__match_args__", ())
    if len(names) == getattr(kind, "n_sequence_fields", -1):
        return list(names)
    fields = getattr(kind, "_fields", None)
    if not isinstance(fields, tuple) or not hasattr(kind, "_make") or _changes_tuple(kind):
        return None
    return [str(name) for name in fields]


@lru_cache(maxsize=64)
def _changes_tuple(kind: Any) -> bool:
    """Return whether a named tuple does anything else than one made by ``collections.namedtuple``."""
    above = [base for base in kind.__mro__ if base not in (tuple, object)]
    if getattr(kind.__repr__, "__code__", None) is not _NAMED.__repr__.__code__:
        return True
    names = {name for base in above for name in vars(base)} - _INVISIBLE - {"__repr__", "__replace__"}
    fields = [getattr(kind, str(name), None) for name in kind._fields]
    special = any(
        (name.startswith("__") and name.endswith("__")) or name in dir(tuple) for name in names - {*kind._fields}
    )
    return special or {type(field) for field in fields} - {type(_NAMED.part)} != set()


_NAMED: Any = collections.namedtuple("_NAMED", "part")


@lru_cache(maxsize=64)
def namedtuple(name: str, fields: tuple[str, ...]) -> Any:
    """Return a class made by ``collections.namedtuple``; raises BadValue or ValueError for bad names."""
    if len(fields) > 255 or len(name) > 100 or not name.isidentifier() or keyword.iskeyword(name):
        raise BadValue("form", "not a named tuple")
    return collections.namedtuple(name, fields)  # which checks the fields


def flatten(value: Any, base: Any) -> Any:
    """Return the exact builtin ``base`` inside an instance of a subclass, without calling the subclass's methods."""
    if base is dict:
        return dict(dict.items(value))
    if base in (list, tuple, set, frozenset):
        return base(base.__iter__(value))
    if base is complex:
        return complex(base.__add__(value, 0))
    if base in (bytes, bytearray):
        return base(memoryview(value))
    return {int: int.__int__, float: float.__float__, str: str.__str__}[base](value)


def is_leaf(value: Any) -> bool:
    """Return whether a value has a plain form and holds no other values."""
    kind = type(value)
    if kind is slice:
        return _ENDS.issuperset(map(type, (value.start, value.stop, value.step)))
    return kind in _LEAF_TYPES or (stdlib_name(kind) in _LEAF_NAMES and zone_of(value) is not None)


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
