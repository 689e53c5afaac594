"""Appointments: what suits each of two agents, and which plans satisfy both.

A plan is a day and a place.  Each agent has a constraint of each kind: days on which it can come, places that suit it,
and a budget that the price of the place may not exceed.  Exactly one plan satisfies all of them.  With budgets another
place suits both agents, too, and is too dear for one of them or for both.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline_lib.problems.splitting import FAMILY_SHARES, draw_distinct, split_of
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.environments.planning.settings import AppointmentProblems

AGENTS = ("first", "second")
SINGLE = "single"

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

#: The places with their prices, which everybody knows.
PRICES = {"park": 1, "lake": 1, "gym": 2, "zoo": 2, "pier": 3, "cafe": 3, "mall": 4, "club": 4}
PLACES = tuple(PRICES)
GREATEST_BUDGET = 3

#: A day and a place.
Plan = tuple[str, str]

PLANS: tuple[Plan, ...] = tuple(itertools.product(DAYS, PLACES))


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """The constraints of both agents."""

    days: tuple[tuple[str, ...], ...]  #: those that suit each agent, in the order in which it is told them
    places: tuple[tuple[str, ...], ...]  #: the same
    budgets: tuple[int, ...] = ()  #: the most that each agent pays; empty if it does not matter
    plain: bool = False  #: the agents are prompted in plain English

    @property
    def content_hash(self) -> str:
        """Return a digest of the constraints in any order, whichever agent has which."""
        return min(self._digest((0, 1)), self._digest((1, 0)))

    def _digest(self, agents: Sequence[int]) -> str:
        sets = [[sorted(values[agent]) for agent in agents] for values in (self.days, self.places)]
        return digest([sets, [self.budgets[agent] for agent in agents if self.budgets]])

    @property
    def id(self) -> str:
        return f"appointment/{self._digest((0, 1))[:12]}"

    @property
    def family(self) -> str:
        """Return the id: appointments are drawn independently."""
        return self.id

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "family": self.family, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PlanningProblem:
        """Rebuild a problem.

        Raises:
            TypeError: a key is unknown or missing, or a value of another kind.
            ValueError: there are not two agents, or there is no such day or place.
        """
        read = cls(**{name: each for name, each in value.items() if name not in ("id", "family")})
        days, places = (tuple(map(tuple, values)) for values in (read.days, read.places))
        budgets = tuple(read.budgets)
        if {len(days), len(places), len(budgets or AGENTS)} != {len(AGENTS)}:
            raise ValueError("an appointment needs days and places of two agents, and two budgets or none")
        for name, known, values in (("day", DAYS, days), ("place", PLACES, places)):
            if wrong := {each for own in values for each in own} - {*known}:
                raise ValueError(f"there is no {name} {min(wrong)!r}; accepted: {', '.join(known)}")
        if not all(type(budget) is int for budget in budgets):
            raise TypeError(f"budgets must be whole numbers, got {list(budgets)}")
        return dataclasses.replace(read, days=days, places=places, budgets=budgets)

    def affords(self, agent: int, place: str) -> bool:
        """Return whether the price of a place is within the budget of an agent."""
        return not self.budgets or PRICES[place] <= self.budgets[agent]

    def satisfied(self, agent: int, plan: Plan) -> list[bool]:
        """Return whether a plan satisfies each constraint of an agent: day, place, and budget if there is one."""
        day, place = plan
        budget = [self.affords(agent, place)] if self.budgets else []
        return [day in self.days[agent], place in self.places[agent], *budget]

    def share(self, plan: Plan | None) -> float:
        """Return the share of all constraints that a plan satisfies; 0 without a plan."""
        met = [one for agent in range(len(AGENTS)) for one in self.satisfied(agent, plan)] if plan else [False]
        return sum(met) / len(met)

    def suiting(self, *agents: int) -> list[Plan]:
        """Return the plans that satisfy all constraints of some agents."""
        return [plan for plan in PLANS if all(all(self.satisfied(agent, plan)) for agent in agents)]

    def told(self, agent: int) -> list[str]:
        """Return what the other one needs to know of an agent: its days, and those of its places that it can pay."""
        return [*self.days[agent], *(place for place in self.places[agent] if self.affords(agent, place))]


def blind(problems: Sequence[PlanningProblem]) -> tuple[Plan, float, float]:
    """Return the one plan that is best for some problems, by enumeration of all plans.

    Returns:
        The plan, the share of the problems in which it satisfies everything, and its mean share of the constraints.
    """
    rates = {
        plan: tuple(
            sum(value) / len(problems)
            for value in zip(*((p.share(plan) >= 1.0, p.share(plan)) for p in problems), strict=True)
        )
        for plan in PLANS
    }
    best = max(PLANS, key=lambda plan: rates[plan])
    return best, *rates[best]


def generate(settings: AppointmentProblems) -> dict[str, list[PlanningProblem]]:
    """Return the problems of all splits; the same settings give the same problems.

    None has in another split its mirror image, in which the agents have exchanged their constraints.

    Raises:
        ValueError: a split is larger than the number of different problems that can be found for it.
    """
    rng = random.Random(digest(["planning", settings.seed]))
    split_of_content: dict[str, str] = {}

    def drawn(split: str) -> list[PlanningProblem]:
        def one(_: int) -> PlanningProblem | None:
            problem = draw_problem(settings, rng)
            if split_of(problem.family, settings.seed, settings.apart_from) != split:
                return None
            return problem if split_of_content.setdefault(problem.content_hash, split) == split else None

        return draw_distinct(split, getattr(settings.sizes, split), one, "ask for fewer")

    return {split: drawn(split) for split in FAMILY_SHARES}


def draw_problem(settings: AppointmentProblems, rng: random.Random) -> PlanningProblem:
    """Return an appointment that exactly one plan allows."""
    own = settings.options - 1
    days = _dealt(rng.sample(DAYS, 1 + 2 * own), 1, own, rng)
    plain = settings.prompt == "plain"
    if not settings.budgets:
        return PlanningProblem(days, _dealt(rng.sample(PLACES, 1 + 2 * own), 1, own, rng), plain=plain)
    best = rng.choice([place for place, price in PRICES.items() if price <= GREATEST_BUDGET])
    budgets = tuple(rng.randint(PRICES[best], GREATEST_BUDGET) for _ in AGENTS)
    dear = rng.choice([place for place, price in PRICES.items() if price > min(budgets)])
    others = rng.sample([place for place in PLACES if place not in (best, dear)], 2 * (own - 1))
    return PlanningProblem(days, _dealt([best, dear, *others], 2, own - 1, rng), budgets, plain)


def _dealt(values: Sequence[str], common: int, own: int, rng: random.Random) -> tuple[tuple[str, ...], ...]:
    """Return for each of two agents the common values, which come first, and so many of its own, in random order."""
    parts = [[*values[:common], *values[start : start + own]] for start in (common, common + own)]
    return tuple(tuple(rng.sample(part, len(part))) for part in parts)
