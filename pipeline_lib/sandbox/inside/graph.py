"""Which containers a value consists of, who else refers to them, and how large it is when it is used."""

from __future__ import annotations

import collections
import gc
import sys
from typing import Any

from . import plain
from .plain import CELLS, VIEWS

_MOST_PARTS = 1 << 20  # of a value; a part that it contains twice counts twice
_DEEPEST = 100
_SEQUENCES = (list, tuple, collections.deque)
_ATOMS = frozenset({type(None), bool, int, float, str, complex, bytes, range})


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
            if type(container) in CELLS or type(container) in VIEWS:
                return True
            if isinstance(container, tuple) and not is_immutable(container):
                return True
        if hasattr(type(container), "__next__"):
            return True  # its items are not known yet
    return False


def is_immutable(value: Any, depth: int = 0) -> bool:
    """Return whether a value is plain and nothing in it can change."""
    if type(value) in _ATOMS or plain.is_leaf(value):
        return True
    if depth > _DEEPEST or (type(value) not in (tuple, frozenset) and plain.fields_of(type(value)) is None):
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
    """Return the values directly in a container, without those that cannot contain a mutable one."""
    if isinstance(container, dict):
        return dict.values(container)
    if type(container) in VIEWS:
        return gc.get_referents(container)  # its dict
    if isinstance(container, _SEQUENCES):
        kind: Any = next(kind for kind in _SEQUENCES if isinstance(container, kind))
        return [*kind.__iter__(container)]
    return ()


def _containers(items: Any) -> list[Any]:
    return [] if _ATOMS.issuperset(map(type, items)) else [item for item in items if type(item) not in _ATOMS]


def _own_names() -> int:
    """Return the reference count that `is_shared` sees for an unshared container, apart from its holder."""
    found: list[Any] = [[]]
    while found:
        container = found.pop()
        return sys.getrefcount(container)
    raise AssertionError


_OWN_NAMES = _own_names()
