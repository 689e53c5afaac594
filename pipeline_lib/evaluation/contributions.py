"""Who contributes how much to a team's result: Shapley values and removal, from episodes of subteams.

With v(S) the mean of the metric when only the agents in S act and the others are replaced by the environment's stub,

    Shapley value  phi_i = sum over S without i of |S|! (N - |S| - 1)! / N! * (v(S + i) - v(S))
    removal        v(all) - v(all without i)

Shapley values (Shapley 1953) divide v(all) - v(nobody) among the agents: interchangeable agents get the same, and an
agent that changes nothing gets 0.  Removals do not add up: if every agent is needed, each removal costs everything.
Both describe a tested team.  Neither is used in training: as an advantage they would optimise another objective than
the team's expected reward.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.evidence import over_problems
from pipeline_lib.evaluation.metrics import value_of
from pipeline_lib.evaluation.results import Estimate, Result

Subteam = frozenset[str]


@dataclass(frozen=True, slots=True)
class Contribution(Result):
    """What one agent contributes."""

    agent: str  #: its name
    problems: int  #: number of problems in which it acts
    #: Mean Shapley value over problems with its interval, or None where not all subteams were played.
    shapley: Estimate | None
    removal: Estimate  #: mean loss when the agent is removed, with its interval


def contributions(
    runs: Sequence[Sequence[EpisodeRecord]], metric: str, info: Metric, level: float
) -> tuple[Contribution, ...]:
    """Return the contribution of every agent, averaged over episodes and training runs, then over problems.

    ``runs`` has the records of `evaluate_subteams` of each training run.  Intervals have the coverage ``level`` over
    problems, clustered by family; a difference has no bounds of its own, so the range of the metric is not used.
    """
    exact: dict[str, dict[str, list[float]]] = {}
    removed: dict[str, dict[str, list[float]]] = {}
    families: dict[str, str] = {}
    for records in runs:
        by_episode: dict[tuple[str, int], list[EpisodeRecord]] = {}
        for record in records:
            by_episode.setdefault((record.problem, record.sample), []).append(record)
        for (problem, _), played in by_episode.items():
            agents = played[0].details["agents"]
            values = {frozenset(record.details["present"]): value_of(record, metric) for record in played}
            known = {subteam: value for subteam, value in values.items() if value is not None}
            if len(known) < len(values):  # the infrastructure lost one
                continue
            families[problem] = played[0].family
            for agent in agents:
                loss = known[frozenset(agents)] - known[frozenset(agents) - {agent}]
                removed.setdefault(agent, {}).setdefault(problem, []).append(loss)
            for agent, share in (shapley(agents, known) if len(known) == 2 ** len(agents) else {}).items():
                exact.setdefault(agent, {}).setdefault(problem, []).append(share)
    unbounded = Metric(info.label, low=None, high=None)
    result = []
    for agent, losses in removed.items():
        shares = exact.get(agent, {})
        all_exact = over_problems(shares, families, level, unbounded) if shares.keys() == losses.keys() else None
        result.append(Contribution(agent, len(losses), all_exact, over_problems(losses, families, level, unbounded)))
    return tuple(result)


def shapley(agents: Sequence[str], values: Mapping[Subteam, float]) -> dict[str, float]:
    """Return the Shapley value of every agent, from v of each of the 2^N subteams."""
    count = len(agents)
    found = dict.fromkeys(agents, 0.0)
    for subteam, value in values.items():
        for agent in agents:
            sign, others = (1, len(subteam) - 1) if agent in subteam else (-1, len(subteam))
            found[agent] += sign * value / (count * math.comb(count - 1, others))
    return found


def subteam_means(runs: Sequence[Sequence[EpisodeRecord]], metric: str) -> dict[tuple[str, ...], float]:
    """Return the mean of the metric for every subteam, by the names of the agents that are present."""
    values: dict[tuple[str, ...], list[float]] = {}
    for record in itertools.chain.from_iterable(runs):
        if (value := value_of(record, metric)) is not None:
            values.setdefault(tuple(record.details["present"]), []).append(value)
    return {present: float(np.mean(found)) for present, found in values.items()}
