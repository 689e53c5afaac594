"""What agents who know how say in a dialogue, and demonstrations of it for the warm start, with many mistakes.

One agent tells what suits it, the other one agrees to the plan that suits both, and the first one to the same plan.
Mistakes are an early or a wrong agreement, talk that is not needed, half of what is, and silence.  Reinforcement
learning has to find out who should tell what, when to be silent, and when to agree.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from pipeline_lib.environment_api.task import Demonstration
from pipeline_lib.environments.planning.problem import AGENTS, DAYS, PLACES, SINGLE, Plan, PlanningProblem
from pipeline_lib.environments.planning.runtime import PlanningEnvironment, PlanningState, read_agreement
from pipeline_lib.environments.planning.settings import PlanningSettings
from pipeline_lib.storage import digest

#: Share of the problems that are demonstrated by one agent with all constraints.
ALONE = 0.2


def agree(plan: Plan) -> str:
    """Return how an agent agrees to a plan."""
    return f"agree {' '.join(plan)}"


def tell(problem: PlanningProblem, agent: int) -> str:
    """Return the shortest message that tells everything that suits an agent."""
    return " ".join(problem.told(agent))


def says(state: PlanningState, agent: int) -> str:
    """Return what an agent says who knows how."""
    problem, other = state.problem, 1 - agent
    if plan := state.agreed[other]:
        return agree(plan)
    heard = state.said(other)
    if fitting := [plan for plan in problem.suiting(agent) if heard.issuperset(plan)]:
        return agree(fitting[0])
    # The first agent begins.  The second one tells what suits it if the first one did not tell enough.
    silent = state.said(agent) or (agent and not state.turns)
    return "" if silent else tell(problem, agent)


def demonstrate(problems: Sequence[PlanningProblem], count: int, mistakes: float, seed: int) -> list[Demonstration]:
    """Return demonstrations, as `Task.demonstrate`; raises ValueError if there are no problems."""
    if not problems:
        raise ValueError("there are no appointments to demonstrate")
    rng = random.Random(digest(["planning", seed]))
    team, alone = (PlanningEnvironment(PlanningSettings(team=name)) for name in ("team", SINGLE))
    shown: list[Demonstration] = []
    while len(shown) < count:
        problem = rng.choice(problems)
        if rng.random() < ALONE:
            [plan] = problem.suiting(0, 1)
            action = agree(_wrong(problem, 0, rng) if rng.random() < mistakes else plan)
            shown.append(Demonstration(alone.observe(alone.start(problem), 0), f" {action}"))
        else:
            shown += _dialogue(team, problem, mistakes, rng)
    return shown[:count]


def _dialogue(
    environment: PlanningEnvironment, problem: PlanningProblem, mistakes: float, rng: random.Random
) -> list[Demonstration]:
    """Return an action of each agent, from a random turn of a dialogue."""
    state, done = environment.start(problem), False
    turns: list[list[Demonstration]] = [[] for _ in AGENTS]
    while not done:
        actions = [""] * len(AGENTS)
        for agent in environment.acting(state):
            actions[agent] = _said(state, agent, mistakes, rng)
            action = f" {actions[agent]}" if actions[agent] else ""  # the same tokens as words of an observation
            turns[agent].append(Demonstration(environment.observe(state, agent), action))
        [outcome] = environment.step([state], [actions])
        state, done = outcome.state, outcome.done
    return [rng.choice(own) for own in turns]


def _said(state: PlanningState, agent: int, mistakes: float, rng: random.Random) -> str:
    right = says(state, agent)
    if rng.random() >= mistakes:
        return right
    told = state.problem.told(agent)
    if read_agreement(right) or rng.random() < 0.4:
        return agree(_wrong(state.problem, agent, rng))
    return rng.choice(["", " ".join(told), " ".join(rng.sample(told, max(1, len(told) // 2)))])


def _wrong(problem: PlanningProblem, agent: int, rng: random.Random) -> Plan:
    """Return a plan of what an agent likes, or of anything."""
    liked = rng.random() < 0.8
    return rng.choice(problem.days[agent] if liked else DAYS), rng.choice(problem.places[agent] if liked else PLACES)
