"""What a team is without each of its agents: some episodes with a stub, or a right part, in place of an agent's.

Every variant of an episode has the same random draws, and these belong to nothing else: training goes on as if nothing
had been played.  All variants are one call of the player, so one batch of the engine and of the environment per turn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline_lib.credit.plans import Aligned
from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.monitors import End
from pipeline_lib.play import Player, Problem, add_amounts, costs_of
from pipeline_lib.play.fixing import Fixed, FixedActions
from pipeline_lib.play.roots import PairedChance, Root, derive
from pipeline_lib.training.parallel import Processes

if TYPE_CHECKING:
    from pipeline_lib.settings.train import TrainSettings

#: Problems that are played each time, and the share of a run's joint actions that this may cost.
PAIRS, COST = 8, 0.01
#: Updates between two times, at least and at most.
SOONEST, LATEST = 10, 50


_Change = tuple[frozenset[int], frozenset[int]]  # numbers of the agents that are absent, and of those that are right
_TEAM: _Change = (frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class _Played:
    """The result of a variant; None where the infrastructure failed."""

    reward: float | None
    end: float | None
    failed: bool


def ablate(
    settings: TrainSettings,
    player: Player,
    problems: Sequence[Problem],
    end: End | None,
    seed: int,
    step: int,
    processes: Processes,
) -> dict[str, float]:
    """Play the variants that are due after an update, if any are, and return metrics for the monitors.

    Args:
        settings: the ``train`` section.
        player: plays the team with its newest weights.
        problems: the training problems, of which a few are drawn.
        end: the metric that the reward should stand for; nothing is played without one, or by a single agent.
        seed: of the run.
        step: number of the update.
        processes: who trains together; each plays its share.

    Returns:
        ``ablation/pairs`` (problems played); ``ablation/team`` (metric of the team as it is) and its standard error
        ``ablation/team_error``; for each agent ``ablation/need/<agent>`` and ``ablation/reward_need/<agent>``
        (metric and reward of the team minus those without this agent's part) and ``ablation/need_error/<agent>``;
        ``ablation/failed`` (episodes below the best value) and ``ablation/mended/<agent>`` (the number of these that
        this agent's right part brings to the best value) where right parts are known; and ``costs/`` of the episodes.
    """
    environment = player.environment
    agents = max((environment.agents(problem) for problem in problems), key=len)
    relied_on = [agent for agent in agents if agent in environment.relied_on]
    if end is None or len(agents) < 2 or step % _interval(settings, 1 + len(agents) + len(relied_on)):
        return {}
    draw = derive("ablation", seed, step)
    chosen = random.Random(draw).sample(list(problems), min(PAIRS, len(problems)))
    mine = processes.share(range(len(chosen)))
    variants = [variant for slot in mine for variant in _variants(environment, chosen[slot])]
    roots = [Root(variant, 1, PairedChance(draw, variant.id, 0)) for variant in variants]
    apart = replace(player, environment=FixedActions(environment), tree=False, plan=Aligned(), overlap=1, watcher=None)
    experience = apart.play(roots)
    episodes = experience.episodes()
    played: dict[str, dict[_Change, _Played]] = {}
    for variant, episode in zip(variants, episodes, strict=True):
        lost = any(decision.reward is None for decision in episode)
        value = None if lost else episode[-1].metrics.get(end.name)
        total = None if lost else math.fsum(decision.reward or 0.0 for decision in episode)
        failed = value is not None and end.high is not None and value < end.high
        played.setdefault(variant.id, {})[variant.absent, variant.right] = _Played(total, value, failed)
    parts = processes.gather((list(played.values()), costs_of(experience)))
    costs: dict[str, float] = {}
    for _, own_costs in parts:
        add_amounts(costs, own_costs)
    return _summary([own for part, _ in parts for own in part], agents) | costs


def _interval(settings: TrainSettings, variants: int) -> int:
    """Return the number of updates between two times at which variants are played."""
    wanted = math.ceil(PAIRS * variants / (COST * settings.problems_per_step * settings.group_size))
    return max(SOONEST, min(LATEST, wanted))


def _variants(environment: Environment[Any, Any], problem: Any) -> list[Fixed]:
    agents = environment.agents(problem)
    start = environment.start(problem)
    known = [
        number
        for number, agent in enumerate(agents)
        if agent in environment.relied_on and environment.right_part(start, number) is not None
    ]
    return [
        Fixed(problem),
        *(Fixed(problem, absent=frozenset({number})) for number in range(len(agents))),
        *(Fixed(problem, right=frozenset({number})) for number in known),
    ]


def _summary(by_problem: Sequence[dict[_Change, _Played]], agents: Sequence[str]) -> dict[str, float]:
    whole = [own for own in by_problem if own[_TEAM].end is not None]
    if len(whole) < 2:
        return {}
    found = {"ablation/pairs": float(len(whole))}
    found["ablation/team"], found["ablation/team_error"] = _mean([own[_TEAM].end or 0.0 for own in whole])
    for number, agent in enumerate(agents):
        without_agent: _Change = frozenset({number}), frozenset()
        with_right: _Change = frozenset(), frozenset({number})
        pairs = [
            (own[_TEAM], own[without_agent])
            for own in whole
            if without_agent in own and own[without_agent].end is not None
        ]
        if len(pairs) < 2:
            continue
        need = _mean([(team.end or 0.0) - (without.end or 0.0) for team, without in pairs])
        found[f"ablation/need/{agent}"], found[f"ablation/need_error/{agent}"] = need
        rewards = [(team.reward or 0.0) - (without.reward or 0.0) for team, without in pairs]
        found[f"ablation/reward_need/{agent}"] = _mean(rewards)[0]
        mended = [own for own in whole if own[_TEAM].failed and with_right in own]
        if mended:
            found["ablation/failed"] = float(len(mended))
            found[f"ablation/mended/{agent}"] = float(
                sum(own[with_right].end is not None and not own[with_right].failed for own in mended)
            )
    return found


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of at least two values and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))
