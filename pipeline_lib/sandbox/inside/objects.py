"""The program's side of handles: objects without a plain form stay here, and the tests use them by number.

Promises nothing, because it runs in the program's process.  Honest programs can rely on this: an object keeps its
number as long as the tests have a handle of it, and every operation is the one that Python would have executed.
"""

from __future__ import annotations

import builtins
import copy
import operator
import sys
from collections.abc import Callable
from typing import Any

from . import channel, folder, raised, shared, values
from .common import Common
from .plain import COMPARISONS, BadValue, is_own

_FLAT = (list, tuple, dict, set, frozenset)


class Objects(shared.Shared):
    """The objects that the tests hold handles of.

    Args:
        space: the program's namespace.
        entry: the function or class under test.
        ask: calls a function of the tests: sends the parts of a message and returns the answer.
    """

    def __init__(self, space: dict[str, Any], entry: Any, ask: Callable[[int, Any], Any]) -> None:
        super().__init__(2)
        self.space = space
        self.entry = entry
        self.ask = ask
        self._objects: dict[int, Any] = {}
        self._object_numbers: dict[int, int] = {}
        self._callbacks: dict[int, Any] = {}
        self._callback_numbers: dict[int, int] = {}  # and those of exceptions that callbacks have raised
        self._thrown: list[BaseException] = []
        self._classes: list[Any] = []
        self._loop: Any = None  # the asyncio loop for everything that the tests await
        self.folder: folder.Folder | None = None  # if the tests have one

    def message(self, *roots: Any) -> list[Any]:
        """Return the message that carries ``roots``, with descriptions of classes that are new to the tests."""
        self._classes = []
        packed = self.pack(*roots)
        return [*packed, self._classes, None if self.folder is None else self.folder.changes()]

    def receive(self, message: Any) -> list[Any]:
        """Return the values of a message of the tests."""
        forms, states, forgotten, files = message
        if files is not None:
            self.folder = self.folder or folder.Folder(1 << 40)
            self.folder.apply(files)
        roots = self.unpack([forms, states])
        for number in forgotten:
            self.forget(number)
            thing = self._objects.pop(number, None)
            self._object_numbers.pop(id(thing), None)
        return roots

    def do(self, operation: str, parts: list[Any]) -> Any:
        """Return the value of an operation on objects of which the tests have handles."""
        return getattr(self, "_" + operation)(*parts)

    def _names(self, *names: str) -> Any:
        return tuple(self.space.get(name) for name in names)

    def _get(self, thing: Any, name: str) -> Any:
        return getattr(thing, name)

    def _set(self, thing: Any, name: str, value: Any) -> None:
        setattr(thing, name, value)

    def _delete(self, thing: Any, name: str) -> None:
        delattr(thing, name)

    def _call(self, function: Any, args: Any, named: Any) -> Any:
        return (self.entry if function is None else function)(*args, **dict(named))

    def _special(self, thing: Any, name: str, args: Any) -> Any:
        try:
            value = getattr(type(thing), name)(thing, *args)
        except StopIteration as end:
            if name == "__next__":
                return ("end", end.value)
            raise
        return (value is not NotImplemented, None if value is NotImplemented else value)

    def _plain(self, thing: Any) -> Any:
        base = next(base for base in _FLAT if isinstance(thing, base))
        return base(base.items(thing) if base is dict else base.__iter__(thing))

    def _await(self, thing: Any) -> Any:
        """Run an awaitable; return ``("value", result)``, or ``("end", None)`` if an iterator is exhausted."""
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()

        async def wait() -> Any:
            return await thing

        try:
            return ("value", self._loop.run_until_complete(wait()))
        except StopAsyncIteration:
            if type(thing).__name__ == "coroutine":
                raise
            return ("end", None)

    def _copy(self, thing: Any, deep: bool) -> Any:
        return copy.deepcopy(thing) if deep else copy.copy(thing)

    def encode_reference(self, value: Any, depth: int) -> Any:
        """Return the form of an object, a class, or a function of the tests."""
        if isinstance(value, type):
            known = getattr(builtins, value.__name__, None) is value or value is type(None)
            return {"builtin": value.__name__} if known else {"class": self._class(value)}
        if id(value) in self._callback_numbers:
            return {"callback": self._callback_numbers[id(value)]}
        return {"object": [self._known(value), self._class(type(value))]}

    def decode_reference(self, tag: str, body: Any) -> Any:
        """Return the value of the tests' form."""
        if tag == "object":
            return self._objects[body]
        if tag == "builtin":
            return getattr(builtins, body)
        if tag == "global":
            __import__(body[0])
            return operator.attrgetter(body[1])(sys.modules[body[0]])
        if tag == "callback":
            number, name, text = body
            if number not in self._callbacks:
                stub = self._callbacks[number] = _stub(self.ask, number)
                stub.__name__, stub.__doc__ = name, text
                self._callback_numbers[id(stub)] = number
            return self._callbacks[number]
        if tag == "mock":
            number, operations = body
            if number not in self._callbacks:
                mock = self._callbacks[number] = Mock(_stub(self.ask, number), _stub(self.ask, operations))
                self._callback_numbers[id(mock)] = number
            return self._callbacks[number]
        return values.decode({tag: body})

    def thrown(self, error: BaseException, number: int) -> BaseException:
        """Return an exception that stands for the tests' exception with this number."""
        self._callback_numbers[id(error)] = number
        self._thrown.append(error)
        return error

    def is_thrown(self, error: BaseException) -> bool:
        """Return whether an exception stands for one of the tests."""
        return id(error) in self._callback_numbers

    def _known(self, value: Any) -> int:
        number = self._object_numbers.get(id(value))
        if number is None:
            number = self._object_numbers[id(value)] = self.number()
            self._objects[number] = value
        return number

    def _class(self, kind: type) -> int:
        """Return the number of a class, and describe it to the tests the first time."""
        new = id(kind) not in self._object_numbers
        number = self._known(kind)
        if new:
            bases = [self._class(base) for base in kind.__bases__ if base is not object]
            mro = [base for base in kind.__mro__ if base not in (object, BaseException, Exception)]
            names = {name for base in mro for name in vars(base)}
            own = sorted(name for name in shared.SPECIAL & names if getattr(kind, name, None) is not None)
            own += [shared.UNHASHABLE] if kind.__hash__ is None else []
            flat = any(issubclass(kind, base) for base in _FLAT) and not any(
                COMPARISONS & vars(base).keys() for base in mro if is_own(base)
            )
            self._classes.append([number, kind.__name__, kind.__module__, kind.__qualname__, bases, own, flat])
        return number


