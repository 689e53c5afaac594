"""Which philosophers share which fork: the usual ring, a chain, and a grid.

Every philosopher needs exactly two forks, its left and its right one.  A fork may be needed by one philosopher (the
ends of a chain), by two (a ring), or by three (inside a grid).  This module does not depend on time or rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

GraphName = Literal["ring", "chain", "grid"]

#: Fewest and most philosophers a table seats.
SEATS = (2, 50)


@dataclass(frozen=True)
class Graph:
    """A seating plan.

    Attributes:
        name: ``ring``, ``chain`` or ``grid``.
        left: fork to the left of each philosopher, by philosopher.
        right: fork to the right of each philosopher.
    """

    name: GraphName
    left: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def philosophers(self) -> int:
        """Return the number of philosophers, N."""
        return len(self.left)

    @cached_property
    def forks(self) -> int:
        """Return the number of forks, F; each belongs to at least one philosopher."""
        return max(*self.left, *self.right) + 1

    @cached_property
    def left_index(self) -> npt.NDArray[np.intp]:
        """Return ``left`` as an index array, shape (N,)."""
        return np.array(self.left, dtype=np.intp)

    @cached_property
    def right_index(self) -> npt.NDArray[np.intp]:
        """Return ``right`` as an index array, shape (N,)."""
        return np.array(self.right, dtype=np.intp)

    @cached_property
    def hands(self) -> npt.NDArray[np.intp]:
        """Return, for every fork, the hands that can hold it; shape (F, D), D the most hands of any fork.

        Hand i is philosopher i's left hand, hand N + i its right hand; 2 N stands for "no such hand".
        """
        n = self.philosophers
        reach: list[list[int]] = [[] for _ in range(self.forks)]
        for i in range(n):
            reach[self.left[i]].append(i)
            reach[self.right[i]].append(n + i)
        width = max(len(row) for row in reach)
        return np.array([row + [2 * n] * (width - len(row)) for row in reach], dtype=np.intp)

    @cached_property
    def neighbours(self) -> tuple[tuple[int, ...], ...]:
        """Return the philosophers each one shares a fork with, in ascending order."""
        forks = [{self.left[i], self.right[i]} for i in range(self.philosophers)]
        return tuple(tuple(j for j in range(len(forks)) if j != i and forks[i] & forks[j]) for i in range(len(forks)))

    @cached_property
    def colours(self) -> tuple[int, ...]:
        """Return a colour per philosopher so that no two neighbours share one: a timetable for taking turns.

        Seats 0, 2, 4, ... get colour 0 and seats 1, 3, 5, ... colour 1 where that works; the smallest free colour is
        used where it does not (the last seat of an odd ring gets colour 2).
        """
        colours: list[int] = []
        for i in range(self.philosophers):
            used = {colours[j] for j in self.neighbours[i] if j < i}
            colours.append(next(c for c in range(len(used) + 1) if c not in used))
        return tuple(colours)


@lru_cache(maxsize=256)
def make_graph(name: str, philosophers: int) -> Graph:
    """Build a seating plan.

    * ``ring``: philosopher i has fork i on the left and fork i + 1 (mod N) on the right; N forks.
    * ``chain``: the same without closing the circle; N + 1 forks.  A circular wait is impossible here.
    * ``grid``: forks are in two rows, philosophers sit between adjacent ones (rung, upper edge, lower edge, rung,
      ...); up to three share a fork, and beyond six philosophers there are fewer forks than philosophers.

    Raises:
        ValueError: an unknown name, or a number of philosophers outside `SEATS`.
    """
    low, high = SEATS
    if not low <= philosophers <= high:
        raise ValueError(f"philosophers: got {philosophers}; a table seats {low} to {high}")
    seats = range(philosophers)
    if name == "ring":
        return Graph("ring", tuple(seats), tuple((i + 1) % philosophers for i in seats))
    if name == "chain":
        return Graph("chain", tuple(seats), tuple(i + 1 for i in seats))
    if name == "grid":
        # Column c has forks 2 c (upper row) and 2 c + 1 (lower row).
        edges = [pair for c in seats for pair in ((2 * c, 2 * c + 1), (2 * c, 2 * c + 2), (2 * c + 1, 2 * c + 3))]
        edges = edges[:philosophers]
        used = sorted({fork for edge in edges for fork in edge})
        number = {fork: index for index, fork in enumerate(used)}
        return Graph("grid", tuple(number[a] for a, _ in edges), tuple(number[b] for _, b in edges))
    raise ValueError(f"graph: got {name!r}; accepted: ring, chain, grid")
