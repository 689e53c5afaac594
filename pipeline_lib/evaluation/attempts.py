"""What each turn of an episode adds, where turns are attempts at the same thing: gains, repairs and breakage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline_lib.environment_api.metrics import Metric, Metrics
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.evidence import over_problems
from pipeline_lib.evaluation.results import Estimate


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
