"""Mutable containers that tests and program have in common, so that each side sees the other's changes.

A list that the tests pass, or that the program returns and keeps, exists once on each side, under one number.  Every
message carries the new content of those that have changed since the last one.  A container is forgotten as soon as one
side has no other reference to it.  So an argument that a program changes is changed for the tests, two references to
one row stay references to one row, and later changes of a returned list are seen.

Promises nothing on the program's side, which the program controls.  To the judge: any message of a program raises
`plain.BadValue`, or gives the containers of known or new numbers the content of a plain value; the size of values,
shared parts included, is bounded.
"""

from __future__ import annotations

import array
import collections
import operator
import sys
from typing import Any

from . import values
from .plain import CELLS, BadValue

MOST = 1024  # containers kept from one call to the next
_MOST_PARTS = 1 << 20  # of a value; a part that it contains twice counts twice
_SEQUENCES = (list, tuple, collections.deque)
_COMPARED = (bytearray, set)
_ATOMS = frozenset({type(None), bool, int, float, str, complex, bytes, range})


class Common:
    """One side's table of the containers that both sides know.

    Args:
        first: the first number that this side assigns; it continues in steps of two.
    """

    def __init__(self, first: int) -> None:
        self._next = first
        self.cells: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}  # of containers by id
        self._before: dict[int, Any] = {}  # the content that the other side last knew
        self.shares = False  # the message being read refers to a known container
        self.repeats = False  # so does the one being written

    def number(self, cell: Any) -> int | None:
        """Return the number of a container that both sides know, or will know from this message."""
        found = self._numbers.get(id(cell))
        self.repeats = self.repeats or found is not None
        return found

    def add(self, cell: Any) -> int:
        """Assign a number to a container."""
        number = self._next
        self._next += 2
        self._keep(number, cell)
        return number

    def known(self, number: Any) -> Any:
        """Return the container of a number that the other side sent; raises KeyError if there is none."""
        self.shares = True
        return self.cells[number]

    def arrive(self, number: Any, cell: Any) -> Any:
        """Add a container to which the other side has assigned a number, and return it."""
        if type(number) is not int or number in self.cells or number % 2 == self._next % 2:
            raise BadValue("form", "not a new number")
        if type(cell) not in CELLS or id(cell) in self._numbers:
            raise BadValue("form", "not a container")
        self._keep(number, cell)
        return cell

    def note(self) -> None:
        """Store the content of every container without a note: the content that the other side now knows."""
        for number, cell in self.cells.items():
            if number not in self._before:
                self._before[number] = _content(cell)

    def changes(self) -> list[Any]:
        """Return number and content of every container that has changed since `note`, and forget the notes."""
        before, self._before = self._before, {}
        changed = [number for number, content in before.items() if not _same(content, self.cells[number])]
        return [[number, values.encode_content(self.cells[number], 0, self)] for number in changed]

    def change(self, changes: list[Any]) -> None:
        """Replace the content of containers by what the other side sent."""
        fresh = [(number, self.cells[number], values.decode(form, self)) for number, form in changes]
        for number, cell, content in fresh:
            _replace(cell, content)
            self._before.pop(number, None)

    def prune(self) -> list[int]:
        """Forget the containers that nothing else on this side refers to, and return their numbers.

        Containers come before those inside them, so one pass finds nearly all.
        """
        gone = []
        for number in [*self.cells]:
            if sys.getrefcount(self.cells[number]) <= 2 or len(self.cells) > MOST:  # the table, and the argument here
                self.forget([number])
                gone.append(number)
        return gone

    def forget(self, numbers: list[int]) -> None:
        """Forget those of these containers that are known."""
        for number in numbers:
            cell = self.cells.pop(number, None)
            if cell is not None:
                self._numbers.pop(id(cell), None)
                self._before.pop(number, None)

    def keep(self, numbers: list[int]) -> None:
        """Forget all containers but these, and note the content of these; raises KeyError for one that is unknown."""
        kept = {number: self.cells[number] for number in numbers}
        self.forget([number for number in self.cells if number not in kept])
        self.note()

    def clear(self) -> None:
        """Forget every container."""
        self.forget(list(self.cells))

    def _keep(self, number: int, cell: Any) -> None:
        self.cells[number] = cell
        self._numbers[id(cell)] = number


def is_shared(holder: list[Any]) -> bool:
    """Return whether the value in ``holder`` has a container twice, or one with another reference to it.

    The other reference may be the table's; the caller must have none to the value itself.
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
        if isinstance(container, tuple):
            if count > 1:
                return True
        elif hasattr(type(container), "__next__"):
            return True  # its items are not known yet
        elif type(container) in CELLS and (count > 1 or sys.getrefcount(container) > count + _OWN_NAMES):
            return True
    return False


def holds_itself(value: Any) -> bool:
    """Return whether a value has a container that contains itself, directly or through others."""
    open_: set[int] = set()
    done: set[int] = set()
    pending = [(value, False)]
    while pending:
        container, left = pending.pop()
        if left:
            open_.discard(id(container))
            done.add(id(container))
        elif id(container) in open_:
            return True
        elif id(container) not in done:
            open_.add(id(container))
            pending.append((container, True))
            pending += [(item, False) for item in _containers(_items(container))]
    return False


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
    """Return the values directly in a container, without those that cannot contain a mutable one."""
    if isinstance(container, dict):
        return dict.values(container)
    return container if isinstance(container, _SEQUENCES) else ()


def _containers(items: Any) -> list[Any]:
    return [] if _ATOMS.issuperset(map(type, items)) else [item for item in items if type(item) not in _ATOMS]


def _content(cell: Any) -> Any:
    """Return a copy of a container's content for a later comparison."""
    if type(cell) is list:
        return cell[:]
    if isinstance(cell, dict):
        return list(cell), list(cell.values())
    if type(cell) is array.array:
        return cell.tobytes()
    return bytes(cell) if isinstance(cell, bytearray) else cell.copy() if isinstance(cell, set) else list(cell)


def _same(content: Any, cell: Any) -> bool:
    """Return whether a container still has the same objects, by identity."""
    if isinstance(cell, dict):
        return _same_items(content[0], list(cell)) and _same_items(content[1], list(cell.values()))
    if type(cell) is array.array:
        return bool(content == cell.tobytes())
    return bool(content == cell) if isinstance(cell, _COMPARED) else _same_items(content, cell)


def _same_items(left: Any, right: Any) -> bool:
    return len(left) == len(right) and all(map(operator.is_, left, right))


def _replace(cell: Any, content: Any) -> None:
    """Replace the content of a container by that of another of its type."""
    if type(cell) is not type(content):
        raise BadValue("form", "a container has changed its type")
    if type(cell) in (list, bytearray, array.array):
        cell[:] = content
    else:
        cell.clear()
        cell.extend(content) if isinstance(cell, collections.deque) else cell.update(content)


def _own_names() -> int:
    """Return the reference count that `is_shared` sees for an unshared container, apart from its holder."""
    found: list[Any] = [[]]
    while found:
        container = found.pop()
        return sys.getrefcount(container)
    raise AssertionError


_OWN_NAMES = _own_names()
