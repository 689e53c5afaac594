"""Scenarios of dining philosophers: seating plans, and a seeded generator, so that there is something to generalise to.

The published benchmark has one scenario per number of philosophers; training and testing on it would be the same
thing.  Here a scenario determines seats and numbers, who wins a contested fork, which forks are held at the start, how
long meals and the episode last, and how the prompt is worded.  Scenarios are drawn with a seed; every scenario of a
split is different from every other of any split.  `dpbench` is the published condition.

Every philosopher needs exactly two forks, its left and its right one.  A fork may be needed by one philosopher (the
ends of a chain), by two (a ring), or by three (inside a grid).
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pipeline_lib.environments.philosophers.settings import SEATS, ScenarioFamily, ScenarioProblems
from pipeline_lib.storage import digest

GraphName = Literal["ring", "chain", "grid"]


@dataclass(frozen=True)
class Graph:
    """A seating plan."""

    name: GraphName  #: ``ring``, ``chain`` or ``grid``
    left: tuple[int, ...]  #: fork to the left of each philosopher, by philosopher
    right: tuple[int, ...]  #: fork to the right of each philosopher

    @property
    def philosophers(self) -> int:
        return len(self.left)

    @cached_property
    def forks(self) -> int:
        """Return the number of forks, F; each belongs to at least one philosopher."""
        return max(*self.left, *self.right) + 1

    @cached_property
    def left_index(self) -> npt.NDArray[np.intp]:
        return np.array(self.left, dtype=np.intp)

    @cached_property
    def right_index(self) -> npt.NDArray[np.intp]:
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


#: Draws per scenario before a family counts as exhausted.
_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class Scenario:
    """One table to be played."""

    id: str  #: unique, for example ``scenarios/ring-5-3fa1c0``
    source: str  #: ``scenarios``
    family: str  #: the cluster that statistics resample: scenarios are drawn independently, so each is its own
    level: int  #: the number of philosophers, which is what makes a table hard
    graph: str  #: ``ring``, ``chain`` or ``grid``
    philosophers: int  #: N
    labels: tuple[int, ...]  #: the number of each philosopher, in seating order; empty at an anonymous table
    priority: tuple[int, ...]  #: a permutation of 0..N-1; 0 wins contested forks, and moves first in sequential mode
    holdings: tuple[int, ...]  #: what each philosopher holds at the start: 0 nothing, 1 the left fork, 2 the right fork
    eating_time: int  #: steps a meal lasts after the step in which it begins
    horizon: int  #: steps of the episode (sequential mode: moves)
    wording: int  #: number of the introduction in the prompt

    @property
    def plan(self) -> Graph:
        return make_graph(self.graph, self.philosophers)

    @property
    def content_hash(self) -> str:
        content = dataclasses.asdict(self)
        return digest({key: value for key, value in content.items() if key not in ("id", "source", "family", "level")})

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Scenario:
        values: dict[str, Any] = {k: tuple(item) if isinstance(item, list) else item for k, item in value.items()}
        return cls(**values)


def make_scenario(
    graph: str,
    philosophers: int,
    horizon: int = 30,
    labels: tuple[int, ...] | None = None,
    priority: tuple[int, ...] | None = None,
    holdings: tuple[int, ...] | None = None,
    eating_time: int = 1,
    wording: int = 0,
) -> Scenario:
    """Make one scenario; what is not given is the published condition (P0..P{N-1}, lowest wins, nothing held).

    Raises:
        ValueError: an unknown graph, or a number of philosophers outside `SEATS`.
    """
    make_graph(graph, philosophers)
    seats = tuple(range(philosophers))
    scenario = Scenario(
        id="",
        source="scenarios",
        family="",
        level=philosophers,
        graph=graph,
        philosophers=philosophers,
        labels=seats if labels is None else labels,
        priority=seats if priority is None else priority,
        holdings=(0,) * philosophers if holdings is None else holdings,
        eating_time=eating_time,
        horizon=horizon,
        wording=wording,
    )
    name = f"scenarios/{graph}-{philosophers}-{scenario.content_hash[:12]}"
    return dataclasses.replace(scenario, id=name, family=name)


def dpbench(philosophers: int) -> Scenario:
    """Return the published condition: a ring, P0..P{N-1}, the lowest number wins, empty hands, 30 steps."""
    return make_scenario("ring", philosophers)


def generate_scenarios(settings: ScenarioProblems) -> dict[str, list[Scenario]]:
    """Return the scenarios of the splits ``train``, ``validation`` and ``test``.

    The same settings give the same scenarios.  With ``published_test`` the test split holds the published conditions,
    and no other split does.

    Raises:
        ValueError: the families have fewer different scenarios than requested.
    """
    rng = random.Random(digest(["scenarios", settings.seed]))
    seen: set[str] = set()
    splits: dict[str, list[Scenario]] = {}
    if settings.published_test:
        splits["test"] = [dpbench(n) for n in settings.published_test]
        seen.update(scenario.content_hash for scenario in splits["test"])
    for split in ("test", "validation", "train"):
        if split not in splits:
            splits[split] = _draw_split(settings.family, getattr(settings.sizes, split), rng, seen, split)
    return {split: splits[split] for split in ("train", "validation", "test")}


def _draw_split(family: ScenarioFamily, size: int, rng: random.Random, seen: set[str], name: str) -> list[Scenario]:
    """Draw ``size`` scenarios that were not seen before; sizes and graphs take turns."""
    scenarios: list[Scenario] = []
    kinds = [(graph, n) for n in family.philosophers for graph in family.graphs]
    for attempt in range(size * _ATTEMPTS):
        scenario = _draw(family, *kinds[(len(scenarios) + attempt // _ATTEMPTS) % len(kinds)], rng)
        if scenario.content_hash not in seen:
            seen.add(scenario.content_hash)
            scenarios.append(scenario)
            if len(scenarios) == size:
                return scenarios
    raise ValueError(
        f"problems: {name} needs {size} different scenarios, but only {len(scenarios)} more could be drawn; vary more "
        "(priority, labels, held, eating_time, horizon, wordings, philosophers) or ask for fewer"
    )


def _draw(family: ScenarioFamily, graph: str, n: int, rng: random.Random) -> Scenario:
    seats = list(range(n))
    # Arguments are drawn in this order, whatever the family uses: the same seed gives the same scenarios.
    labels = {"seat": tuple(seats), "shuffled": tuple(rng.sample(range(4 * n), n)), "anonymous": ()}[family.labels]
    priority = tuple(rng.sample(seats, n)) if family.priority == "shuffled" else tuple(seats)
    horizon, held = rng.choice(family.horizon), _draw_holdings(make_graph(graph, n), family.held, rng)
    eating_time, wording = rng.choice(family.eating_time), rng.randrange(family.wordings)
    return make_scenario(graph, n, horizon, labels, priority, held, eating_time, wording)


def _draw_holdings(graph: Graph, share: float, rng: random.Random) -> tuple[int, ...]:
    """Give each philosopher, with probability ``share``, one of its forks; never all forks, which is a deadlock."""
    held = [0] * graph.philosophers
    taken: set[int] = set()
    for i in rng.sample(range(graph.philosophers), graph.philosophers):
        if rng.random() < share:
            hand = rng.choice((1, 2))
            fork = graph.left[i] if hand == 1 else graph.right[i]
            if fork not in taken and len(taken) < graph.forks - 1:
                taken.add(fork)
                held[i] = hand
    return tuple(held)
