"""Values that keep their identity when they are sent between tests and program.

`values` makes copies.  Here lists, dicts and other containers exist once on each side under one number, until one side
has no other reference to it.  Every message carries the content of those that its sender has changed, so two references
to one list are one list on the other side, too, and each side sees the other's changes with the next message.  An
object without a plain form stays in its process, and the other side gets a number: see `objects` for the program's
side, ``objects.handles`` for the tests'.

Promises, like `values`: for any message, `Shared.unpack` creates builtins, calls its own ``decode_reference`` and
``instance`` for the rest, or raises `BadValue`; code of the sender is never run.
"""

from __future__ import annotations

import array
import collections
import gc
import operator
import sys
from abc import ABC, abstractmethod
from typing import Any

from . import packaged, values
from .values import CELL_IDS, VIEW_IDS, BadValue

_MOST_PARTS = 1 << 20  # of a value; a part that it contains twice counts twice
_DEEPEST = 100
_SEQUENCES = (list, tuple, collections.deque)
_ATOM_IDS = frozenset(map(id, (type(None), bool, int, float, str, complex, bytes, range)))


def is_shared(holder: list[Any]) -> bool:
    """Return whether the value in ``holder`` has a container twice, or one with another reference to it.

    Only such a container, or an iterator, can be told from a copy.  The caller must have no reference to the value
    itself; tuples count if they contain something that can change.
    """
    found: list[Any] = []
    counts: dict[int, int] = {}
    fresh = _containers(holder)
    container = inner = None
    while fresh:
        inner = []
        for container in fresh:
            count = counts.get(id(container), 0)
            counts[id(container)] = count + 1
            if count == 0:
                found.append(container)
                inner += _containers(_items(container))
        fresh = inner
    del fresh, inner, container
    while found:
        container = found.pop()
        count = counts[id(container)]
        if count > 1 or sys.getrefcount(container) > count + _OWN_NAMES:
            if id(type(container)) in CELL_IDS or id(type(container)) in VIEW_IDS:
                return True
            if isinstance(container, tuple) and not is_immutable(container):
                return True
        if hasattr(type(container), "__next__"):
            return True  # its items are not known yet
    return False


def is_immutable(value: Any, depth: int = 0) -> bool:
    """Return whether a value is plain and nothing in it can change."""
    kind = type(value)
    if id(kind) in _ATOM_IDS or values.is_leaf(value):
        return True
    if depth > _DEEPEST or (kind is not tuple and kind is not frozenset and values.fields_of(kind) is None):
        return False
    return all(is_immutable(item, depth + 1) for item in value)


def too_many_parts(value: Any) -> bool:
    """Return whether a value has more than `_MOST_PARTS` parts, repeated ones counted each time."""
    sizes: dict[int, int] = {}

    def size(container: Any) -> int:
        known = sizes.get(id(container))
        if known is None:
            sizes[id(container)] = 1  # for a container that contains itself
            items = _items(container)
            known = sizes[id(container)] = len(items) + sum(map(size, _containers(items)))
        return known

    try:
        return sum(map(size, _containers([value]))) > _MOST_PARTS
    except RecursionError:
        return True


def _items(container: Any) -> Any:
    if isinstance(container, dict):
        return dict.values(container)
    if id(type(container)) in VIEW_IDS:
        return gc.get_referents(container)  # its dict
    if isinstance(container, _SEQUENCES):
        kind: Any = next(kind for kind in _SEQUENCES if isinstance(container, kind))
        return [*kind.__iter__(container)]
    return ()


def _containers(items: Any) -> list[Any]:
    if _ATOM_IDS.issuperset(map(id, map(type, items))):
        return []
    return [item for item in items if id(type(item)) not in _ATOM_IDS]


def _own_names() -> int:
    """Return the reference count that `is_shared` sees for an unshared container, apart from its holder."""
    found: list[Any] = [[]]
    while found:
        container = found.pop()
        return sys.getrefcount(container)
    raise AssertionError


_OWN_NAMES = _own_names()


