"""Groups of episodes as training collects them, played without learning from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline_lib.training.collect import Collector, Problem

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Team
    from pipeline_lib.rollouts.engine import Engine, Sampling
    from pipeline_lib.seam.environment import Environment
    from pipeline_lib.training.experience import Experience

Floats = npt.NDArray[np.float64]


def play_groups(
    environment: Environment[Any, Any],
    problems: Sequence[Problem],
    team: Team,
    engine: Engine,
    sampling: Sampling,
    group_size: int,
    seed: int,
) -> tuple[Floats, dict[str, Floats]]:
    """Let a team play ``group_size`` episodes of every problem; returns as `episodes_of`."""
    collector = Collector(environment, team, engine, sampling, group_size, tree=False, seed=seed)
    return episodes_of(collector.collect(problems, step=0), group_size)


def episodes_of(experience: Experience, group_size: int) -> tuple[Floats, dict[str, Floats]]:
    """Add up the turns of every episode; the first turn's decisions come problem by problem, G each.

    Returns:
        The reward of each whole episode, and the last turn's metrics by name: arrays of shape (groups, G), NaN where
        an episode got no reward or has no such metric.
    """
    episode: list[int] = []
    totals: list[float] = []
    last: list[dict[str, float]] = []
    for decision in experience.decisions:
        if decision.parent is None:
            episode.append(len(totals))
            totals.append(0.0)
            last.append({})
        else:
            episode.append(episode[decision.parent])
        here = episode[-1]
        totals[here] += float("nan") if decision.reward is None else decision.reward
        last[here] = dict(decision.metrics) or last[here]
    names = sorted({name for row in last for name in row})
    shape = (-1, group_size)
    metrics = {name: np.array([row.get(name, np.nan) for row in last]).reshape(shape) for name in names}
    return np.array(totals).reshape(shape), metrics
