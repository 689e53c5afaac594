"""What each turn of an episode adds, where turns are attempts at the same thing: gains, repairs and breakage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline_lib.environment_api.metrics import Metric, Metrics
from pipeline_lib.evaluation.clusters import encode
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.evidence import mean_interval
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
        reached = [e for e in episodes if len(e.attempts) > turn]
        by_problem: dict[str, list[float]] = {}
        families = {e.problem: e.family for e in reached}
        for e in reached:
            by_problem.setdefault(e.problem, []).append(e.attempts[turn][metric] - e.attempts[turn - 1][metric])
        clusters = encode([families[problem] for problem in by_problem])
        pairs = [
            (e.attempts[turn - 1].get(solves, 0) >= 1, e.attempts[turn].get(solves, 0) >= 1) for e in reached if solves
        ]
        found.append(
            TurnGain(
                turn=turn + 1,
                episodes=len(reached),
                before=float(np.mean([e.attempts[turn - 1][metric] for e in reached])),
                gain=mean_interval([float(np.mean(v)) for v in by_problem.values()], clusters, level, unbounded),
                reward=float(np.mean([e.attempts[turn]["reward"] - e.attempts[turn - 1]["reward"] for e in reached])),
                repaired=_share([now for before, now in pairs if not before]),
                broken=_share([not now for before, now in pairs if before]),
            )
        )
    return tuple(found)


def first_turns(episodes: Sequence[EpisodeRecord]) -> list[EpisodeRecord]:
    """Return episodes as if they had ended after their first turn, with its reward and metrics.

    Terms, details and the number of tokens are not recorded by turn: the first two are left out, the last is the whole
    episode's.
    """
    return [_first(episode) if episode.attempts else episode for episode in episodes]


def _first(episode: EpisodeRecord) -> EpisodeRecord:
    metrics = dict(episode.attempts[0])
    reward = metrics.pop("reward")
    return replace(episode, reward=reward, metrics=metrics, turns=1, terms={}, details={}, attempts=(), shown=None)


def _share(values: Sequence[bool]) -> float | None:
    return float(np.mean(values)) if values else None