MOST = 1 << 17  # containers in the table
_KINDS: dict[type, str] = {
    kind: kind.__name__
    for kind in (
        *(list, dict, set, bytearray, array.array, collections.deque),
        *(collections.OrderedDict, collections.Counter, collections.defaultdict),
    )
}
_CONTAINERS: dict[str, Any] = {name: kind for kind, name in _KINDS.items()}
_KIND_IDS = frozenset(map(id, _KINDS))
_ALL = slice(None)

# Special methods that the tests' side forwards for objects whose class has them.
_SPECIAL = """
bool len iter next reversed contains getitem setitem delitem missing call enter exit str repr format int float complex
index round floor ceil trunc eq ne lt le gt ge abs neg pos invert await aiter anext aenter aexit bytes fspath
"""
_OPERATORS = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor"
OPERATORS = frozenset(f"__{side}{name}__" for name in _OPERATORS.split() for side in ("", "r", "i"))
SPECIAL = OPERATORS | {f"__{name}__" for name in _SPECIAL.split()}
#: Those of them that are forwarded for a class whose metaclass has them, and how a class is subscripted.
OF_CLASSES = frozenset(f"__{name}__" for name in ("iter", "len", "getitem", "contains", "reversed", "class_getitem"))
HASH = "__hash__"
SEARCHED = "searched"  # listed instead of ``__contains__`` if that looks through the items, as Python does by itself
#: Listed among the special methods of a class in which one of them is None, so that Python refuses what it would do.
FORBIDDEN = {f"no {name}": name for name in (*SPECIAL, HASH)}


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
        self._notes: dict[int, Any] = {}  # the content that the other side knows
        self._new: list[int] = []

    @abstractmethod
    def stays(self, kind: type) -> bool:
        """Return whether objects of that class are references to the other side."""

    @abstractmethod
    def class_of(self, container: Any) -> int | None:
        """Return the number of a container's class if it is not a builtin."""

    @abstractmethod
    def instance(self, number: int, kind: int, base: Any) -> Any:
        """Return a new container under that number, of the other side's class, which derives from ``base``."""

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
        """Return the message that carries ``roots`` and every change since the last one; `note` must follow."""
        fresh: list[int] = []
        try:
            forms = [self.form(root) for root in roots]
            states = [self._state(number) for number in self._changed()]
            while self._new:
                pending, self._new = self._new, []
                fresh += pending
                states += map(self._state, pending)
        except BaseException:
            for number in [*fresh, *self._new]:  # the other side does not get to know them
                self.forget(number)
            self._new = []
            raise
        self._notes.clear()
        return [forms, states]

    def unpack(self, message: Any, gone: Any) -> list[Any]:
        """Apply the changes of a message and return its roots; raises `BadValue` for input that `pack` cannot make.

        Args:
            message: of the other side's `pack`.
            gone: numbers of the containers that the other side has forgotten.
        """
        try:
            forms, states = message
            for number, base, kind, body in states:
                self._receive(number, base, kind, body)
            filled = [(self.containers[number], base, self._items(base, body)) for number, base, _, body in states]
            for container, base, items in filled:
                _fill(container, base, items)
            for number, _, _, _ in states:
                self._notes.pop(number, None)
            roots = [self.value(form) for form in forms]
            for number in gone:
                self.forget(number)
            self.note()
        except values.BROKEN as error:
            raise BadValue("form", f"not a message: {type(error).__name__}") from None
        if states and too_many_parts([roots, *self.containers.values()]):
            raise BadValue("size", "a value that contains the same parts too often")
        return roots

    def note(self) -> None:
        """Store the content of every container without a note: the content that the other side now knows."""
        for number, container in self.containers.items():
            if number not in self._notes:
                self._notes[number] = _content(container)

    def prune(self, exact: bool) -> list[int]:
        """Forget the containers that nothing else on this side refers to, and return their numbers.

        Args:
            exact: not those of the program's classes, which the tests may use as long as they refer to them.
        """
        self._notes.clear()
        gone: list[int] = []
        found = bool(self.containers)
        while found:
            found = False
            for number in [*self.containers]:
                alone = sys.getrefcount(self.containers[number]) <= 2  # this table, and the argument here
                if alone and not (exact and self.is_object(self.containers[number])):
                    self.forget(number)
                    gone.append(number)
                    found = True
        return gone

    def forget(self, number: int) -> None:
        """Drop a container."""
        container = self.containers.pop(number, None)
        if container is not None:
            del self._numbers[id(container)]
            self._notes.pop(number, None)

    @staticmethod
    def is_object(container: Any) -> bool:
        """Return whether a container is of a program's class."""
        return not _is_builtin(container) and values.base_of(type(container)) is not None

    def has_changed(self) -> bool:
        """Return whether a container has changed since the last message."""
        return bool(self._changed())

    def form(self, value: Any, depth: int = 0) -> Any:
        """Return the form of a value."""
        kind: type = type(value)
        if id(kind) in values.ATOM_IDS:
            return values.encode(value)
        number = self._numbers.get(id(value))
        if number is not None:
            return {"ref": number}
        if self.stays(kind):
            return self.encode_reference(value, depth)
        if id(kind) in _KIND_IDS:
            return {"ref": self.add(value)}
        if values.is_leaf(value):
            return values.encode(value)
        if depth >= values.MAX_DEPTH:
            raise BadValue("size", f"the value is nested more than {values.MAX_DEPTH} deep")
        if kind is tuple or kind is frozenset:
            return {kind.__name__: [self.form(item, depth + 1) for item in value]}
        fields = values.fields_of(kind)
        if fields is not None:
            return {"namedtuple": [kind.__name__, fields, [self.form(item, depth + 1) for item in tuple(value)]]}
        if id(kind) in VIEW_IDS:
            return {values.VIEWS[kind]: self.form(gc.get_referents(value)[0], depth + 1)}
        found = packaged.kind_of(value, kind)
        if found is not None:
            return {"scalar": packaged.scalar_form(value)} if found == "scalar" else {"ref": self.add(value)}
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
        if tag in values.LEAF_TAGS:
            return values.decode(form)
        if tag in ("tuple", "frozenset"):
            items = [self.value(item, depth + 1) for item in body]
            return tuple(items) if tag == "tuple" else frozenset(items)
        if tag == "namedtuple":
            name, fields, items = body
            return values.namedtuple(name, tuple(fields))(*[self.value(item, depth + 1) for item in items])
        if tag == "scalar":
            return packaged.scalar(*body)
        if tag in ("keys", "values", "items"):
            return getattr(_as_dict(self.value(body, depth + 1)), tag)()
        return self.decode_reference(tag, body)

    def add(self, container: Any) -> int:
        """Assign a number to a container, which the next message introduces."""
        number = self.number()
        self._keep(number, container)
        self._new.append(number)
        return number

    def _keep(self, number: int, container: Any) -> None:
        if len(self.containers) >= MOST:
            raise BadValue("size", f"more than {MOST} containers")
        if not _is_builtin(container) and any(packaged.overlap(container, known) for known in self.containers.values()):
            raise BadValue("type", "arrays that share memory cannot be sent")
        self.containers[number] = container
        self._numbers[id(container)] = number

    def _changed(self) -> list[int]:
        return [number for number, note in self._notes.items() if not _same(note, self.containers[number])]

    def _state(self, number: int) -> list[Any]:
        container = self.containers[number]
        base = _base(container)
        kind = self.class_of(container) if self.is_object(container) else None
        return [number, base, kind, self._body(container, base)]

    def _receive(self, number: int, base: str, kind: Any, body: Any) -> None:
        known = self.containers.get(number)
        if known is not None:
            if _base(known) != base:
                raise BadValue("form", "a container has changed its type")
        elif type(number) is not int or number % 2 == self._next % 2:
            raise BadValue("form", "not a new number")
        elif kind is not None:
            self._keep(number, self.instance(number, kind, _CONTAINERS[base]))
        elif base in packaged.KINDS:
            self._keep(number, packaged.make(base, body))
        elif base == "array":
            self._keep(number, values.make_array(body[0], []))
        elif base == "deque":
            self._keep(number, collections.deque(maxlen=body[1]))
        elif base == "defaultdict":
            factory = self.value(body[1])
            if factory is not None and not callable(factory):
                raise BadValue("form", "not a default factory")
            self._keep(number, collections.defaultdict(factory))
        else:
            self._keep(number, _CONTAINERS[base]())

    def _body(self, container: Any, base: str) -> Any:
        if base == "list":
            items = list.__getitem__(container, _ALL)
            return items if values.are_simple(items) else [self.form(item) for item in items]
        if base in packaged.KINDS:
            return packaged.body(container, base)
        kind = _CONTAINERS[base]
        if issubclass(kind, dict):
            pairs = [[self.form(key), self.form(item)] for key, item in kind.items(container)]
            return [pairs, self.form(container.default_factory)] if base == "defaultdict" else pairs
        if base == "bytearray":
            return bytes(memoryview(container)).hex()
        items = [self.form(item) for item in kind.__iter__(container)]
        if base == "array":
            return [container.typecode, items]
        return items if base == "set" else [items, container.maxlen]

    def _items(self, base: str, body: Any) -> Any:
        if base in packaged.KINDS:
            return packaged.make(base, body)
        if base == "bytearray":
            return bytes.fromhex(body)
        if base == "array":
            return values.make_array(body[0], [self.value(item) for item in body[1]])
        if base in ("defaultdict", "deque"):
            body = body[0]
        if issubclass(_CONTAINERS[base], dict):
            pairs = [(self.value(key), self.value(item)) for key, item in body]
            if base == "Counter":
                values.use_counts(pairs)
            return pairs
        if type(body) is not list:
            raise BadValue("form", "not a list of items")
        return body if values.ATOMS.issuperset(map(type, body)) else [self.value(item) for item in body]


