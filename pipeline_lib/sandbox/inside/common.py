"""Mutable containers that tests and program have in common, so that each side sees what the other does to them.

A list that the tests pass, or that the program returns and keeps, exists once on each side, under one number.  Every
message brings the new content of those whose content has changed since the last one; a container is forgotten as soon
as one of the sides has no other name for it.  So an argument that a program changes is changed for the tests, two names
of one row stay two names of one row, and a list that a program returns and goes on changing does not stay as it was.

Promises nothing of the program's side, which is in the program's hands.  To the judge: whatever a program sends, its
messages raise `plain.BadValue`, or give containers that stand for numbers which are known, or are new, the content of
a plain value; together with what they share, values are bounded in size.
"""

from __future__ import annotations

import array
import collections
import operator
import sys
from typing import Any

from . import values
from .plain import CELLS, BadValue

MOST = 1024  # containers that are known from one call to the next
_MOST_PARTS = 1 << 20  # of a value, what it holds twice counted twice
_SEQUENCES = (list, tuple, collections.deque)
_COMPARED = (bytearray, set)
_ATOMS = frozenset({type(None), bool, int, float, str, complex, bytes, range})


class Common:
    """One side's table of the containers that both sides know.

    Args:
        first: the first number that this side gives; it goes on in steps of two.
    """

    def __init__(self, first: int) -> None:
        self._next = first
        self.cells: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}  # of containers by id
        self._before: dict[int, Any] = {}  # the content when the other side knew it last
        self.shares = False  # the message being read speaks of a container twice
        self.repeats = False  # so may the one that is written

    def number(self, cell: Any) -> int | None:
        """Return the number of a container that both sides know, or will by this message."""
        found = self._numbers.get(id(cell))
        self.repeats = self.repeats or found is not None
        return found

    def add(self, cell: Any) -> int:
        """Give a container a number."""
        number = self._next
        self._next += 2
        self._keep(number, cell)
        return number

    def known(self, number: Any) -> Any:
        """Return the container of a number that the other side speaks of; raises KeyError if there is none."""
        self.shares = True
        return self.cells[number]

    def arrive(self, number: Any, cell: Any) -> Any:
        """Take over a container that the other side has given a number, and return it."""
        if type(number) is not int or number in self.cells or number % 2 == self._next % 2:
            raise BadValue("form", "not a new number")
        if type(cell) not in CELLS or id(cell) in self._numbers:
            raise BadValue("form", "not a container")
        self._keep(number, cell)
        return cell

    def note(self) -> None:
        """Remember the content of every container of which there is no note as what the other side holds it for."""
        for number, cell in self.cells.items():
            if number not in self._before:
                self._before[number] = _content(cell)

    def changes(self) -> list[Any]:
        """Return number and content of every container that has changed since it was noted, and forget the notes."""
        before, self._before = self._before, {}
        changed = [number for number, content in before.items() if not _same(content, self.cells[number])]
        return [[number, values.encode_content(self.cells[number], 0, self)] for number in changed]

    def change(self, changes: list[Any]) -> None:
        """Give containers the content that the other side says they have."""
        fresh = [(number, self.cells[number], values.decode(form, self)) for number, form in changes]
        for number, cell, content in fresh:
            _replace(cell, content)
            self._before.pop(number, None)

    def prune(self) -> list[int]:
        """Forget the containers that nothing else on this side refers to, and return their numbers.

        Containers stand before those that they hold, so that one pass finds nearly all.
        """
        gone = []
        for number in [*self.cells]:
            if sys.getrefcount(self.cells[number]) <= 2 or len(self.cells) > MOST:  # the table, and the argument here
                self.forget([number])
                gone.append(number)
        return gone

    def forget(self, numbers: list[int]) -> None:
        """Forget containers, as far as they are known."""
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


def shared(holder: list[Any]) -> bool:
    """Return whether the value in ``holder`` has a container twice, or one that something else refers to as well.

    That may be this table; the caller must have no other name for the value.
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
            return True  # nobody knows what comes out of it
        elif type(container) in CELLS and (count > 1 or sys.getrefcount(container) > count + _OWN_NAMES):
            return True
    return False


def holds_itself(value: Any) -> bool:
    """Return whether there is a container in a value that holds itself, directly or in others."""
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
    """Return whether a value is too large when what it holds twice is counted twice."""
    sizes: dict[int, int] = {}

    def size(container: Any) -> int:
        known = sizes.get(id(container))
        if known is None:
            sizes[id(container)] = 1  # for a container that holds itself
            items = _items(container)
            known = sizes[id(container)] = len(items) + sum(map(size, _containers(items)))
        return known

    try:
        return sum(map(size, _containers([value]))) > _MOST_PARTS
    except RecursionError:
        return True


def _items(container: Any) -> Any:
    """Return the values directly in a container, those that cannot hold a mutable one left out."""
    if isinstance(container, dict):
        return dict.values(container)
    return container if isinstance(container, _SEQUENCES) else ()


def _containers(items: Any) -> list[Any]:
    return [] if _ATOMS.issuperset(map(type, items)) else [item for item in items if type(item) not in _ATOMS]


def _content(cell: Any) -> Any:
    """Return what there is to compare a container's content with later."""
    if type(cell) is list:
        return cell[:]
    if isinstance(cell, dict):
        return list(cell), list(cell.values())
    if type(cell) is array.array:
        return cell.tobytes()
    return bytes(cell) if isinstance(cell, bytearray) else cell.copy() if isinstance(cell, set) else list(cell)


def _same(content: Any, cell: Any) -> bool:
    """Return whether a container still holds the very objects that it held."""
    if isinstance(cell, dict):
        return _same_items(content[0], list(cell)) and _same_items(content[1], list(cell.values()))
    if type(cell) is array.array:
        return bool(content == cell.tobytes())
    return bool(content == cell) if isinstance(cell, _COMPARED) else _same_items(content, cell)


def _same_items(left: Any, right: Any) -> bool:
    return len(left) == len(right) and all(map(operator.is_, left, right))


def _replace(cell: Any, content: Any) -> None:
    """Give a container the content of another of its kind."""
    if type(cell) is not type(content):
        raise BadValue("form", "a container has become another")
    if type(cell) in (list, bytearray, array.array):
        cell[:] = content
    else:
        cell.clear()
        cell.extend(content) if isinstance(cell, collections.deque) else cell.update(content)


def _own_names() -> int:
    """Return how many references to a container that nobody else has `shared` finds beside its holder's."""
    found: list[Any] = [[]]
    while found:
        container = found.pop()
        return sys.getrefcount(container)
    raise AssertionError


_OWN_NAMES = _own_names()
