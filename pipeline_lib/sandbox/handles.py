"""Handles: what tests hold instead of a program's objects and classes.

An object without a plain form stays in the program's process.  The tests get a handle: reading an attribute, calling,
iterating and operators are sent to the program as operations on the object's number, and their values come back as any
values do.  A class of the program becomes a class here, with the same name and the same bases, exceptions among them,
so that ``isinstance``, ``except`` and ``assertRaises`` are decided here.

Promises: no code, class or text of the program is ever run in this process.  A program is asked about its own objects
alone, never about plain values: a handle is equal to no plain value and has no order with one, whatever the program's
``__eq__`` would say.  What derives from a container is compared here, by its content.
"""

from __future__ import annotations

import builtins
import collections
import operator
import sys
import types
import weakref
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

from pipeline_lib.sandbox import calls
from pipeline_lib.sandbox.inside import values
from pipeline_lib.sandbox.inside.folder import Folder
from pipeline_lib.sandbox.inside.recorder import CallFailed, NoAnswer
from pipeline_lib.sandbox.inside.shared import SPECIAL, Shared, adopted

_WHERE = "__symposium_object__"  # owner and number, in every handle
_OWN = object()  # what only this module creates classes with
_MOST_CLASSES = 1000
# What may be read of an object although Python itself gives it a meaning; the rest must not reach the program, for a
# reader such as numpy would believe it.
_READABLE = frozenset(f"__{name}__" for name in ("name", "qualname", "doc", "annotations", "wrapped", "members"))
_COMPARISONS = frozenset(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
# What travels by itself: no handle may pass for one of these.
_PLAIN = (int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, collections.deque)
_UNTRUSTED = ("unittest", "test", "ctypes")  # whose exceptions and classes mean something to whoever runs tests


class _Kind(type):
    """The class of a handle's class: what is done to it is done to the program's class."""

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any], own: object = None) -> Any:
        if own is not _OWN:
            raise TypeError("tests cannot derive from a class that stays in the program")
        return super().__new__(mcs, name, bases, space)

    def __init__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any], own: object = None) -> None:
        super().__init__(name, bases, space)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
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
    """The documentation of an object or a class, which is the program's own."""

    def __get__(self, thing: Any, kind: Any) -> Any:
        return _read(kind if thing is None else thing, "__doc__")


class Handle(metaclass=_Kind, own=_OWN):
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

    __hash__ = object.__hash__
    __dict__ = property(lambda self: _do("get", self, "__dict__"))


def _where(thing: Any) -> tuple[Handles, int]:
    kind: Any = type if isinstance(thing, _Kind) else object
    found: tuple[Handles, int] = kind.__getattribute__(thing, _WHERE)
    return found


def is_class(value: Any) -> bool:
    """Return whether a value stands for a class of the program."""
    return isinstance(value, _Kind)


def _is_handle(value: Any) -> bool:
    return issubclass(type(value), Handle | _Kind)


def _do(operation: str, *parts: Any) -> Any:
    return _where(parts[0])[0].do(operation, *parts)


def _read(thing: Any, name: str) -> Any:
    if name.startswith("__") and name.endswith("__") and name not in _READABLE:
        raise AttributeError(name)
    return _do("get", thing, name)