def _is_builtin(container: Any) -> bool:
    return id(type(container)) in _KIND_IDS


def _base(container: Any) -> str:
    kind = type(container)
    base = _KINDS[kind] if id(kind) in _KIND_IDS else None
    if base is None:
        above = values.base_of(kind)
        base = packaged.kind_of(container, kind) if above is None else above.__name__
    if base is None:
        raise BadValue("type", "an array or image that has changed its kind")
    return base


def _content(container: Any) -> Any:
    base = _base(container)
    if base == "list":
        return list.__getitem__(container, _ALL)
    if base in packaged.KINDS:
        return packaged.content(container, base)
    kind = _CONTAINERS[base]
    if issubclass(kind, dict):
        values.refuse_attributes(container)
        return [part for pair in kind.items(container) for part in pair]
    return bytes(memoryview(container)) if base in ("bytearray", "array") else [*kind.__iter__(container)]


def _same(content: Any, container: Any) -> bool:
    """Return whether a container still has the same objects, by identity, in any order if it is a set."""
    now = _content(container)
    if type(content) is not list:
        return bool(content == now)
    if len(content) != len(now):
        return False
    if isinstance(container, set):
        known = set(map(id, content))
        return all(id(item) in known for item in now)
    return all(map(operator.is_, content, now))


def _fill(container: Any, base: str, items: Any) -> None:
    """Replace a container's content, but keep equal keys of a dict: tests may be iterating over it."""
    if base in packaged.KINDS:
        packaged.fill(container, base, items)
        return
    kind = _CONTAINERS[base]
    if base in ("list", "bytearray", "array"):
        kind.__setitem__(container, _ALL, items)
    elif issubclass(kind, dict):
        keys = [*kind.keys(container)]
        if len(keys) != len(items) or not all(map(_same_key, keys, (key for key, _ in items))):
            kind.clear(container)
        for key, item in items:
            kind.__setitem__(container, key, item)
    else:
        kind.clear(container)
        kind.update(container, items) if base == "set" else kind.extend(container, items)


def _same_key(left: Any, right: Any) -> bool:
    """Return whether two keys are certainly equal, without calling the program."""
    return left is right or (type(left) is type(right) and values.is_leaf(left) and bool(left == right))


def _as_dict(value: Any) -> Any:
    if not isinstance(value, dict):
        raise BadValue("form", "a view of what is no dict")
    return value
