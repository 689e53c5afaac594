"""Handles: the tests' references to a program's objects and classes.

An object without a plain form stays in the program's process, and the tests get a handle.  Reading an attribute,
calling, iterating and operators are sent to the program as operations on the object's number, and their values are
returned like any values.  A class of the program becomes a class here, with the same name and the same bases, including
exceptions, so that ``isinstance``, ``except`` and ``assertRaises`` are decided here.  `classes` creates both; this
module keeps the numbers.  Mocks of the tests go the other way: the program uses them through a stand-in.
"""

from __future__ import annotations

import builtins
import sys
import weakref
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

from pipeline_lib.sandbox.calls import CallFailed, NoAnswer
from pipeline_lib.sandbox.imports import find
from pipeline_lib.sandbox.inside import messages, values
from pipeline_lib.sandbox.inside.folders import Folder
from pipeline_lib.sandbox.inside.shared import FORBIDDEN, HASH, OF_CLASSES, SEARCHED, SPECIAL, Shared
from pipeline_lib.sandbox.inside.values import BASES, BROKEN, FIXED_BASES, BadValue, base_of, flatten
from pipeline_lib.sandbox.objects.classes import Handle, Kind, make_class, make_object, note_hash, where


def is_mock(value: Any) -> bool:
    """Return whether a value of the tests is a mock of `unittest.mock`."""
    module = sys.modules.get("unittest.mock")
    return module is not None and issubclass(type(value), module.NonCallableMock)


def operations(mock: Any) -> Callable[..., Any]:
    """Return the function that executes the program's operations on a mock, always the same one.

    A program can read and set public attributes only, because others lead from a mock to code of this process; and
    none of those with which tests ask a mock what it was called with.
    """
    found: Callable[..., Any] | None = mock.__dict__.get(_OPERATIONS)
    if found is None:

        def found(operation: str, name: str, *args: Any) -> Any:
            if type(name) is not str or (name not in SPECIAL if operation == "special" else _is_closed(name)):
                raise AttributeError(str(name)[:100])
            if operation == "special":
                return _special(mock, name, args)
            return setattr(mock, name, *args) if operation == "set" else getattr(mock, name)

        mock.__dict__[_OPERATIONS] = found
    return found


def _is_closed(name: str) -> bool:
    return name.startswith(("_", "assert")) or hasattr(sys.modules["unittest.mock"].NonCallableMock, name)


def _special(mock: Any, name: str, args: tuple[Any, ...]) -> Any:
    if name == "__bool__":
        return bool(mock)  # also without a method of this name
    found = getattr(mock, name)(*args) if hasattr(mock, name) else NotImplemented
    if found is NotImplemented:
        raise TypeError(f"the mock has no {name} for these operands")
    return found


_OPERATIONS = "_symposium_operations"


_MOST_CLASSES = 1000
_BASES = {kind.__name__: kind for kind in BASES}


