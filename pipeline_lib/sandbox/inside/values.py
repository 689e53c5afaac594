"""Plain values, the only thing that crosses between the judge and a program.

To the program they go as ``marshal`` data, which is quick to read and comes from the judge, who is trusted.  Back they
come as tagged JSON.  Promises: whatever bytes arrive from a program, `read_reply` and `decode` return builtins
(``None``, numbers, text, bytes, containers, and a few plain types of the standard library) or raise `BadValue`; no
class, method or code of the sender is ever run.  Subclasses are flattened to the builtin they derive from, so an
overridden ``__eq__`` stays behind.

Values are copies, unless a `common.Common` gives containers numbers.  An object without a plain form raises `BadValue`
at the sender.
"""

from __future__ import annotations

import collections
import itertools
import json
import keyword
import marshal
import math
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline_lib.sandbox.inside.common import Common

MAX_DEPTH = 100  # containers within containers
# What a value may make of itself when it is used: items of its ranges and counters together; digits of each number.
MOST_ITEMS = 1_000_000
MOST_DIGITS = 100_000
_MOST_NESTED = 5 * MAX_DEPTH + 8  # brackets within brackets: a dict is a list of pairs, with a tag and a number
_USUAL_DIGITS = 4300  # of a decimal integer; an encoded one has at most 19
_PLAIN_INT = 1 << 63
_SIMPLE = frozenset({type(None), bool, float, str})
_INT = {int}
ATOMS = _SIMPLE | _INT
CELLS = frozenset({list, dict, set, bytearray, collections.deque, collections.OrderedDict, collections.Counter})
_MARSHAL_VERSION = 2  # read by every Python 3
BROKEN = (ValueError, TypeError, KeyError, IndexError, RecursionError, ArithmeticError, AttributeError, MemoryError)
_json: Any = json.encoder
# What json.JSONEncoder makes anew for every text it writes: no indent, sorting or skipping, NaN as such.
_pieces = _json.c_make_encoder(
    None, json.JSONEncoder().default, _json.encode_basestring_ascii, None, ":", ",", False, False, True
)
_from_json = json.JSONDecoder(parse_constant=float).decode  # every NaN is another one, equal to none


class BadValue(Exception):
    """A value that has no plain form, or bytes that are none; ``kind`` is ``type``, ``size`` or ``form``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def write_request(*parts: Any) -> bytes:
    """Return the bytes of a request; its parts are what ``marshal`` takes."""
    return marshal.dumps(parts, _MARSHAL_VERSION)


def write_call(
    number: int, args: list[Any], kwargs: dict[str, Any], common: Common | None = None, news: Any = None
) -> bytes:
    """Return the request of a call; raises `BadValue` for arguments without a plain form.

    Args:
        number: of the call.
        args, kwargs: its arguments.
        common: gets to know the containers in them; without it they are copies.
        news: what has happened to the containers that it knows; None for a call that brings and takes copies.
    """
    forms, named = encode_content(args, 0, common), encode_content(kwargs, 0, common)
    try:
        # Then the program need not decode them.
        plain = not kwargs and (common is None or not common.cells) and bool(forms == args)
    except ValueError:  # arrays are neither equal nor not
        plain = False
    return write_request(number, news, plain, forms, {} if plain else named)


def read_request(data: bytes) -> Any:
    """Return the parts of a request.  Only for bytes from the judge: ``marshal`` must not read a program's."""
    return marshal.loads(data)


def write_reply(limit: int, *parts: Any) -> bytes:
    """Return the bytes of a reply whose parts are forms made by `encode`; raises `BadValue` beyond ``limit`` bytes."""
    text = "".join(_pieces(parts, 0))
    if len(text) > limit:
        raise BadValue("size", f"the value needs {len(text)} bytes, {limit} are allowed")
    return text.encode("ascii")


