"""The classes of handles; see `handles`.

Promises: no code, class or text of the program is ever run in this process.  A program is asked only about its own
objects, never about plain values: a handle is not equal to any plain value and has no order with one; the program's
``__eq__`` is not asked.  Objects that derive from a container are compared here, by their content.
"""

from __future__ import annotations

import builtins
import collections
import operator
import types
from typing import Any, Protocol

from pipeline_lib.sandbox.handle_exceptions import was_raised
from pipeline_lib.sandbox.imports import find
from pipeline_lib.sandbox.inside.shared import OPERATORS, UNHASHABLE
from pipeline_lib.sandbox.recorder import CallFailed

_WHERE = "__symposium_object__"  # owner and number, in every handle
_OWN = object()  # only code with this token may create classes
# Special attributes that may be read from the program.  The others must not reach it: a reader such as numpy would
# trust the answer.
READABLE = frozenset(f"__{name}__" for name in ("name", "qualname", "doc", "annotations", "wrapped", "members", "code"))
_COMPARISONS = frozenset(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
# These types are sent as values: no handle may pass for one of them.
_PLAIN_MODULES = ("builtins", "collections", "datetime", "decimal", "fractions", "numpy")
_PLAIN = (int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, collections.deque)


class Owner(Protocol):
    """The part of `handles.Handles` that a handle uses."""

    def do(self, operation: str, *parts: Any) -> Any:
        """Have the program execute an operation on its own objects."""
        ...


class Kind(type):
    """The metaclass of handles: it forwards operations on a class to the program's class."""

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any], own: object = None) -> Any:
        """Return a class; raises TypeError outside of this module."""
        if own is not _OWN:
            raise TypeError("tests cannot derive from a class that stays in the program")
        return super().__new__(mcs, name, bases, space)

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], own: object = None) -> None:
        super().__init__(name, bases, space)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Call the program's class and return the result."""
        return _call(cls, args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        return _read(cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        _do("set", cls, name, value)

    def __delattr__(cls, name: str) -> None:
        _do("delete", cls, name)

    def __bool__(cls) -> bool:
        return True

    def __iter__(cls) -> Any:
        return _special(cls, "__iter__", ())

    def __len__(cls) -> Any:
        return _special(cls, "__len__", ())

    def __getitem__(cls, key: Any) -> Any:
        return _special(cls, "__getitem__", (key,))


class _Text:
    """Makes ``__doc__`` of a handle or its class the program's documentation."""

    def __get__(self, thing: Any, kind: Any) -> Any:
        return _read(kind if thing is None else thing, "__doc__")


class Handle(metaclass=Kind, own=_OWN):
    """An object of the program."""

    def __getattr__(self, name: str) -> Any:
        return _read(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") and name.endswith("__"):
            object.__setattr__(self, name, value)  # traceback and notes of an exception
        else:
            _do("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        _do("delete", self, name)

    def __copy__(self) -> Any:
        return _do("copy", self, False)

    def __deepcopy__(self, memo: Any) -> Any:
        return _do("copy", self, True)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("an object of the program cannot be pickled")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object>"

    def __hash__(self) -> int:
        return where(self)[1]  # an address would change the order in sets in every run

    __dict__ = property(lambda self: _do("get", self, "__dict__"))


def where(thing: Any) -> tuple[Owner, int]:
    """Return the owner of a handle or class, and the number of the object that it stands for."""
    kind: Any = type if isinstance(thing, Kind) else object
    found: tuple[Owner, int] = kind.__getattribute__(thing, _WHERE)
    return found


def is_class(value: Any) -> bool:
    """Return whether a value stands for a class of the program."""
    return isinstance(value, Kind)


def is_handle(value: Any) -> bool:
    """Return whether a value stands for anything that stays in the program."""
    return issubclass(type(value), Handle | Kind)


def _do(operation: str, *parts: Any) -> Any:
    return where(parts[0])[0].do(operation, *parts)


def _read(thing: Any, name: str) -> Any:
    if name.startswith("__") and name.endswith("__") and name not in READABLE:
        raise AttributeError(name)
    return _do("get", thing, name)


def _call(thing: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _do("call", thing, args, tuple(kwargs.items()))


def _special(thing: Any, name: str, args: tuple[Any, ...]) -> Any:
    known, value = _do("special", thing, name, args)
    if name == "__next__" and known == "end":
        raise StopIteration(value)
    return value if known is True else NotImplemented


def _forwarder(name: str, flat: bool, strict: bool) -> Any:
    """Return the method of a handle's class that asks the program for a special method; see `make_class`."""

    def method(self: Any, *args: Any) -> Any:
        return _special(self, name, args)

    def combine(self: Any, other: Any, *rest: Any) -> Any:
        return _special(self, name, (other, *rest)) if is_handle(other) else NotImplemented

    def compare(self: Any, other: Any) -> Any:
        if flat:
            mine, theirs = _do("plain", self), _do("plain", other) if _is_flat(other) else other
            return NotImplemented if is_handle(theirs) else getattr(operator, name)(mine, theirs)
        if is_handle(other) or other is None:  # which tells the program nothing
            return _special(self, name, (other,))
        if type(other).__module__ in _PLAIN_MODULES:  # neither equal nor unequal: either could hold in plain Python
            raise CallFailed("error", f"{type(self).__name__} compares its objects itself, but not with plain values")
        return NotImplemented

    def leave(self: Any, kind: Any, *rest: Any) -> Any:
        known = kind if vars(builtins).get(getattr(kind, "__name__", "")) is kind else Exception
        return _special(self, name, (None if kind is None else known, None, None))

    def wait(self: Any) -> Any:
        return _awaited(self)
        yield

    if name == "__call__":
        return lambda self, *args, **kwargs: _call(self, args, kwargs)
    if name in ("__exit__", "__aexit__"):
        return leave
    if name == "__await__":
        return wait
    if name in _COMPARISONS:
        return compare
    return combine if strict and name in OPERATORS else method


def _awaited(thing: Any) -> Any:
    word, value = _do("await", thing)
    if word == "end":
        raise StopAsyncIteration
    return value


def _send(self: Any, value: Any) -> Any:
    """Run the coroutine to its end in one step of the event loop."""
    raise StopIteration(_awaited(self))


def _throw(self: Any, *error: Any) -> Any:
    raise error[0]


_COROUTINE: dict[str, Any] = {"send": _send, "throw": _throw, "close": lambda self: None}
# Classes of the interpreter that have no name in builtins.
_INTERNAL = {
    kind.__name__: kind
    for kind in (types.FunctionType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
}


def _is_flat(value: Any) -> bool:
    return isinstance(type(value), Kind) and bool(type.__getattribute__(type(value), "__symposium_flat__"))


type.__setattr__(Handle, "__symposium_flat__", False)


def make_object(kind: Kind, owner: Owner, number: int) -> Any:
    """Return a handle of that class for the object of that number."""
    base: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    handle = base.__new__(kind)
    object.__setattr__(handle, _WHERE, (owner, number))
    return handle


def make_class(
    name: str,
    module: str,
    path: str,
    parents: list[Kind],
    special: list[str],
    flat: bool,
    strict: bool,
    owner: Owner,
    number: int,
) -> Kind:
    """Return the class that stands for one of the program's.

    Args:
        name, module, path: of the class, as the program reports them.
        parents: the classes that stand for its bases.
        special: names of the special methods that are the program's own; `UNHASHABLE` if its objects have no hash.
        flat: it derives from a container.
        strict: its operators accept only objects of the program.  In tests of a function the other operand is often
            the expected value (``abs(f(x) - 0.5) < 1e-6``), which no program may learn.
        owner, number: as of `make_object`.
    """
    space: dict[str, Any] = {method: _forwarder(method, flat, strict) for method in special if method != UNHASHABLE}
    if flat:
        space |= {method: _forwarder(method, True, strict) for method in _COMPARISONS}
    space |= {
        "__hash__": None if UNHASHABLE in special else Handle.__hash__,
        "__module__": "program",
        "__doc__": _Text(),
        "__symposium_flat__": flat,
    }
    real = vars(builtins).get(name, _INTERNAL.get(name)) if module == "builtins" else find(module, path)
    if real is types.CoroutineType:
        space |= _COROUTINE
    bases: list[type] = [*parents] or [Handle]
    if isinstance(real, type) and issubclass(real, Exception):
        bases = [Handle, real]
        space |= {name: _forwarded(name) for name in _fields(real)}
        space |= {"args": property(_arguments), "__str__": _text_of(real)}
    elif isinstance(real, type) and real is not object and not issubclass(real, _PLAIN):
        space["__class__"] = property(lambda self: real)  # for isinstance
    if not (type(name) is str and name.isidentifier() and len(name) <= 100):
        name = "object"
    try:
        kind = Kind(name, tuple(bases), space, own=_OWN)
    except TypeError:  # layout conflict between the bases
        kind = Kind(name, tuple(bases[:1]), space, own=_OWN)
    type.__setattr__(kind, _WHERE, (owner, number))
    return kind


def _fields(kind: type[Exception]) -> list[str]:
    """Return the names of the attributes that an exception stores outside of its ``__dict__``, such as ``errno``."""
    kept = (types.MemberDescriptorType, types.GetSetDescriptorType)
    return [name for base in kind.__mro__ for name, part in vars(base).items() if type(part) in kept and name[0] != "_"]


def _forwarded(name: str) -> property:
    return property(lambda thing: _do("get", thing, name), lambda thing, value: _do("set", thing, name, value))


def _arguments(error: Any) -> Any:
    return BaseException.args.__get__(error) if was_raised(error) else _do("get", error, "args")  # type: ignore[attr-defined]


def _text_of(kind: type[Exception]) -> Any:
    """Return the ``__str__`` of an exception that stays in the program."""
    return lambda error: kind.__str__(error) if was_raised(error) else _special(error, "__str__", ())
