"""The program's side of handles: objects without a plain form stay here, and the tests use them by number.

Promises nothing, because it runs in the program's process.  Honest programs can rely on this: an object keeps its
number as long as the tests have a handle of it, and every operation is the one that Python would have executed.
"""

from __future__ import annotations

import builtins
import copy
import operator
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FunctionType, WrapperDescriptorType
from typing import Any

from . import folders, messages, shared, values
from .values import BadValue

# Names of a class or its metaclass with which it would decide what tests see of its objects.
_REFUSED = ("__class__", "__getattribute__")
_REFUSED_OF_CLASSES = (
    *("__instancecheck__", "__subclasscheck__", "__eq__", "__ne__", "__lt__", "__gt__", "__le__", "__ge__"),
    *("__hash__", "__bool__", *_REFUSED),
)


_LONGEST_NAME = 200  # of a class; the tests take none above 100


class Objects(shared.Shared):
    """The objects that the tests hold handles of.

    Args:
        space: the program's namespace.
        entry: the function or class under test.
        ask: calls a function of the tests: sends the parts of a message and returns the answer.

    Attributes:
        scratch: the folder of every program.
    """

    scratch = ""

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
        self._classes: list[Any] = []  # descriptions that the next message carries
        self._gone: list[int] = []  # containers forgotten since the last message
        self._loop: Any = None  # the asyncio loop for everything that the tests await
        self.folder: folders.Folder | None = None  # if the tests have one

    def message(self, *roots: Any) -> list[Any]:
        """Return the message that carries ``roots``, with descriptions of classes that are new to the tests."""
        packed = self.pack(*roots)
        classes, self._classes = self._classes, []
        self._gone += self.prune(exact=True)
        self.note()
        gone, self._gone = self._gone, []
        return [*packed, classes, None if self.folder is None else self.folder.changes(), gone]

    def copied(self, holder: list[Any]) -> list[Any] | None:
        """Return a list with the form of the value in ``holder`` if a copy of it is all that the tests need to know.

        So it is if nothing else here refers to a container in it, none of those that both sides know has changed, and
        none is still referred to here; all are then forgotten.
        """
        if shared.is_shared(holder):
            return None
        try:
            form = values.encode(holder[0])
        except BadValue:
            return None
        return [form] if self.forgets_all() else None

    def forgets_all(self) -> bool:
        """Forget the containers that nothing here refers to; return whether there are no others, nor changes."""
        if self.folder is not None or self.has_changed():
            return False
        self._gone += self.prune(exact=True)
        self.note()
        if not self.containers:
            self._gone = []
        return not self.containers

    def receive(self, message: Any) -> list[Any]:
        """Return the values of a message of the tests."""
        forms, states, forgotten, files = message
        if files is not None:
            self.folder = self.folder or folders.Folder(self.scratch, 1 << 40)
            self.folder.apply(files)
        roots = self.unpack([forms, states], forgotten)
        for number in forgotten:
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
        part = next((vars(kind)[name] for kind in type(thing).__mro__ if name in vars(kind)), None)
        if part is None:
            raise TypeError(f"a {type(thing).__name__} has no {name}")
        bind = getattr(type(part), "__get__", None)  # as Python does, so also of a static method or a property
        try:
            value = (part if bind is None else bind(part, thing, type(thing)))(*args)
        except StopIteration as end:
            if name == "__next__":
                return ("end", end.value)
            raise
        return (value is not NotImplemented, None if value is NotImplemented else value)

    def _await(self, thing: Any) -> Any:
        """Run an awaitable; return ``("value", result)``, or ``("end", None)`` if an iterator is exhausted."""
        import asyncio  # few programs need it, and every fork copies what the fork server has loaded

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

    def _subscript(self, kind: Any, key: Any) -> Any:
        return kind[key]

    def _dir(self, thing: Any) -> list[str]:
        return dir(thing)

    def _copy(self, thing: Any, deep: bool) -> Any:
        return copy.deepcopy(thing) if deep else copy.copy(thing)

    def stays(self, kind: type) -> bool:
        """Return False: the tests' objects are functions and mocks, which `encode_reference` knows."""
        return False

    def class_of(self, container: Any) -> int:
        """Return the number of a container's class."""
        return self._class(type(container), container)

    def instance(self, number: int, kind: int, base: Any) -> Any:
        """Raise BadValue: the tests have no classes here."""
        raise BadValue("form", "a class of the tests")

    def encode_reference(self, value: Any, depth: int) -> Any:
        """Return the form of an object, a class, or a function of the tests."""
        if isinstance(value, type):
            known = getattr(builtins, value.__name__, None) is value or value is type(None)
            return {"builtin": value.__name__} if known else {"class": self._class(value)}
        if id(value) in self._callback_numbers:
            return {"callback": self._callback_numbers[id(value)]}
        kind = type(value)
        number, base, content = self._class(kind, value), values.base_of(kind), None
        if base in values.FIXED_BASES:
            content = self.form(values.flatten(value, base), depth)
        elif base is not None:
            return {"ref": self.add(value)}
        return {"object": [self._known(value), number, content, _hash(value)]}

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

    def _class(self, kind: type, thing: Any = None) -> int:
        """Return the number of a class, and describe it to the tests the first time; ``thing`` is an object of it.

        Raises:
            BadValue: its objects could deceive the tests.
        """
        if id(kind) in self._object_numbers:
            return self._object_numbers[id(kind)]
        owners, base = values.owners(kind), values.base_of(kind)
        above = values.owners(type(kind))
        if any(_is_python(owners, name) for name in _REFUSED) or any(
            _is_python(above, name) and values.is_own(above[name]) for name in _REFUSED_OF_CLASSES
        ):
            raise BadValue(
                "type", f"the class {kind.__name__} defines how its objects are recognised; it cannot be sent"
            )
        number = self._known(kind)
        bases = [self._class(part, thing) for part in kind.__bases__ if part is not object and part not in values.BASES]
        usual = (object, BaseException, Exception) if base is None else base.__mro__
        names = {name for name, owner in owners.items() if owner not in usual}
        parts = {name: vars(owners[name])[name] for name in names & {*shared.SPECIAL, shared.HASH}}
        special = sorted(name if part is not None else f"no {name}" for name, part in parts.items())
        if owners.get("__contains__") is Sequence:
            special[special.index("__contains__")] = shared.SEARCHED
        if "__getitem__" in parts and "__iter__" not in owners and not _has_items(parts["__getitem__"], thing):
            special.append("no __iter__")
        hidden = [] if base is None else sorted(name for name in names & {*dir(base)} if not name.startswith("__"))
        about = (text[:_LONGEST_NAME] for text in (kind.__name__, values.module_of(kind), kind.__qualname__))
        of_class = sorted(name for name in shared.OF_CLASSES if name in (owners if "class" in name else above))
        self._classes.append(
            [number, *about, bases, special, None if base is None else base.__name__, hidden, of_class]
        )
        return number


