"""Plain values, the only values sent between the judge and a program, as forms that JSON and marshal can write.

Promises: for any form from a program, `decode` returns builtins (``None``, numbers, text, bytes, containers, and a few
plain types of the standard library) or raises `BadValue`; no class, method or code of the sender is ever run.

Values are copies; `shared` is for those whose identity matters.  Anything that is not exactly of a plain type, as an
object of a subclass, raises `BadValue` at the sender.
"""

from __future__ import annotations

import array
import collections
import keyword
import math
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

SIMPLE = frozenset({type(None), bool, float, str})
ATOMS = SIMPLE | {int}
#: Classes of values are compared by identity: a program's metaclass may define ``==`` and hash.
ATOM_IDS = frozenset(map(id, ATOMS))
CELLS = frozenset(
    {list, dict, set, bytearray, array.array, collections.deque, collections.OrderedDict, collections.Counter}
)
VIEWS = {
    type(getattr(kind(), name)()): name
    for kind in (dict, collections.OrderedDict)
    for name in ("keys", "values", "items")
}
VIEW_IDS, CELL_IDS = frozenset(map(id, VIEWS)), frozenset(map(id, CELLS))
MAPPINGS = ("OrderedDict", "Counter")  # dicts with their own comparison or lookup
#: Builtins whose subclasses exist on both sides, with the same content.
FIXED_BASES = (int, float, str, complex, bytes, tuple, frozenset)
BASES = (*FIXED_BASES, *sorted(CELLS - {array.array}, key=lambda kind: kind.__name__))
_PLAIN_TYPES = (
    *(("decimal", "Decimal"), ("fractions", "Fraction")),
    *(("collections", name) for name in ("deque", *MAPPINGS)),
    *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
    ("zoneinfo", "ZoneInfo"),
)
TIMES = {
    "date": ("year", "month", "day"),
    "datetime": ("year", "month", "day", "hour", "minute", "second", "microsecond", "fold"),
    "time": ("hour", "minute", "second", "microsecond", "fold"),
    "timedelta": ("days", "seconds", "microseconds"),
}
CONSTANTS = {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}
_LEAF_IDS = frozenset(map(id, (*ATOMS, bytes, complex, range, *map(type, CONSTANTS.values()))))
_ZONES = ("timezone", "ZoneInfo")
_LEAF_NAMES = ("Decimal", "Fraction", *TIMES, *_ZONES)
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


def _is_claimed(module: str) -> bool:
    """Return whether a module's name is one of the standard library, or of numpy."""
    package = module.partition(".")[0]
    return package in sys.stdlib_module_names or package == "numpy"


def module_of(kind: type) -> str:
    """Return the module of a class; the program's own, whatever they say, are of the module ``program``."""
    module = str(kind.__module__)
    return "program" if _is_claimed(module) and is_own(kind) else module


def is_own(kind: type) -> bool:
    """Return whether a class is a program's own: not of the standard library, nor of numpy, whatever it says."""
    name = str(kind.__module__)
    if not _is_claimed(name):
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
    return id(kind) in _LEAF_IDS or (stdlib_name(kind) in _LEAF_NAMES and zone_of(value) is not None)


def refuse_attributes(value: Any) -> None:
    """Raise BadValue for a counter or ordered dict to which attributes have been added."""
    if type(value) in (collections.Counter, collections.OrderedDict) and vars(value):
        raise BadValue("type", f"a {type(value).__name__} with attributes of its own cannot be sent")


def make_array(code: Any, items: Any) -> array.array[Any]:
    """Return an array; raises one of `BROKEN` or `BadValue` for other input."""
    if type(code) is not str or type(items) is not list:
        raise BadValue("form", "not an array")
    return array.array(code, items)


