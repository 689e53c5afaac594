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

from pipeline_lib.credit.aligned import Aligned
from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.monitors.judge import End
from pipeline_lib.play import Player, Problem
from pipeline_lib.play.roots import PairedChance, Root
from pipeline_lib.play.seeds import derive
from pipeline_lib.training.parallel import Processes

if TYPE_CHECKING:
    from pipeline_lib.settings.train import TrainSettings

#: Problems that are played each time, and the share of a run's joint actions that this may cost.
PAIRS, COST = 8, 0.01
#: Updates between two times, at least and at most.
SOONEST, LATEST = 10, 50


@dataclass(frozen=True, slots=True)
class Variant:
    """A problem, and in what its episode differs from the team's own.

    Attributes:
        problem: the problem.
        agent: number of the agent whose part is replaced; None for the team as it is.
        right: whether a part that is known to be right replaces it, and not a stub.
    """

    problem: Any
    agent: int | None = None
    right: bool = False

    @property
    def id(self) -> str:
        """Return the name of the problem."""
        return str(self.problem.id)


@dataclass(frozen=True, slots=True)
class _State:
    variant: Variant
    inner: Any


class _Variants(Environment[Variant, _State]):
    """An environment in which one agent's part is replaced before a joint action is executed."""

    def __init__(self, inner: Environment[Any, Any]) -> None:
        self._inner = inner
        self.turns, self.reward_bounds = inner.turns, inner.reward_bounds

    def agents(self, problem: Variant) -> tuple[str, ...]:
        return self._inner.agents(problem.problem)

    def start(self, problem: Variant, seed: int = 0) -> _State:
        return _State(problem, self._inner.start(problem.problem, seed))

    def observe(self, state: _State, agent: int) -> str:
        return self._inner.observe(state.inner, agent)

    def acting(self, state: _State) -> Sequence[int] | None:
        return self._inner.acting(state.inner)

    def step(self, states: Sequence[_State], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[_State]]:
        replaced = [self._replace(state, actions) for state, actions in zip(states, joint_actions, strict=True)]
        outcomes = self._inner.step([state.inner for state in states], replaced)
        return [
            replace(outcome, state=_State(state.variant, outcome.state))
            for state, outcome in zip(states, outcomes, strict=True)
        ]

    def _replace(self, state: _State, actions: Sequence[str]) -> Sequence[str]:
        agent = state.variant.agent
        if agent is None:
            return actions
        part = self._inner.right_part(state.inner, agent) if state.variant.right else None
        texts = list(actions)
        texts[agent] = self._inner.stub(state.inner, agent) if part is None else part
        return texts


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
        this agent's right part brings to the best value) where right parts are known.
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
    apart = replace(player, environment=_Variants(environment), tree=False, plan=Aligned(), overlap=1, watcher=None)
    episodes = apart.play(roots).episodes()
    played: dict[str, dict[tuple[int | None, bool], _Played]] = {}
    for variant, episode in zip(variants, episodes, strict=True):
        lost = any(decision.reward is None for decision in episode)
        value = None if lost else episode[-1].metrics.get(end.name)
        total = None if lost else math.fsum(decision.reward or 0.0 for decision in episode)
        failed = value is not None and end.high is not None and value < end.high
        played.setdefault(variant.id, {})[variant.agent, variant.right] = _Played(total, value, failed)
    by_problem = [own for part in processes.gather(list(played.values())) for own in part]
    return _summary(by_problem, agents)


def _interval(settings: TrainSettings, variants: int) -> int:
    """Return the number of updates between two times at which variants are played."""
    wanted = math.ceil(PAIRS * variants / (COST * settings.problems_per_step * settings.group_size))
    return max(SOONEST, min(LATEST, wanted))


def _variants(environment: Environment[Any, Any], problem: Any) -> list[Variant]:
    agents = environment.agents(problem)
    start = environment.start(problem)
    known = [
        number
        for number, agent in enumerate(agents)
        if agent in environment.relied_on and environment.right_part(start, number) is not None
    ]
    return [
        Variant(problem),
        *(Variant(problem, number) for number in range(len(agents))),
        *(Variant(problem, number, right=True) for number in known),
    ]


def _summary(by_problem: Sequence[dict[tuple[int | None, bool], _Played]], agents: Sequence[str]) -> dict[str, float]:
    whole = [own for own in by_problem if own[None, False].end is not None]
    if len(whole) < 2:
        return {}
    found = {"ablation/pairs": float(len(whole))}
    found["ablation/team"], found["ablation/team_error"] = _mean([own[None, False].end or 0.0 for own in whole])
    for number, agent in enumerate(agents):
        pairs = [
            (own[None, False], own[number, False])
            for own in whole
            if (number, False) in own and own[number, False].end is not None
        ]
        if len(pairs) < 2:
            continue
        need = _mean([(team.end or 0.0) - (without.end or 0.0) for team, without in pairs])
        found[f"ablation/need/{agent}"], found[f"ablation/need_error/{agent}"] = need
        rewards = [(team.reward or 0.0) - (without.reward or 0.0) for team, without in pairs]
        found[f"ablation/reward_need/{agent}"] = _mean(rewards)[0]
        mended = [own for own in whole if own[None, False].failed and (number, True) in own]
        if mended:
            found["ablation/failed"] = float(len(mended))
            found[f"ablation/mended/{agent}"] = float(
                sum(own[number, True].end is not None and not own[number, True].failed for own in mended)
            )
    return found


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of at least two values and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))