def _is_python(owners: dict[str, type], name: str) -> bool:
    """Return whether code in Python defines a name of a class."""
    part = vars(owners[name]).get(name) if name in owners else None
    return isinstance(part, (FunctionType, property)) and owners[name].__module__ != "unittest.mock"


def _has_items(subscript: Any, thing: Any) -> bool:
    """Return whether Python iterates by a ``__getitem__``; that of C code may be for names alone (``re.Match``)."""
    if not isinstance(subscript, WrapperDescriptorType):
        return True
    try:
        iter(thing)
    except TypeError:
        return False
    return True


def _hash(value: Any) -> int | None:
    """Return the hash of an object if its class defines it."""
    try:
        return None if type(value).__hash__ is object.__hash__ else hash(value)
    except Exception:
        return None


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
        answer: answers requests of any kind, also while a function of the tests is called.
    """

    def __init__(self, space: dict[str, Any], entry: Any, limit: int, answer: Callable[[Any], bytes]) -> None:
        self.objects = Objects(space, entry, self._ask)
        self.limit = limit
        self.answer = answer

    def operate(self, request: Any) -> bytes:
        """Return the reply to an operation."""
        number, operation, message = request
        holder: list[Any] = []
        try:
            holder.append(self.objects.do(operation, self.objects.receive(message)))
        except BaseException as error:
            return self.raised(number, error)
        return self.reply(number, holder)

    def reply(self, number: int, holder: list[Any]) -> bytes:
        """Return the reply that carries the value in ``holder``, to which the caller must have no other reference."""
        try:
            copied = self.objects.copied(holder)
            if copied is not None:
                reply: bytes = messages.frame(self.limit, number, "value", *copied)
                return reply
            return self._message(number, "shared", holder.pop())
        except BaseException as error:
            return self.raised(number, error)

    def raised(self, number: int, error: BaseException) -> bytes:
        """Return the reply that carries an exception, or says why a value cannot be sent."""
        try:
            if isinstance(error, BadValue):
                raise error
            described = messages.describe(error)
            known = getattr(builtins, type(error).__name__, None) is type(error) and not self.objects.is_thrown(error)
            if known and not vars(error) and self.objects.forgets_all():
                reply: bytes = messages.frame(self.limit, number, "raised", described)
                return reply
            with suppress(BadValue):  # its class decides how its objects are recognised: then the nearest builtin
                return self._message(number, "raised", None if known else error, described)
            return self._message(number, "raised", None, described)
        except BadValue as fault:
            refusal: bytes = messages.frame(1 << 12, number, "bad", fault.kind, str(fault)[:300])
            return refusal

    def _message(self, number: int, kind: str, value: Any, *before: Any) -> bytes:
        reply: bytes = messages.frame(self.limit, number, kind, *before, self.objects.message(value))
        return reply

    def _ask(self, callback: int, parts: Any) -> Any:
        request = messages.ask(self._message(0, "callback", tuple(parts), callback))
        while not (len(request) == 3 and request[1] == "return"):
            request = messages.ask(self.answer(request))
        value, failure, args = self.objects.receive(request[2])
        if failure is None:
            return value
        kind = getattr(builtins, failure, None)
        raise self.objects.thrown(
            (kind if isinstance(kind, type) and issubclass(kind, Exception) else Exception)(*args), value
        )
