"""Values that keep their identity when they are sent between tests and program.

`values` makes copies.  Here lists, dicts and other mutable containers exist once on each side under one number.  Every
message carries the content of those that its sender has changed, so two references to one list are one list on the
other side, too, and each side sees the other's changes with the next message.  An object without a plain form stays
in its process, and the other side gets a number: see `objects` for the program's side, ``handles`` for the tests'.

Promises, like `values`: for any message, `Shared.unpack` creates builtins, calls its own ``decode_reference`` for the
rest, or raises `BadValue`; code of the sender is never run.
"""

from __future__ import annotations

import array
import collections
from abc import ABC, abstractmethod
from typing import Any

from . import messages, packaged, plain, values
from .common import too_many_parts
from .plain import BadValue

MOST = 20_000  # containers in the table
_CONTAINERS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(list, dict, set, bytearray, array.array, collections.deque),
        *(collections.OrderedDict, collections.Counter, collections.defaultdict),
    )
}
_KINDS = {kind: name for name, kind in _CONTAINERS.items()}
_DICTS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)
_TUPLES: dict[type, str] = {tuple: "tuple", frozenset: "frozenset"}
_SCALARS = (int, float, str, complex, bytes)

# Special methods that the tests' side forwards for objects whose class has them.
_SPECIAL = """
bool len iter next reversed contains getitem setitem delitem missing call enter exit str repr format int float complex
index round floor ceil trunc eq ne lt le gt ge abs neg pos invert await aiter anext aenter aexit
"""
_OPERATORS = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor"
OPERATORS = frozenset(f"__{side}{name}__" for name in _OPERATORS.split() for side in ("", "r", "i"))
UNHASHABLE = "no hash"  # listed among the special methods of a class without a hash
SPECIAL = OPERATORS | {f"__{name}__" for name in _SPECIAL.split()}


