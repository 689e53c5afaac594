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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.clusters import encode
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.evidence import mean_interval
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
    shares: dict[str, dict[str, list[tuple[float | None, float]]]] = {}
    families: dict[str, str] = {}
    for records in runs:
        for (problem, _), found in _by_episode(records).items():
            agents = found[0].details["agents"]
            values = {frozenset(record.details["present"]): _value(record, metric) for record in found}
            known = {subteam: value for subteam, value in values.items() if value is not None}
            if len(known) < len(values):  # the infrastructure lost one
                continue
            families[problem] = found[0].family
            exact = shapley(agents, known) if len(known) == 2 ** len(agents) else {}
            whole = known[frozenset(agents)]
            for agent in agents:
                removed = whole - known[frozenset(agents) - {agent}]
                shares.setdefault(agent, {}).setdefault(problem, []).append((exact.get(agent), removed))
    unbounded = Metric(info.label, low=None, high=None)
    result = []
    for agent, by_problem in shares.items():
        clusters = encode([families[problem] for problem in by_problem])
        means = [_means(episodes) for episodes in by_problem.values()]
        exactly = [share for share, _ in means if share is not None]
        result.append(
            Contribution(
                agent=agent,
                problems=len(by_problem),
                shapley=mean_interval(exactly, clusters, level, unbounded) if len(exactly) == len(means) else None,
                removal=mean_interval([removed for _, removed in means], clusters, level, unbounded),
            )
        )
    return tuple(result)


def shapley(agents: Sequence[str], values: Mapping[Subteam, float]) -> dict[str, float]:
    """Return the Shapley value of every agent, from v of each of the 2^N subteams."""
    count = len(agents)
    found = dict.fromkeys(agents, 0.0)
    for subteam, value in values.items():
        size = len(subteam)
        for agent in agents:
            if agent in subteam:
                found[agent] += value / (count * math.comb(count - 1, size - 1))
            else:
                found[agent] -= value / (count * math.comb(count - 1, size))
    return found


def subteam_means(runs: Sequence[Sequence[EpisodeRecord]], metric: str) -> dict[tuple[str, ...], float]:
    """Return the mean of the metric for every subteam, by the names of the agents that are present."""
    values: dict[tuple[str, ...], list[float]] = {}
    for records in runs:
        for record in records:
            value = _value(record, metric)
            if value is not None:
                values.setdefault(tuple(record.details["present"]), []).append(value)
    return {present: float(np.mean(found)) for present, found in values.items()}


def _by_episode(records: Sequence[EpisodeRecord]) -> dict[tuple[str, int], list[EpisodeRecord]]:
    found: dict[tuple[str, int], list[EpisodeRecord]] = {}
    for record in records:
        found.setdefault((record.problem, record.sample), []).append(record)
    return found


def _value(record: EpisodeRecord, metric: str) -> float | None:
    if record.reward is None:
        return None
    return record.reward if metric == "reward" else float(record.metrics[metric])


def _means(episodes: Sequence[tuple[float | None, float]]) -> tuple[float | None, float]:
    exact = [share for share, _ in episodes if share is not None]
    return (float(np.mean(exact)) if exact else None), float(np.mean([removed for _, removed in episodes]))