def _stub(ask: Callable[[int, Any], Any], number: int) -> Any:
    """Return the program's stand-in for a function of the tests."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return ask(number, [args, tuple(kwargs.items())])

    return function


class Mock:
    """The program's stand-in for a mock of the tests.

    Args:
        call: calls the mock.
        do: executes an operation on it: reads or sets an attribute, or calls a special method.
    """

    def __init__(self, call: Callable[..., Any], do: Callable[..., Any]) -> None:
        self.__dict__["__call__"], self.__dict__["__do__"] = call, do

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the mock."""
        return self.__dict__["__call__"](*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["__do__"]("get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["__do__"]("set", name, value)

    __hash__ = object.__hash__


def _special(name: str) -> Any:
    return lambda self, *args: self.__dict__["__do__"]("special", name, *args)


for _name in shared.SPECIAL - {"__call__", "__await__", "__exit__", "__aexit__", "__repr__", "__eq__", "__ne__"}:
    setattr(Mock, _name, _special(_name))
Mock.__exit__ = lambda self, *error: _special("__exit__")(self, None, None, None)  # type: ignore[attr-defined]


class Host:
    """Answers the tests' operations on objects, and calls the functions that tests have passed.

    Args:
        space, entry: the program's namespace, and the function or class under test.
        limit: largest reply, bytes.
        known: the containers that both sides know already; the first message adopts them.

    Attributes:
        answer: answers requests of any kind.
    """

    def __init__(self, space: dict[str, Any], entry: Any, limit: int, known: Common) -> None:
        self.objects = Objects(space, entry, self._ask)
        self.limit = limit
        self.known = known
        self.answer: Callable[[Any], bytes] = self.operate

    def operate(self, request: Any) -> bytes:
        """Return the reply to an operation."""
        number, operation, message = request
        self._adopt()
        try:
            return self._reply(number, "shared", self.objects.do(operation, self.objects.receive(message)))
        except BaseException as error:
            return self._raised(number, error)

    def value(self, number: int, value: Any) -> bytes:
        """Return the reply that carries a value of any kind."""
        self._adopt()
        try:
            return self._reply(number, "shared", value)
        except BaseException as error:
            return self._raised(number, error)

    def raised(self, number: int, error: BaseException) -> bytes:
        """Return the reply that carries an exception with attributes of its own."""
        self._adopt()
        return self._raised(number, error)

    def _reply(self, number: int, kind: str, value: Any, *before: Any) -> bytes:
        reply: bytes = channel.frame(self.limit, number, kind, *before, self.objects.message(value))
        return reply

    def _raised(self, number: int, error: BaseException) -> bytes:
        try:
            if isinstance(error, BadValue):
                raise error
            known = getattr(builtins, type(error).__name__, None) is type(error) and not self.objects.is_thrown(error)
            return self._reply(number, "raised", None if known else error, raised.describe(error))
        except BadValue as fault:
            reply: bytes = channel.frame(1 << 12, number, "bad", fault.kind, str(fault)[:300])
            return reply

    def _adopt(self) -> None:
        if self.known.cells:
            self.objects.adopt(self.known.cells)
            self.known.clear()

    def _ask(self, callback: int, parts: Any) -> Any:
        request = channel.ask(self._reply(0, "callback", tuple(parts), callback))
        while not (len(request) == 3 and request[1] == "return"):
            request = channel.ask(self.answer(request))
        value, failure, text = self.objects.receive(request[2])
        if failure is None:
            return value
        kind = getattr(builtins, failure, None)
        raise self.objects.thrown(
            (kind if isinstance(kind, type) and issubclass(kind, Exception) else Exception)(text), value
        )