def _call(thing: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _do("call", thing, args, tuple(kwargs.items()))


def _special(thing: Any, name: str, args: tuple[Any, ...]) -> Any:
    known, value = _do("special", thing, name, args)
    if name == "__next__" and known == "end":
        raise StopIteration(value)
    return value if known is True else NotImplemented


def _forwarder(name: str, flat: bool) -> Any:
    """Return the method of a handle's class that asks the program for a special method."""

    def method(self: Any, *args: Any) -> Any:
        return _special(self, name, args)

    def compare(self: Any, other: Any) -> Any:
        if flat:
            mine, theirs = _do("plain", self), _do("plain", other) if _is_flat(other) else other
            return NotImplemented if _is_handle(theirs) else getattr(operator, name)(mine, theirs)
        return _special(self, name, (other,)) if _is_handle(other) else NotImplemented

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
    return compare if name in _COMPARISONS else method


def _awaited(thing: Any) -> Any:
    word, value = _do("await", thing)
    if word == "end":
        raise StopAsyncIteration
    return value


def _send(self: Any, value: Any) -> Any:
    """Do what the event loop wants of a coroutine: all of it in one step."""
    raise StopIteration(_awaited(self))


def _throw(self: Any, *error: Any) -> Any:
    raise error[0]


_COROUTINE: dict[str, Any] = {"send": _send, "throw": _throw, "close": lambda self: None}
# Classes of the interpreter that are no names of builtins.
_INTERNAL = {
    kind.__name__: kind
    for kind in (types.FunctionType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
}


def _is_flat(value: Any) -> bool:
    return isinstance(type(value), _Kind) and bool(type.__getattribute__(type(value), "__symposium_flat__"))


type.__setattr__(Handle, "__symposium_flat__", False)


class Handles(Shared):
    """The handles of one process of a program.

    Args:
        ask: sends an operation with its message to the program and returns the root of what comes back.
        lenient: whether the program's own ``__contains__`` counts, as where its classes are what is tested.
        folder: the tests' scratch folder if the program is to have its content in its own.

    Attributes:
        ended: the process is no more, and its objects are gone.
    """

    def __init__(self, ask: Callable[[str, Any], Any], lenient: bool, folder: Folder | None) -> None:
        super().__init__(1)
        self.ask = ask
        self.folder = folder
        self.ended = False
        self._special = SPECIAL if lenient else SPECIAL - {"__contains__"}
        self._handles: dict[int, weakref.ref[Any]] = {}
        self._classes: dict[int, _Kind] = {}
        self._functions: dict[int, Any] = {}
        self._function_numbers: dict[int, int] = {}
        self._gone: list[int] = []  # handles that are no more
        self._dropped: list[int] = []  # containers likewise

    def do(self, operation: str, *parts: Any) -> Any:
        """Have the program do something to objects of its own and return the value; raises `NoAnswer` without one."""
        if self.ended:
            raise NoAnswer("error", "the object was in a process of the program that has ended")
        return self.ask(operation, self.message(*parts))

    def take_over(self, cells: dict[int, Any], gone: list[int]) -> None:
        """Go on with containers that both sides know, but for those that the program has to forget."""
        self.adopt(cells)
        self._dropped = [adopted(number) for number in gone]

    def message(self, *parts: Any) -> list[Any]:
        """Return the message that brings ``parts``; raises `NoAnswer` for what cannot be sent."""
        try:
            packed = self.pack(*parts)
            self._drop()
            return [*packed, self._dropped, None if self.folder is None else self.folder.changes()]
        except values.BadValue as error:
            raise NoAnswer("error", f"the tests pass what cannot be sent: {error}") from None
        finally:
            self._dropped = []

    def arrived(self, message: Any) -> list[Any]:
        """Return the roots of a message of the program; raises `BadValue` for anything that is none."""
        try:
            forms, states, classes, files = message
            if self.folder is not None:
                self.folder.apply(files)
            for description in classes:
                self._describe(*description)
        except values.BROKEN as error:
            raise values.BadValue("form", f"not a message: {type(error).__name__}") from None
        return self.unpack([forms, states])

    def call(self, callback: Any, message: Any) -> list[Any]:
        """Return the message that answers a program's call of a function of the tests."""
        (parts,) = self.arrived(message)
        if callback not in self._functions or not isinstance(parts, tuple) or len(parts) != 2:
            raise values.BadValue("form", "a call of a function that was not passed")
        args, named = parts
        try:
            return self.message(self._functions[callback](*args, **dict(named)), None, "")
        except CallFailed:
            raise
        except Exception as error:
            kind = next(kind.__name__ for kind in type(error).__mro__ if vars(builtins).get(kind.__name__) is kind)
            return self.message(None, kind, str(error))

    def leave(self, value: Any, depth: int) -> Any:
        """Return the form of a handle, a class, a function."""
        kind = type(value)
        if issubclass(kind, Handle | _Kind):
            owner, number = _where(value)
            if owner is not self:
                raise values.BadValue("type", "an object of a process of the program that has ended")
            return {"object": number}
        if issubclass(kind, type | FunctionType | BuiltinFunctionType):
            module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
            if module == "builtins" and vars(builtins).get(name) is value:
                return {"builtin": name}
            if _find(module, name) is value:
                return {"global": [module, name]}
        if hasattr(kind, "__next__") or not callable(value):
            return values.encode(value)
        if id(value) not in self._function_numbers:
            self._function_numbers[id(value)] = self.number()
            self._functions[self._function_numbers[id(value)]] = value
        told = [getattr(value, name, None) for name in ("__name__", "__doc__")]
        return {"callback": [self._function_numbers[id(value)], *(str(text or "")[:1000] for text in told)]}

    def arrive(self, tag: str, body: Any) -> Any:
        """Return what the program's form stands for."""
        if tag == "object":
            number, kind = body
            return self._handle(number, self._classes[kind])
        if tag == "class":
            return self._classes[body]
        if tag == "builtin":
            found = vars(builtins)[body]
            if not isinstance(found, type):
                raise values.BadValue("form", "not a builtin class")
            return found
        if tag == "callback":
            return self._functions[body]
        return values.decode({tag: body})

    def _handle(self, number: int, kind: _Kind) -> Any:
        known = self._handles.get(number)
        handle = None if known is None else known()
        if handle is None:
            if type(number) is not int or number % 2 == self._next % 2:
                raise values.BadValue("form", "not a number of an object")
            base: Any = next(base for base in kind.__mro__ if base.__module__ == "builtins")
            handle = base.__new__(kind)
            object.__setattr__(handle, _WHERE, (self, number))
            self._handles[number] = weakref.ref(handle, lambda _: self._gone.append(number))
            if number in self._gone:
                self._gone.remove(number)
        elif type(handle) is not kind:
            raise values.BadValue("form", "an object has become another")
        return handle

    def _drop(self) -> None:
        """Forget what the tests have no name for any more, and have the program forget it, too."""
        gone, self._gone = self._gone, []
        for number in gone:
            del self._handles[number]
        self._dropped += gone
        found = True
        while found:
            found = False
            for number in list(self.containers):
                if sys.getrefcount(self.containers[number]) <= 2:  # this table's, and that of the question
                    self.forget(number)
                    self._dropped.append(number)
                    found = True

    def _describe(
        self, number: int, name: str, module: str, path: str, bases: list[int], special: list[str], flat: bool
    ) -> None:
        """Make a class that stands for one of the program's."""
        if type(number) is not int or number in self._classes or len(self._classes) >= _MOST_CLASSES:
            raise values.BadValue("form", "not a new class")
        parents: list[type] = list(dict.fromkeys(self._classes[base] for base in bases)) or [Handle]
        space = {special: _forwarder(special, flat is True) for special in special if special in self._special}
        if flat is True:
            space |= {special: _forwarder(special, True) for special in _COMPARISONS}
        space |= {
            "__hash__": object.__hash__,
            "__module__": "program",
            "__doc__": _Text(),
            "__symposium_flat__": flat is True,
        }
        real = vars(builtins).get(name, _INTERNAL.get(name)) if module == "builtins" else _find(module, path)
        if real is types.CoroutineType:
            space |= _COROUTINE
        if isinstance(real, type) and issubclass(real, Exception):
            parents = [Handle, real]
        elif isinstance(real, type) and real is not object and not issubclass(real, _PLAIN):
            space["__class__"] = property(lambda self: real)  # what isinstance believes
        if not (type(name) is str and name.isidentifier() and len(name) <= 100):
            name = "object"
        try:
            kind = _Kind(name, tuple(parents), space, own=_OWN)
        except TypeError:  # bases that cannot stand beside each other here
            kind = _Kind(name, tuple(parents[:1]), space, own=_OWN)
        type.__setattr__(kind, _WHERE, (self, number))
        self._classes[number] = kind


def _find(module: Any, path: Any) -> Any:
    """Return what a path in a module of the standard library or of numpy leads to, if it is loaded here; else None."""
    if type(module) is not str or type(path) is not str or path.count(".") > 3:
        return None
    top = module.partition(".")[0]
    if (top not in sys.stdlib_module_names and top != "numpy") or top in _UNTRUSTED:
        return None
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def exception(handle: Any, raised: calls.Raised) -> BaseException:
    """Return the exception to raise for one of a class of the program's own."""
    if not isinstance(handle, Exception):
        return CallFailed("error", raised.describe())
    args = (raised.text,) if raised.args is None else raised.args
    BaseException.args.__set__(handle, args)  # type: ignore[attr-defined]
    object.__setattr__(handle, "__notes__", [raised.describe()])
    return handle