def zone_of(value: Any) -> list[int | str] | None:
    """Return the time zone of a time, or that ``value`` is, as a list of one, empty for a time without one.

    It is an offset from UTC in microseconds, or a name.  None stands for a time zone without a plain form.
    """
    zone = value if stdlib_name(type(value)) in _ZONES else getattr(value, "tzinfo", None)
    if zone is None:
        return []
    kind: Any = type(zone)
    if stdlib_name(kind) == "ZoneInfo":
        return [zone.key] if _is_of_machine(zone) else None
    if stdlib_name(kind) != "timezone":
        return None
    ahead = zone.utcoffset(None)
    return [ahead // type(ahead)(microseconds=1)] if repr(kind(ahead)) == repr(zone) else None


def _is_of_machine(zone: Any) -> bool:
    """Return whether a ``ZoneInfo`` is the one that its name gives everywhere."""
    try:
        return type(zone.key) is str and type(zone)(zone.key) is zone
    except (*BROKEN, OSError):
        return False


def _zone(part: Any) -> Any:
    """Return the time zone of `zone_of`; raises one of `BROKEN` or `BadValue` for other input."""
    if type(part) is not str:
        return _imported("timezone")(_imported("timedelta")(microseconds=_integer(part)))
    try:
        return _imported("ZoneInfo")(part)
    except OSError:
        raise BadValue("form", "not a time zone") from None


def _imported(name: str) -> Any:
    """Return one of `_PLAIN_TYPES`; not imported before, since every fork copies what the fork server has loaded."""
    return getattr(__import__(next(module for module, known in _PLAIN_TYPES if known == name)), name)


def stdlib_name(kind: type) -> str | None:
    """Return the name of a plain type of the standard library if ``kind`` is exactly that type."""
    for module, name in _PLAIN_TYPES:
        if kind.__name__ == name and getattr(sys.modules.get(module), name, None) is kind:
            return name
    return None


MAX_DEPTH = 100  # containers within containers
# How far a value may expand when it is used: items of its ranges and counters together; digits of each number.
MOST_ITEMS = 1_000_000
MOST_DIGITS = 100_000
_PLAIN_INT = 1 << 63
_SIMPLE_IDS, _INT_ID = frozenset(map(id, SIMPLE)), {id(int)}
_CONSTANTS = {type(constant): name for name, constant in CONSTANTS.items()}


def decode(form: Any) -> Any:
    """Return the value of ``form``; raises `BadValue` for anything that `encode` cannot make."""
    try:
        return _decode(form, 0)
    except BROKEN as error:
        raise BadValue("form", f"not a plain value: {type(error).__name__}") from None


def encode(value: Any, depth: int = 0) -> Any:
    """Return the form of ``value``, which the ``json`` module can write; containers other than lists have a tag.

    Args:
        value: the value to send.
        depth: number of containers around it.
    """
    kind = type(value)
    if kind is int:
        return value if -_PLAIN_INT <= value < _PLAIN_INT else {"int": hex(value)}
    if id(kind) in ATOM_IDS:
        return value
    if depth >= MAX_DEPTH:
        raise BadValue("size", f"the value is nested more than {MAX_DEPTH} deep")
    depth += 1
    if kind is list:
        return value[:] if are_simple(value) else [encode(item, depth) for item in value]
    if kind is tuple:
        return {"tuple": [encode(item, depth) for item in value]}
    if kind is dict:
        return {"dict": [[encode(key, depth), encode(item, depth)] for key, item in value.items()]}
    if kind is set or kind is frozenset:
        return {kind.__name__: [encode(item, depth) for item in value]}
    if kind is bytes or kind is bytearray:
        return {kind.__name__: value.hex()}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind is range:
        return {"range": [encode(part, depth) for part in (value.start, value.stop, value.step)]}
    if kind is array.array:
        return {"array.array": [value.typecode, [encode(item) for item in value]]}
    if id(kind) in VIEW_IDS:
        return {VIEWS[kind]: [encode(item, depth) for item in value]}
    if kind is slice and is_leaf(value):
        return {"slice": [encode(part) for part in (value.start, value.stop, value.step)]}
    if kind in _CONSTANTS:
        return {"constant": _CONSTANTS[kind]}
    return _encode_other(value, kind, depth)


def are_simple(items: list[Any]) -> bool:
    """Return whether every item is its own form."""
    kinds = set(map(id, map(type, items)))
    return kinds <= _SIMPLE_IDS or (kinds == _INT_ID and min(items) >= -_PLAIN_INT and max(items) < _PLAIN_INT)


def _encode_other(value: Any, kind: type, depth: int) -> Any:
    """Return the plain form of named tuples, of plain types of the standard library, and of iterators."""
    name = stdlib_name(kind)
    if name == "deque":
        return {"deque": [[encode(item, depth) for item in value], encode(value.maxlen)]}
    if name == "Decimal":
        return {"Decimal": str(value)}
    if name == "Fraction":
        return {"Fraction": [encode(value.numerator), encode(value.denominator)]}
    if name in MAPPINGS:
        refuse_attributes(value)
        return {name: [[encode(key, depth), encode(item, depth)] for key, item in value.items()]}
    zone = zone_of(value) if name in TIMES else None
    if name in _ZONES and (zone := zone_of(value)) is not None:
        return {name: zone}
    if name in TIMES and zone is not None:
        return {name: [getattr(value, part) for part in TIMES[name]] + zone}
    named = fields_of(kind)
    if named is not None:
        return {"namedtuple": [kind.__name__, named, [encode(item, depth) for item in tuple(value)]]}
    if hasattr(kind, "__next__") and _copy_iterators:
        return {"iterator": [encode(item, depth) for item in bounded(value)]}
    raise BadValue("type", f"a value of type {kind.__name__} cannot be sent; only plain values can")


_copy_iterators = True


def refuse_iterators() -> None:
    """Let iterators have no plain form: reading them would run code before the tests ask for it."""
    global _copy_iterators
    _copy_iterators = False


def bounded(iterator: Iterator[Any], most: int = 100_000) -> Iterator[Any]:
    """Yield the items of an iterator; raises `BadValue` if there are too many."""
    for count, item in enumerate(iterator):
        if count >= most:
            raise BadValue("size", f"an iterator with more than {most} items")
        yield item


def _decode(form: Any, depth: int) -> Any:
    kind = type(form)
    if kind in ATOMS:
        return form
    if depth >= MAX_DEPTH:
        raise BadValue("form", f"nested more than {MAX_DEPTH} deep")
    depth += 1
    if kind is list:
        return form if ATOMS.issuperset(map(type, form)) else [_decode(item, depth) for item in form]
    if kind is not dict or len(form) != 1:
        raise BadValue("form", "not a tagged value")
    ((tag, body),) = form.items()
    return _decode_tagged(tag, body, depth)


def _decode_tagged(tag: str, body: Any, depth: int) -> Any:
    if tag in ("int", "bytes", "bytearray", "Decimal", "constant"):
        return _decode_text(tag, body)
    if type(body) is not list:
        raise BadValue("form", f"the tag {tag[:20]!r} needs a list")
    if tag == "complex":
        return complex(_number(body[0]), _number(body[1]))
    if tag == "range":
        found = range(*[_integer(_decode(part, depth)) for part in body])
        _use((found.stop - found.start) // found.step)
        return found
    if tag == "slice":
        return slice(*[_decode(part, depth) for part in body])
    if tag == "array.array":
        return make_array(body[0], _decode(body[1], depth))
    if tag == "Fraction":
        return _imported(tag)(_integer(_decode(body[0], depth)), _integer(_decode(body[1], depth)))
    if tag == "namedtuple":
        name, fields, parts = body
        return namedtuple(name, tuple(fields))(*[_decode(part, depth) for part in parts])
    if tag in TIMES:
        parts = [_integer(part) for part in body[: len(TIMES[tag])]]
        rest = [_zone(part) for part in body[len(parts) :]]
        if tag not in ("datetime", "time"):
            return _imported(tag)(*parts, *rest)
        return _imported(tag)(*parts[:-1], *rest, fold=parts[-1])
    if tag in _ZONES:
        (part,) = body
        return _zone(part)
    if tag == "deque":
        return collections.deque([_decode(item, depth) for item in body[0]], body[1])
    items = [_decode(item, depth) for item in body]
    if tag in ("dict", "items"):
        pairs = dict(items)
        return pairs if tag == "dict" else pairs.items()
    if tag in MAPPINGS:
        if tag == "Counter":
            use_counts(items)
        return getattr(collections, tag)(dict(items))
    if tag == "keys":
        return dict.fromkeys(items).keys()
    if tag == "values":
        return dict(enumerate(items)).values()
    if tag in _SEQUENCES:
        return _SEQUENCES[tag](items)
    raise BadValue("form", f"unknown tag {tag[:20]!r}")


_SEQUENCES: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset, "iterator": iter}


def _decode_text(tag: str, body: Any) -> Any:
    if type(body) is not str:
        raise BadValue("form", f"the tag {tag} needs text")
    if tag == "int":
        if len(body) > _digits:
            raise BadValue("size", f"an integer of more than {_digits} digits")
        return int(body, 16)
    if tag == "Decimal":
        number = _imported(tag)(body)
        if number.is_finite() and len(body) + abs(number.adjusted()) > _digits:
            raise BadValue("size", f"a decimal number that is longer than {_digits} digits when it is written out")
        return number
    if tag == "constant":
        return CONSTANTS[body]
    return bytes.fromhex(body) if tag == "bytes" else bytearray.fromhex(body)


_items_left = _digits = math.inf  # of `MOST_ITEMS` for the values of a reply; `MOST_DIGITS`


def set_limits(items: float, digits: float) -> None:
    """Limit the items in ranges and counters, and the digits of a number, of the values that are decoded next."""
    global _items_left, _digits
    _items_left, _digits = items, digits


def use_counts(items: list[tuple[Any, Any]]) -> None:
    """Subtract the total of a counter from the items left; raises `BadValue` if they are used up."""
    _use(sum(count for _, count in items if type(count) is int and count > 0))


def _use(items: int) -> None:
    global _items_left
    _items_left -= max(0, items)
    if _items_left < 0:
        raise BadValue("size", f"ranges and counts of more than {MOST_ITEMS} items")


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise BadValue("form", "not a number")
    return value


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise BadValue("form", "not an integer")
    return value
