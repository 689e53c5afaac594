"""Scenarios of dining philosophers: a seeded generator, so that there is something to generalise to.

The published benchmark has one scenario per number of philosophers; training and testing on it would be the same
thing.  Here a scenario determines seats and numbers, who wins a contested fork, which forks are held at the start, how
long meals and the episode last, and how the prompt is worded.  Scenarios are drawn with a seed; every scenario of a
split is different from every other of any split.  `dpbench` is the published condition.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline_lib.environments.philosophers.seating import Graph, make_graph
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environments.philosophers.settings import ScenarioFamily, ScenarioProblems

#: Draws per scenario before a family counts as exhausted.
_ATTEMPTS = 200


@dataclass(frozen=True, slots=True)
class Scenario:
    """One table to be played.

    Attributes:
        id: unique, for example ``scenarios/ring-5-3fa1c0``.
        source: ``scenarios``.
        family: the cluster that statistics resample: scenarios are drawn independently, so each is its own.
        level: the number of philosophers, which is what makes a table hard.
        graph: ``ring``, ``chain`` or ``grid``.
        philosophers: N.
        labels: the number of each philosopher, in seating order; empty at an anonymous table.
        priority: a permutation of 0..N-1; 0 wins contested forks, and moves first in sequential mode.
        holdings: what each philosopher holds at the start: 0 nothing, 1 the left fork, 2 the right fork.
        eating_time: steps a meal lasts after the step in which it begins.
        horizon: steps of the episode (sequential mode: moves).
        wording: number of the introduction in the prompt.
    """

    id: str
    source: str
    family: str
    level: int
    graph: str
    philosophers: int
    labels: tuple[int, ...]
    priority: tuple[int, ...]
    holdings: tuple[int, ...]
    eating_time: int
    horizon: int
    wording: int

    @property
    def plan(self) -> Graph:
        """Return the seating plan."""
        return make_graph(self.graph, self.philosophers)

    @property
    def content_hash(self) -> str:
        """Return the SHA-256 of everything but the names of the scenario."""
        content = dataclasses.asdict(self)
        return digest({key: value for key, value in content.items() if key not in ("id", "source", "family", "level")})

    def to_json(self) -> dict[str, Any]:
        """Return the scenario as a JSON object with one key per attribute."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Scenario:
        """Rebuild a scenario from `to_json`; unknown or missing keys raise TypeError."""
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
    sizes = {"test": settings.sizes.test, "validation": settings.sizes.validation, "train": settings.sizes.train}
    for split, size in sizes.items():
        if split not in splits:
            splits[split] = _draw_split(settings.family, size, rng, seen, split)
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
    labels = {
        "seat": tuple(seats),
        "shuffled": tuple(rng.sample(range(4 * n), n)),
        "anonymous": (),
    }[family.labels]
    priority = tuple(rng.sample(seats, n)) if family.priority == "shuffled" else tuple(seats)
    return make_scenario(
        graph,
        n,
        rng.choice(family.horizon),
        labels,
        priority,
        _draw_holdings(make_graph(graph, n), family.held, rng),
        rng.choice(family.eating_time),
        rng.randrange(family.wordings),
    )


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