def read_reply(data: bytes) -> list[Any]:
    """Return the parts of a reply: a number, a kind, and what belongs to it, not yet decoded.

    All values of a reply together may make no more than `MOST_ITEMS` of their ranges and counters.

    Raises:
        BadValue: the bytes are no such thing.
    """
    if data.count(b"[") + data.count(b"{") > _MOST_NESTED and _nested_too_deep(data):
        raise BadValue("form", "nested too deep")
    bound(MOST_ITEMS, MOST_DIGITS)
    allowed = sys.get_int_max_str_digits()
    try:
        sys.set_int_max_str_digits(_USUAL_DIGITS)  # tests may have raised it
        parts = _from_json(data.decode())
    except BROKEN as error:
        raise BadValue("form", f"not JSON: {type(error).__name__}") from None
    finally:
        sys.set_int_max_str_digits(allowed)
    if type(parts) is not list or len(parts) < 2 or type(parts[0]) is not int or type(parts[1]) is not str:
        raise BadValue("form", "not a reply")
    return parts


def _nested_too_deep(data: bytes) -> bool:
    """Return whether brackets are nested deeper than in a value; reading them would, if tests allow it any depth."""
    steps = map(_STEPS.__getitem__, _NO_BRACKETS.sub(b"", data))
    return max(itertools.accumulate(steps), default=0) > _MOST_NESTED


_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[^][{}"]+')


def text(form: Any) -> str:
    """Return a form as text."""
    return "".join(_pieces(form, 0))


def decode(form: Any, common: Common | None = None) -> Any:
    """Return the value that ``form`` stands for; raises `BadValue` for anything `encode` would not have made.

    Args:
        form: made by `encode`.
        common: the containers that are known by number, if the form may speak of any.
    """
    try:
        return _decode(form, 0, common)
    except BROKEN as error:
        raise BadValue("form", f"not a plain value: {type(error).__name__}") from None


def encode(value: Any, depth: int = 0, common: Common | None = None) -> Any:
    """Return ``value`` as something the ``json`` module writes; containers other than lists carry a tag.

    Args:
        value: what to send.
        depth: of the containers around it.
        common: gives containers numbers, so that they keep their identity; without it they become copies.
    """
    kind = type(value)
    if kind is int:
        return value if -_PLAIN_INT <= value < _PLAIN_INT else {"int": hex(value)}
    if kind in ATOMS:
        return value
    if depth >= MAX_DEPTH:
        raise BadValue("size", f"the value is nested more than {MAX_DEPTH} deep")
    if common is not None and kind in CELLS:
        known = common.number(value)
        number = common.add(value) if known is None else known
        return {"cell": [number, encode_content(value, depth, common)] if known is None else [number]}
    return encode_content(value, depth, common)


def encode_content(value: Any, depth: int = 0, common: Common | None = None) -> Any:
    """Return the form of a container's content, whether or not the container itself has a number."""
    kind = type(value)
    if kind in ATOMS or kind is int:
        return encode(value)  # what a subclass has been flattened to
    depth += 1
    if kind is list:
        kinds = set(map(type, value))
        if kinds <= _SIMPLE or (kinds == _INT and min(value) >= -_PLAIN_INT and max(value) < _PLAIN_INT):
            return value[:]  # not the list itself: who holds it is counted
        return [encode(item, depth, common) for item in value]
    if kind is tuple:
        return {"tuple": [encode(item, depth, common) for item in value]}
    if kind is dict:
        return {"dict": [[encode(key, depth, common), encode(item, depth, common)] for key, item in value.items()]}
    if kind in (set, frozenset):
        return {kind.__name__: [encode(item, depth, common) for item in value]}
    if kind in (bytes, bytearray):
        return {kind.__name__: value.hex()}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind is range:
        return {"range": [encode(part, depth) for part in (value.start, value.stop, value.step)]}
    if kind in VIEWS:
        return {VIEWS[kind]: [encode(item, depth, common) for item in value]}
    return _encode_other(value, kind, depth, common)


VIEWS = {
    type(getattr(kind(), name)()): name
    for kind in (dict, collections.OrderedDict)
    for name in ("keys", "values", "items")
}
_MAPPINGS = ("OrderedDict", "Counter")  # dicts that compare or look up in a way of their own


def _encode_other(value: Any, kind: type, depth: int, common: Common | None) -> Any:
    """Return the plain form of subclasses, of plain types of the standard library, of arrays and of iterators."""
    name = _stdlib_name(kind)
    if name == "deque":
        return {"deque": [[encode(item, depth, common) for item in value], encode(value.maxlen)]}
    if name == "Decimal":
        return {"Decimal": str(value)}
    if name == "Fraction":
        return {"Fraction": [encode(value.numerator), encode(value.denominator)]}
    if name in _MAPPINGS:
        return {name: encode_content(dict(value), depth - 1, common)["dict"]}
    zone = _zone(value) if name in _TIMES else None
    if name in _TIMES and zone is not None:
        return {name: [getattr(value, part) for part in _TIMES[name]] + zone}
    named = fields_of(kind)
    if named is not None:
        return {"namedtuple": [kind.__name__, named, [encode(item, depth, common) for item in tuple(value)]]}
    for base in () if behaves_otherwise(kind) else _BASES:
        if isinstance(value, base):
            return encode_content(_flatten(value, base), depth - 1, common)
    if hasattr(kind, "__next__") and _copy_iterators:
        return {"iterator": [encode(item, depth, common) for item in _bounded(value)]}
    raise BadValue("type", f"a value of type {kind.__name__} cannot leave the program; only plain values can")


_BASES = (int, float, str, complex, list, tuple, dict, set, frozenset, bytes, bytearray)
_TOLD = ("eq", "ne", "lt", "le", "gt", "ge", "hash", "bool", "len", "iter", "getitem", "contains", "str", "repr")
_copy_iterators = True


def keep_iterators() -> None:
    """Let iterators have no plain form: reading them here would run code that tests may not want to run yet."""
    global _copy_iterators
    _copy_iterators = False


@lru_cache(maxsize=256)
def behaves_otherwise(kind: type) -> bool:
    """Return whether a class that derives from a builtin would tell tests something else than the builtin does.

    That is so of numpy's numbers, of ``defaultdict``, and of classes which are not the standard library's and have
    methods of their own instead of the builtin's.
    """
    if kind.__module__ == "numpy" or kind is collections.defaultdict:
        return not issubclass(kind, (str, bytes, complex))
    own = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in sys.stdlib_module_names]
    told = {f"__{name}__" for name in _TOLD}
    told.update(name for base in _BASES if issubclass(kind, base) for name in dir(base) if not name.startswith("_"))
    return any(name in told for base in own for name in vars(base))