class Handles(Shared):
    """The handles of one process of a program.

    Args:
        ask: sends an operation with its message to the program and returns the value of the answer.
        strict: use its operators only if the other operand belongs to the program, too.
        folder: the tests' scratch folder, if the program gets a copy of its content.

    Attributes:
        ended: the process has ended, and its objects are gone.
        receiving: a message is being read.
    """

    def __init__(self, ask: Callable[[str, Any], Any], strict: bool, folder: Folder | None) -> None:
        super().__init__(1)
        self.ask = ask
        self.folder = folder
        self.ended = False
        self.receiving = False
        self._strict = strict
        self._handles: dict[int, weakref.ref[Any]] = {}
        self._fixed: dict[int, Any] = {}  # handles that derive from a builtin whose content is fixed
        self._classes: dict[int, Kind] = {}
        self._functions: dict[int, Any] = {}  # of the tests, and exceptions that they have raised
        self._function_numbers: dict[int, int] = {}
        self._gone: list[int] = []  # handles that were garbage-collected
        self._dropped: list[int] = []  # handles and containers that the program can drop

    def do(self, operation: str, *parts: Any) -> Any:
        """Have the program execute an operation on its own objects; return the value, or raise `NoAnswer`."""
        if self.ended:
            raise NoAnswer("error", "the object was in a process of the program that has ended")
        return self.ask(operation, self.message(*parts))

    def shares(self) -> bool:
        """Return whether one of both sides may know a container or a file."""
        if self.folder is not None or self.has_changed():
            return True
        self._drop()
        self.note()
        return bool(self.containers or self._dropped)

    def forget_all(self) -> None:
        """Forget every container: the program has forgotten them."""
        for number in [*self.containers]:
            self.forget(number)

    def message(self, *parts: Any) -> list[Any]:
        """Return the message that carries ``parts``; raises `NoAnswer` for a value that cannot be sent."""
        try:
            packed = self.pack(*parts)
            self._drop()
            self.note()
            return [*packed, self._dropped, None if self.folder is None else self.folder.changes()]
        except BadValue as error:
            raise NoAnswer("error", f"the tests pass a value that cannot be sent: {error}") from None
        finally:
            self._dropped = []

    def receive(self, message: Any) -> list[Any]:
        """Return the values of a message of the program; raises `BadValue` for a malformed one."""
        try:
            forms, states, classes, files, gone = message
            if self.folder is not None:
                self.folder.apply(files)
            for description in classes:
                self._describe(*description)
        except BROKEN as error:
            raise BadValue("form", f"not a message: {type(error).__name__}") from None
        self.receiving = True
        try:
            return self.unpack([forms, states], gone)
        finally:
            self.receiving = False

    def call(self, callback: Any, message: Any) -> list[Any]:
        """Return the message that answers a program's call of a function of the tests."""
        (parts,) = self.receive(message)
        if callback not in self._functions or not isinstance(parts, tuple) or len(parts) != 2:
            raise BadValue("form", "a call of a function that was not passed")
        args, named = parts
        try:
            return self.message(self._functions[callback](*args, **dict(named)), None, ())
        except CallFailed:
            raise
        except Exception as error:
            kind = next(kind.__name__ for kind in type(error).__mro__ if vars(builtins).get(kind.__name__) is kind)
            number = self.number()
            self._functions[number] = error  # the program may not catch it
            try:
                return self.message(number, kind, messages.arguments(error))
            except NoAnswer:
                return self.message(number, kind, (str(error),))

    def stays(self, kind: type) -> bool:
        """Return whether objects of that class are handles."""
        return issubclass(kind, Handle | Kind)

    def class_of(self, container: Any) -> None:
        """Return None: the program knows the class of its object."""

    def instance(self, number: int, kind: int, base: Any) -> Any:
        """Return a new handle that is a container."""
        if not issubclass(self._classes[kind], base):
            raise BadValue("form", "a class that does not derive from this builtin")
        return make_object(self._classes[kind], self, number)

    def encode_reference(self, value: Any, depth: int) -> Any:
        """Return the form of a handle, a class or a function."""
        kind = type(value)
        if self.stays(kind):
            owner, number = where(value)
            if owner is not self:
                raise BadValue("type", "an object of a process of the program that has ended")
            return {"object": number}
        if issubclass(kind, type | FunctionType | BuiltinFunctionType):
            module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
            if module == "builtins" and vars(builtins).get(name) is value:
                return {"builtin": name}
            if find(module, name) is value:
                return {"global": [module, name]}
        if is_mock(value):
            return {"mock": [self._function(value), self._function(operations(value))]}
        if hasattr(kind, "__next__"):
            return {"iterator": [self.form(item, depth + 1) for item in values.bounded(value)]}
        base = base_of(kind)
        if base in FIXED_BASES:
            return self.form(flatten(value, base), depth)
        if not callable(value):
            raise BadValue("type", f"a value of type {kind.__name__}; only plain values and functions can")
        texts = [str(getattr(value, name, None) or "")[:1000] for name in ("__name__", "__doc__")]
        return {"callback": [self._function(value), *texts]}

    def decode_reference(self, tag: str, body: Any) -> Any:
        """Return the value of the program's form."""
        if tag == "object":
            number, kind, content, hashed = body
            return self._handle(number, self._classes[kind], None if content is None else self.value(content), hashed)
        if tag == "class":
            return self._classes[body]
        if tag == "builtin":
            found = type(None) if body == "NoneType" else vars(builtins)[body]
            if not isinstance(found, type):
                raise BadValue("form", "not a builtin class")
            return found
        if tag == "callback":
            return self._functions[body]
        return values.decode({tag: body})

    def _function(self, function: Any) -> int:
        if id(function) not in self._function_numbers:
            self._function_numbers[id(function)] = self.number()
            self._functions[self._function_numbers[id(function)]] = function
        return self._function_numbers[id(function)]

    def _handle(self, number: int, kind: Kind, content: Any, hashed: Any) -> Any:
        handle = self._fixed.get(number)
        if handle is None and number in self._handles:
            handle = self._handles[number]()
        if handle is None:
            if type(number) is not int or number % 2 == self._next % 2:
                raise BadValue("form", "not a number of an object")
            handle = make_object(kind, self, number, content, hashed)
            if content is not None:
                self._fixed[number] = handle
            else:
                self._handles[number] = weakref.ref(handle, lambda _: self._gone.append(number))
            if number in self._gone:
                self._gone.remove(number)
        elif type(handle) is not kind:
            raise BadValue("form", "an object has changed its class")
        note_hash(handle, hashed)
        return handle

    def _drop(self) -> None:
        """Drop what the tests no longer refer to, and have the program drop it, too."""
        self._dropped += self.prune(exact=False)
        for number in [*self._fixed]:
            if sys.getrefcount(self._fixed[number]) <= 2:  # this table, and the argument here
                del self._fixed[number]
                self._dropped.append(number)
        gone, self._gone = self._gone, []
        for number in gone:
            del self._handles[number]
        self._dropped += gone

    def _describe(
        self,
        number: int,
        name: str,
        module: str,
        path: str,
        bases: list[int],
        special: list[str],
        base: str | None,
        hidden: list[str],
        of_class: list[str],
    ) -> None:
        if type(number) is not int or number in self._classes or len(self._classes) >= _MOST_CLASSES:
            raise BadValue("form", "not a new class")
        parents = list(dict.fromkeys(self._classes[base] for base in bases))
        own = [name for name in special if name in SPECIAL or name in (HASH, SEARCHED, *FORBIDDEN)]
        builtin = None if base is None else _BASES[base]
        others = [name for name in hidden if name in dir(builtin)]
        above = [name for name in of_class if name in OF_CLASSES]
        made = make_class(name, module, path, parents, own, builtin, others, above, self._strict, self, number)
        self._classes[number] = made
