"""Appointments, and the truth about them from what agents are told, in plain Python."""

import re
from functools import cache

from pipeline_lib.environments.planning.problem import PlanningProblem, generate
from pipeline_lib.environments.planning.runtime import PlanningEnvironment
from pipeline_lib.environments.planning.settings import AppointmentProblems, PlanningSettings

SIZES = {"train": 150, "validation": 12, "test": 40}

#: Every word that may name a day or a place.  What a place costs is in the rules of prompts in plain English.
WEEK = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
COSTS = {"park": 1, "lake": 1, "gym": 2, "zoo": 2, "pier": 3, "cafe": 3, "mall": 4, "club": 4}
ALL = [(day, place) for day in WEEK for place in COSTS]


@cache
def appointments(options: int = 3, budgets: bool = True) -> dict[str, list[PlanningProblem]]:
    return generate(AppointmentProblems(options=options, budgets=budgets, sizes=SIZES))


def constraints(problem: PlanningProblem) -> list[set[tuple[str, str]]]:
    """Return the plans that each constraint allows, read from the prompts of both agents."""
    team, found = PlanningEnvironment(PlanningSettings()), []
    for agent in (0, 1):
        told = team.observe(team.start(problem), agent)
        days, places = (re.search(rf"{kind} ([a-z ]+)", told)[1].split() for kind in ("days", "places"))
        found += [{plan for plan in ALL if plan[0] in days}, {plan for plan in ALL if plan[1] in places}]
        if budget := re.search(r"budget (\d)", told):
            found.append({plan for plan in ALL if COSTS[plan[1]] <= int(budget[1])})
    return found


def share_of(problem: PlanningProblem, plan: tuple[str, str]) -> float:
    allowed = constraints(problem)
    return sum(plan in each for each in allowed) / len(allowed)
