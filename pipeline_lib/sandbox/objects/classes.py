"""The classes of handles; see `handles`.

Promises: no code, class or text of the program is ever run in this process.  A program is asked only about its own
objects, never about plain values: where its ``__eq__`` or ``__lt__`` would have to decide, the comparison holds for
neither answer.  An object of a class that derives from a builtin has its content here, too, and is an object of a class
that derives from the same builtin, so all that the program's class does not define happens here.
"""

from __future__ import annotations

import builtins
import types
from typing import Any, Protocol

from pipeline_lib.sandbox import calls
from pipeline_lib.sandbox.calls import DESCRIPTION, CallFailed
from pipeline_lib.sandbox.imports import find
from pipeline_lib.sandbox.inside.shared import FORBIDDEN, HASH, OPERATORS, SEARCHED, SPECIAL
from pipeline_lib.sandbox.inside.values import BASES, FIXED_BASES, BadValue, base_of, owners


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


_WHERE = "__symposium_object__"  # owner and number, in every handle
_OWN = object()  # only code with this token may create classes
# Special attributes that may be read from the program.  The others must not reach it: a reader such as numpy would
# trust the answer.
READABLE = frozenset(f"__{name}__" for name in ("name", "qualname", "doc", "annotations", "wrapped", "members", "code"))
_COMPARISONS = frozenset(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
_GUARDED = OPERATORS | {"__contains__"}
_HASH, _SUBSCRIPT = "__symposium_hash__", "__class_getitem__"


class Owner(Protocol):
    """The part of `handles.Handles` that a handle uses."""

    receiving: bool  #: a message is being read, so the program cannot be asked

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

    def __dir__(cls) -> Any:
        return _do("dir", cls)

    def __bool__(cls) -> bool:
        return True


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

    def __dir__(self) -> Any:
        return _do("dir", self)

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


def _forwarder(name: str, strict: bool) -> Any:
    """Return the method of a handle's class that asks the program for a special method; see `make_class`."""

    def method(self: Any, *args: Any) -> Any:
        return _special(self, name, args)

    def guard(self: Any, other: Any, *rest: Any) -> Any:
        if not is_handle(other):
            raise CallFailed("error", f"{type(self).__name__} defines {name}, which is not asked about plain values")
        return _special(self, name, (other, *rest))

    def compare(self: Any, other: Any) -> Any:
        if where(self)[0].receiving or type(other).__module__ == "unittest.mock":
            return NotImplemented
        if is_handle(other) or other is None:  # which tells the program nothing
            return _special(self, name, (other,))
        raise CallFailed("error", f"{type(self).__name__} compares its objects itself, but not with plain values")

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
    if name == HASH:
        return _hash
    if name in _COMPARISONS:
        return compare
    return guard if strict and name in _GUARDED else method


def _hash(self: Any) -> int:
    """Return the hash that the program's class defines: as it was sent while a message is being read."""
    value = object.__getattribute__(self, _HASH) if where(self)[0].receiving else _special(self, HASH, ())
    if type(value) is not int:
        raise BadValue("type", f"a {type(self).__name__} without a hash")
    return hash(value)


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


def make_object(kind: Kind, owner: Owner, number: int, content: Any = None, hashed: Any = None) -> Any:
    """Return a handle of that class for the object of that number.

    Args:
        kind, owner, number: its class, and the object that it stands for.
        content: of an object whose class derives from one of `values.FIXED_BASES`.
        hashed: its hash, if its class defines that.
    """
    base = base_of(kind)
    if base in FIXED_BASES:
        if type(content) is not base:
            raise BadValue("form", "not the content of such an object")
        fixed: Any = base
        handle = fixed.__new__(kind, content)
    else:
        real: Any = base or next(part for part in kind.__mro__ if part.__module__ == "builtins")
        handle = real.__new__(kind)
    object.__setattr__(handle, _WHERE, (owner, number))
    object.__setattr__(handle, _HASH, hashed)
    return handle


def note_hash(handle: Any, hashed: Any) -> None:
    """Store the current hash of an object."""
    object.__setattr__(handle, _HASH, hashed)


def make_class(
    name: str,
    module: str,
    path: str,
    parents: list[Kind],
    special: list[str],
    base: type | None,
    hidden: list[str],
    of_class: list[str],
    strict: bool,
    owner: Owner,
    number: int,
) -> Kind:
    """Return the class that stands for one of the program's.

    Args:
        name, module, path: of the class, as the program reports them.
        parents: the classes that stand for its bases.
        special: names of the special methods that are the program's own, and those in `FORBIDDEN` that are None.
        base: the builtin that it derives from.
        hidden: names of this builtin, other than special ones, that it defines itself.
        of_class: those of `OF_CLASSES` that the class itself has.
        strict: its operators accept only objects of the program.  In tests of a function the other operand is often
            the expected value (``abs(f(x) - 0.5) < 1e-6``), which no program may learn.
        owner, number: as of `make_object`.
    """
    marks = (SEARCHED, *FORBIDDEN)
    space: dict[str, Any] = {method: _forwarder(method, strict) for method in special if method not in marks}
    if SEARCHED in special:
        space["__contains__"] = lambda self, item: item in iter(self)
    found = {} if base is None else owners(base)
    space = {method: vars(found[method])[method] for method in (*SPECIAL, HASH) if method in found} | space
    space |= {method: _hidden(method) for method in hidden}
    space |= {"__module__": "program", "__doc__": _Text()}
    real = vars(builtins).get(name, _INTERNAL.get(name)) if module == "builtins" else find(module, path)
    if real is types.CoroutineType:
        space |= _COROUTINE
    bases: list[type] = [*parents] or [Handle]
    if base is not None and not any(issubclass(parent, base) for parent in parents):
        bases.append(base)
    if isinstance(real, type) and issubclass(real, Exception):
        bases = [Handle, real]
        own = {"args": property(_arguments), "__str__": _text_of(real), "__repr__": _written}
        space = own | {name: _forwarded(name) for name in _fields(real)} | space
    elif isinstance(real, type) and real is not object and (base is not None or not issubclass(real, BASES)):
        space["__class__"] = property(lambda self: real)  # for isinstance
    space |= {FORBIDDEN[mark]: None for mark in special if mark in FORBIDDEN}
    if _SUBSCRIPT in of_class:
        space[_SUBSCRIPT] = classmethod(lambda cls, key: _do("subscript", cls, key))
    if not (type(name) is str and name.isidentifier() and len(name) <= 100):
        name = "object"
    meta = _metaclass(bases, {method: _forwarder(method, strict) for method in of_class if method != _SUBSCRIPT})
    try:
        kind: Kind = meta(name, tuple(bases), space, own=_OWN)
    except TypeError:  # layout conflict between the bases
        kind = meta(name, tuple(bases[:1]), space, own=_OWN)
    type.__setattr__(kind, _WHERE, (owner, number))
    return kind


def _metaclass(bases: list[type], own: dict[str, Any]) -> Any:
    """Return a metaclass with these methods, for a class with these bases."""
    above = dict.fromkeys(type(base) for base in bases if isinstance(base, Kind))
    lowest = [kind for kind in above if not any(other is not kind and issubclass(other, kind) for other in above)]
    return type("Kind", tuple(lowest), own) if own or len(lowest) > 1 else lowest[0]


def _hidden(name: str) -> property:
    return property(lambda thing: _read(thing, name))


def _fields(kind: type[Exception]) -> list[str]:
    """Return the names of the attributes that an exception stores outside of its ``__dict__``, such as ``errno``."""
    kept = (types.MemberDescriptorType, types.GetSetDescriptorType)
    return [name for base in kind.__mro__ for name, part in vars(base).items() if type(part) in kept and name[0] != "_"]


def _forwarded(name: str) -> property:
    return property(lambda thing: _do("get", thing, name), lambda thing, value: _do("set", thing, name, value))


def _arguments(error: Any) -> Any:
    return BaseException.args.__get__(error) if was_raised(error) else _do("get", error, "args")  # type: ignore[attr-defined]


def _written(error: Any) -> str:
    args = error.args
    return f"{type(error).__name__}({args[0]!r})" if len(args) == 1 else f"{type(error).__name__}{args!r}"


def _text_of(kind: type[Exception]) -> Any:
    """Return the ``__str__`` of an exception that stays in the program."""
    return lambda error: kind.__str__(error) if was_raised(error) else _special(error, "__str__", ())