class Shared(ABC):
    """One side's table of the containers and objects that both sides know.

    Args:
        first: the first number that this side assigns; it continues in steps of two, so no number is assigned twice.

    Attributes:
        containers: by number.
    """

    def __init__(self, first: int) -> None:
        self._next = first
        self.containers: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}  # of containers by id
        self._content: dict[int, str] = {}  # the content that the other side knows, as text
        self._new: list[int] = []

    @abstractmethod
    def encode_reference(self, value: Any, depth: int) -> Any:
        """Return the form of a value that stays on this side."""

    @abstractmethod
    def decode_reference(self, tag: str, body: Any) -> Any:
        """Return the value of a form of the other side's `encode_reference`."""

    def number(self) -> int:
        """Return an unused number."""
        self._next += 2
        return self._next - 2

    def pack(self, *roots: Any) -> list[Any]:
        """Return the message that carries ``roots`` and every change since the last one."""
        forms = [self.form(root) for root in roots]
        states: list[Any] = []
        self._new.clear()
        pending = list(self.containers)
        while pending:
            for number in pending:
                container = self.containers[number]
                body = self._body(container)
                text = messages.text(body)
                if self._content.get(number) != text:
                    self._content[number] = text
                    states.append([number, _KINDS[type(container)], body])
            pending, self._new = self._new, []
        return [forms, states]

    def unpack(self, message: Any) -> list[Any]:
        """Apply the changes of a message and return its roots; raises `BadValue` for input that `pack` cannot make."""
        try:
            forms, states = message
            for number, kind, body in states:
                self._receive(number, kind, body)
            filled = [(self.containers[number], self._items(kind, body)) for number, kind, body in states]
            for container, items in filled:
                _fill(container, items)
            for number, _, _ in states:
                self._content[number] = messages.text(self._body(self.containers[number]))
            self._new.clear()
            roots = [self.value(form) for form in forms]
        except plain.BROKEN as error:
            raise BadValue("form", f"not a message: {type(error).__name__}") from None
        if states and too_many_parts([roots, *self.containers.values()]):
            raise BadValue("size", "a value that contains the same parts too often")
        return roots

    def adopt(self, cells: dict[int, Any]) -> None:
        """Add containers that both sides know under other numbers."""
        for number, cell in cells.items():
            self._keep(adopted(number), cell)

    def forget(self, number: int) -> None:
        """Drop a container."""
        container = self.containers.pop(number, None)
        if container is not None:
            del self._numbers[id(container)]
            self._content.pop(number, None)

    def form(self, value: Any, depth: int = 0) -> Any:
        """Return the form of a value."""
        kind: type = type(value)
        if kind in _KINDS:
            number = self._numbers.get(id(value))
            if number is None:
                number = self.number()
                self._keep(number, value)
                self._new.append(number)
            return {"ref": number}
        if plain.is_leaf(value):
            return values.encode(value)
        if depth >= values.MAX_DEPTH:
            raise BadValue("size", f"the value is nested more than {values.MAX_DEPTH} deep")
        if kind in _TUPLES:
            return {_TUPLES[kind]: [self.form(item, depth + 1) for item in value]}
        fields = plain.fields_of(kind)
        if fields is not None:
            return {"namedtuple": [kind.__name__, fields, [self.form(item, depth + 1) for item in tuple(value)]]}
        found = packaged.form(value, kind)
        if found is not None:
            return found
        enum = any(base.__module__ == "enum" for base in kind.__mro__)
        if isinstance(value, _SCALARS) and not enum and not plain.overrides_behaviour(kind):
            return values.encode(value)
        if kind in plain.VIEWS:
            return {plain.VIEWS[kind]: [self.form(item, depth + 1) for item in value]}
        return self.encode_reference(value, depth + 1)

    def value(self, form: Any, depth: int = 0) -> Any:
        """Return the value of a form."""
        if type(form) is not dict:
            return values.decode(form)
        if depth >= values.MAX_DEPTH:
            raise BadValue("form", f"nested more than {values.MAX_DEPTH} deep")
        ((tag, body),) = form.items()
        if tag == "ref":
            return self.containers[body]
        if tag in plain.LEAF_TAGS:
            return values.decode(form)
        if tag in ("tuple", "frozenset"):
            items = [self.value(item, depth + 1) for item in body]
            return tuple(items) if tag == "tuple" else frozenset(items)
        if tag == "namedtuple":
            name, fields, items = body
            return plain.namedtuple(name, tuple(fields))(*[self.value(item, depth + 1) for item in items])
        if tag in packaged.TAGS:
            return packaged.value(tag, body)
        if tag in ("keys", "values", "items"):
            items = [self.value(item, depth + 1) for item in body]
            return getattr(dict(enumerate(items)) if tag == "values" else _as_dict(tag, items), tag)()
        return self.decode_reference(tag, body)

    def _keep(self, number: int, container: Any) -> None:
        if len(self.containers) >= MOST:
            raise BadValue("size", f"more than {MOST} containers")
        self.containers[number] = container
        self._numbers[id(container)] = number

    def _receive(self, number: int, kind: str, body: Any) -> None:
        """Create a container of that kind under the number if there is none."""
        known = self.containers.get(number)
        if known is not None:
            if _KINDS[type(known)] != kind:
                raise BadValue("form", "a container has changed its type")
        elif type(number) is not int or number % 2 == self._next % 2:
            raise BadValue("form", "not a new number")
        elif kind == "array":
            self._keep(number, plain.make_array(body[0], []))
        elif kind == "deque":
            self._keep(number, collections.deque(maxlen=body[1]))
        elif kind == "defaultdict":
            factory = self.value(body[1])
            if factory is not None and not callable(factory):
                raise BadValue("form", "not a default factory")
            self._keep(number, collections.defaultdict(factory))
        else:
            self._keep(number, _CONTAINERS[kind]())

    def _body(self, container: Any) -> Any:
        kind = type(container)
        if kind is list:
            return [self.form(item) for item in container]
        if kind in _DICTS:
            pairs = [[self.form(key), self.form(item)] for key, item in container.items()]
            return [pairs, self.form(container.default_factory)] if kind is _DICTS[3] else pairs
        if kind is set:
            return sorted((self.form(item) for item in container), key=messages.text)  # the sides' orders may differ
        if kind is array.array:
            return [container.typecode, [self.form(item) for item in container]]
        return container.hex() if kind is bytearray else [[self.form(item) for item in container], container.maxlen]

    def _items(self, kind: str, body: Any) -> Any:
        """Return the content of a container: pairs, items or bytes."""
        if kind == "bytearray":
            return bytes.fromhex(body)
        if kind == "array":
            return plain.make_array(body[0], [self.value(item) for item in body[1]])
        if kind in ("defaultdict", "deque"):
            body = body[0]
        if issubclass(_CONTAINERS[kind], dict):
            pairs = [(self.value(key), self.value(item)) for key, item in body]
            if kind == "Counter":
                values.use_counts(pairs)
            return pairs
        return [self.value(item) for item in body]


def adopted(number: int) -> int:
    """Return the number of an adopted container."""
    return -1 - number


def _fill(container: Any, items: Any) -> None:
    """Replace a container's content, but keep equal keys of a dict: tests may be iterating over it."""
    if isinstance(container, list | bytearray | array.array):
        container[:] = items
    elif isinstance(container, dict):
        if len(container) != len(items) or not all(map(_same, container, (key for key, _ in items))):
            container.clear()
        for key, item in items:
            container[key] = item
    else:
        container.clear()
        container.update(items) if isinstance(container, set) else container.extend(items)


def _same(left: Any, right: Any) -> bool:
    """Return whether two keys are certainly equal, without calling the program."""
    return left is right or (type(left) is type(right) and plain.is_leaf(left) and bool(left == right))


def _as_dict(tag: str, items: list[Any]) -> dict[Any, Any]:
    return dict(items) if tag == "items" else dict.fromkeys(items)
