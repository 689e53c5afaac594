"""What happens inside of tested teams: what each agent contributes, how guests do, and what each turn adds.

Contributions are Shapley values and removal, from episodes of subteams.  With v(S) the mean of the metric when only the
agents in S act and the others are replaced by the environment's stub,

    Shapley value  phi_i = sum over S without i of |S|! (N - |S| - 1)! / N! * (v(S + i) - v(S))
    removal        v(all) - v(all without i)

Shapley values (Shapley 1953) divide v(all) - v(nobody) among the agents: interchangeable agents get the same, and an
agent that changes nothing gets 0.  Removals do not add up: if every agent is needed, each removal costs everything.
Both describe a tested team.  Neither is used in training: as an advantage they would optimise another objective than
the team's expected reward.

Cross-play is agents of one training run in the team of another (zero-shot coordination, Hu et al. 2020).  A team that
was trained together may rely on conventions of its own.  So in each trained team one agent at a time is replaced by the
same agent of every other training run (the guest), and by that of the untrained base.  If the guests do as well, the
agents understand the task; if not, they understand each other.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline_lib.environment_api.metrics import Metric, Metrics
from pipeline_lib.evaluation.comparison import widest
from pipeline_lib.evaluation.episodes import EpisodeRecord, Guest, value_of
from pipeline_lib.evaluation.evidence import over_problems
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


@dataclass(frozen=True, slots=True)
class Cell(Result):
    """Teams of one run with one guest."""

    seed: int  #: training seed of the team
    agent: str  #: the agent that was replaced, or empty: none was
    run: int | str  #: training seed of the guest, or `BASE_GUEST`
    mean: Estimate  #: mean of the metric over problems; its interval holds whatever the lost episodes would have shown


def cells(teams: Mapping[int, Sequence[EpisodeRecord]], metric: str, info: Metric, level: float) -> tuple[Cell, ...]:
    """Return the mean of every kind of team that was played.

    Args:
        teams: episodes by training seed, with guests and without.
        metric: its name.
        info: its range.
        level: coverage of the intervals over problems, clustered by family.
    """
    found = []
    for seed, records in teams.items():
        values: dict[Guest, dict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))
        for record in records:
            guest = Guest(**record.details.get("guest", _alone(seed)))
            values[guest][record.problem].append(value_of(record, metric))
        families = {record.problem: record.family for record in records}
        for guest, by_problem in sorted(values.items(), key=lambda item: (str(item[0].run), item[0].agent)):
            kept = {name: left for name, every in by_problem.items() if (left := [v for v in every if v is not None])}
            if not kept:
                continue
            mean = over_problems(kept, families, level, info)
            if any(None in every for every in by_problem.values()):
                seen = [value for every in kept.values() for value in every]
                ends = (min(seen) if info.low is None else info.low, max(seen) if info.high is None else info.high)
                whole = [
                    {n: [end if v is None else v for v in every] for n, every in by_problem.items()} for end in ends
                ]
                mean = widest(mean, [over_problems(one, families, level, info) for one in whole])
            found.append(Cell(seed, guest.agent, guest.run, mean))
    return tuple(found)


def _alone(seed: int) -> dict[str, int | str]:
    return {"agent": "", "run": seed}


@dataclass(frozen=True, slots=True)
class TurnGain:
    """One turn, from the second on, over the episodes that reached it."""

    turn: int  #: its number, from 2
    episodes: int  #: number of episodes that reached it
    before: float  #: mean of the metric in the turn before, over the same episodes
    gain: Estimate  #: mean difference to the turn before, with an interval over problems, clustered by family
    reward: float  #: mean difference of the reward
    #: Share of the episodes that failed in the turn before and succeed in this one; None if none failed, or no metric
    #: says what success is.
    repaired: float | None
    broken: float | None  #: share of the episodes that succeeded in the turn before and fail in this one; None likewise


def turn_gains(episodes: Sequence[EpisodeRecord], metric: str, metrics: Metrics, level: float) -> tuple[TurnGain, ...]:
    """Return what each turn adds to the one before, averaged over episodes of a problem, then over problems.

    An episode ends early when nothing more can be gained, so later turns are of harder cases only; each turn is
    compared with the turn before in the same episodes.  Success is what the first of ``metrics`` that ``solves`` says;
    ``level`` is the coverage of the intervals, in (0, 1).
    """
    solves = next((name for name, info in metrics.items() if info.solves), None)
    unbounded = Metric("gain", low=None, high=None)
    found = []
    for turn in range(1, max((len(e.attempts) for e in episodes), default=0)):
        pairs = [(e, e.attempts[turn - 1], e.attempts[turn]) for e in episodes if len(e.attempts) > turn]
        gains: dict[str, list[float]] = {}
        for e, before, after in pairs:
            gains.setdefault(e.problem, []).append(after[metric] - before[metric])
        families = {e.problem: e.family for e, *_ in pairs}
        solved = [(before.get(solves, 0) >= 1, after.get(solves, 0) >= 1) for _, before, after in pairs if solves]
        found.append(
            TurnGain(
                turn=turn + 1,
                episodes=len(pairs),
                before=float(np.mean([before[metric] for _, before, _ in pairs])),
                gain=over_problems(gains, families, level, unbounded),
                reward=float(np.mean([after["reward"] - before["reward"] for _, before, after in pairs])),
                repaired=_share([after for before, after in solved if not before]),
                broken=_share([not after for before, after in solved if before]),
            )
        )
    return tuple(found)


def first_turns(episodes: Sequence[EpisodeRecord]) -> list[EpisodeRecord]:
    """Return episodes as if they had ended after their first turn, with its reward and metrics.

    Terms, details and the number of tokens are not recorded by turn: the first two are left out, the last is the whole
    episode's.
    """
    ended = []
    for e in episodes:
        if e.attempts:
            first = dict(e.attempts[0])
            reward = first.pop("reward")
            e = replace(e, reward=reward, metrics=first, turns=1, terms={}, details={}, attempts=(), shown=None)
        ended.append(e)
    return ended


def _share(values: Sequence[bool]) -> float | None:
    return float(np.mean(values)) if values else None