def fields_of(kind: type) -> list[str] | None:
    """Return the fields of a class made by ``collections.namedtuple`` or derived from one, else None."""
    if not issubclass(kind, tuple):
        return None
    fields = getattr(kind, "_fields", None)
    if not isinstance(fields, tuple) or not hasattr(kind, "_make"):
        return None
    return [str(name) for name in fields]


@lru_cache(maxsize=64)
def namedtuple(name: str, fields: tuple[str, ...]) -> Any:
    """Return a class made by ``collections.namedtuple``; raises for what it would not take."""
    if len(fields) > 255 or len(name) > 100 or not name.isidentifier() or keyword.iskeyword(name):
        raise BadValue("form", "not a named tuple")
    return collections.namedtuple(name, fields)  # which checks the fields


def _flatten(value: Any, base: Any) -> Any:
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


def _bounded(iterator: Iterator[Any], most: int = 100_000) -> Iterator[Any]:
    for count, item in enumerate(iterator):
        if count >= most:
            raise BadValue("size", f"an iterator with more than {most} items")
        yield item


_PLAIN_TYPES = (
    *(("decimal", "Decimal"), ("fractions", "Fraction")),
    *(("collections", name) for name in ("deque", *_MAPPINGS)),
    *(("datetime", name) for name in ("date", "datetime", "time", "timedelta")),
)


_TIMES = {
    "date": ("year", "month", "day"),
    "datetime": ("year", "month", "day", "hour", "minute", "second", "microsecond"),
    "time": ("hour", "minute", "second", "microsecond"),
    "timedelta": ("days", "seconds", "microseconds"),
}
_WHOLE = (*ATOMS, bytes, complex, range)
_WHOLE_NAMES = ("Decimal", "Fraction", *_TIMES)
WHOLE_TAGS = ("int", "bytes", "complex", "range", *_WHOLE_NAMES)


def is_whole(value: Any) -> bool:
    """Return whether a value has a plain form and holds no other values."""
    kind = type(value)
    return kind in _WHOLE or (_stdlib_name(kind) in _WHOLE_NAMES and _zone(value) is not None)


def _zone(value: Any) -> list[int] | None:
    """Return the microseconds by which a time is ahead of UTC, in a list that is empty for one that does not say so.

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


def _stdlib_name(kind: type) -> str | None:
    """Return the name of a plain type of the standard library if ``kind`` is exactly that type."""
    for module, name in _PLAIN_TYPES:
        if kind.__name__ == name and getattr(sys.modules.get(module), name, None) is kind:
            return name
    return None


def _decode(form: Any, depth: int, common: Common | None) -> Any:
    kind = type(form)
    if kind in ATOMS:
        return form
    if depth >= MAX_DEPTH:
        raise BadValue("form", f"nested more than {MAX_DEPTH} deep")
    depth += 1
    if kind is list:
        return form if ATOMS.issuperset(map(type, form)) else [_decode(item, depth, common) for item in form]
    if kind is not dict or len(form) != 1:
        raise BadValue("form", "not a tagged value")
    ((tag, body),) = form.items()
    return _decode_tagged(tag, body, depth, common)


def _decode_tagged(tag: str, body: Any, depth: int, common: Common | None) -> Any:
    if tag in ("int", "bytes", "bytearray", "Decimal"):
        return _decode_text(tag, body)
    if type(body) is not list:
        raise BadValue("form", f"the tag {tag[:20]!r} needs a list")
    if tag == "cell" and common is not None:
        return common.arrive(body[0], _decode(body[1], depth - 1, common)) if len(body) == 2 else common.known(*body)
    if tag == "complex":
        return complex(_number(body[0]), _number(body[1]))
    if tag == "range":
        found = range(*[_integer(_decode(part, depth, None)) for part in body])
        _use((found.stop - found.start) // found.step)
        return found
    if tag == "Fraction":
        from fractions import Fraction

        return Fraction(_integer(_decode(body[0], depth, None)), _integer(_decode(body[1], depth, None)))
    if tag == "namedtuple":
        name, fields, parts = body
        return namedtuple(name, tuple(fields))(*[_decode(part, depth, common) for part in parts])
    if tag in _TIMES:
        import datetime

        parts = [_integer(part) for part in body]
        if len(parts) == len(_TIMES[tag]) + 1 and tag in ("datetime", "time"):
            zone = datetime.timezone(datetime.timedelta(microseconds=parts.pop()))
            return getattr(datetime, tag)(*parts, tzinfo=zone)
        return getattr(datetime, tag)(*parts)
    if tag == "deque":
        return collections.deque([_decode(item, depth, common) for item in body[0]], body[1])
    items = [_decode(item, depth, common) for item in body]
    if tag in ("dict", "items"):
        pairs = dict(items)
        return pairs if tag == "dict" else pairs.items()
    if tag in _MAPPINGS:
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
        from decimal import Decimal

        number = Decimal(body)
        if number.is_finite() and len(body) + abs(number.adjusted()) > _digits:
            raise BadValue("size", f"a decimal number that is longer than {_digits} digits when it is written out")
        return number
    return bytes.fromhex(body) if tag == "bytes" else bytearray.fromhex(body)


_room = _digits = math.inf  # what is left of `MOST_ITEMS` to the values of a reply; `MOST_DIGITS`


def bound(items: float, digits: float) -> None:
    """Allow the values that are decoded next so many items in ranges and counters, and so many digits in a number."""
    global _room, _digits
    _room, _digits = items, digits


def use_counts(items: list[tuple[Any, Any]]) -> None:
    """Count what a counter's counts make of themselves; raises `BadValue` beyond what is allowed."""
    _use(sum(count for _, count in items if type(count) is int and count > 0))


def _use(items: int) -> None:
    global _room
    _room -= max(0, items)
    if _room < 0:
        raise BadValue("size", f"ranges and counts of more than {MOST_ITEMS} items")


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise BadValue("form", "not a number")
    return value


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise BadValue("form", "not an integer")
    return value
