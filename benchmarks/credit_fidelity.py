"""How near the credit that a plan gives comes to the truth, in games whose truth is enumerated.

A *game* is one state with every joint action's reward and the policies' probabilities, so the advantage of an action
under the *policies* is known exactly:

    A*_i(a) = E[R | agent i does a] - E[R]

Comparing an estimate with the very rewards it was made of, as public code does, would call every estimate perfect.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.plans import NOTHING, Plan
from pipeline_lib.play.experience import Cells
from pipeline_lib.settings.train import AdvantageSettings
from pipeline_lib.training.credit import compare_actions
from pipeline_lib.training.fidelity import agreement

Floats = NDArray[np.float64]

#: All plans are compared under one baseline, the one that does not shrink anything.
BASELINE = AdvantageSettings(baseline="leave_one_out")


@dataclass(frozen=True)
class Game:
    """One state.

    Attributes:
        policies: for each agent the probability of each of its actions.  The last action stands for its part being
            absent (`NOTHING`) and has the probability 0.
        now: reward of this turn by joint action, shape (actions of agent 0, actions of agent 1, ...).
        whole: expected return of the whole episode, the same shape; ``now`` where the turn is the last.
    """

    policies: tuple[Floats, ...]
    now: Floats
    whole: Floats

    def truth(self) -> list[Floats]:
        """Return A* of every action of every agent."""
        found = []
        for agent in range(len(self.policies)):
            values = self.whole
            for other in reversed(range(len(self.policies))):
                if other != agent:
                    values = np.tensordot(values, self.policies[other], axes=(other, 0))
            found.append(values - values @ self.policies[agent])
        return found

    def truth_in_turn(self) -> list[Floats]:
        """Return the advantage of every action given what the agents before it did.

        Shape for agent i: (actions of agent 0, ..., actions of agent i).
        """
        found = []
        values = self.whole
        for policy in reversed(self.policies):
            before = values @ policy
            found.append(values - before[..., None])
            values = before
        return found[::-1]

    def with_spectator(self) -> Game:
        """Return the same game with one agent more, whose actions change nothing."""
        policies = (*self.policies, np.array([0.5, 0.5, 0.0]))
        now, whole = (np.repeat(table[..., None], 3, axis=-1) for table in (self.now, self.whole))
        return Game(policies, now, whole)


def advantages(game: Game, plan: Plan, sampled: NDArray[np.int64]) -> tuple[Floats, int]:
    """Return the credit of one group, shape (agents, G), and how many different joint actions were executed.

    Args:
        game: the state.
        plan: the plan.
        sampled: shape (G, agents), numbers of the sampled actions.
    """
    size, agents = sampled.shape
    chosen = plan.cells(agents, size)
    # Nothing is the last action of the tables.
    executed = np.where(chosen == NOTHING, NOTHING, sampled[chosen, np.arange(agents)])  # (cells, agents)
    rewards = game.now[tuple(executed.T)]
    own = tuple(sampled.T)
    following = game.whole[own] - game.now[own]
    found = compare_actions(plan, Cells(0, chosen, rewards), following, BASELINE, 1.0)
    return found, len(np.unique(executed, axis=0))


def measure(
    games: Sequence[Game], plan: Plan, size: int, groups: int, seed: int, *, in_turn: bool = False
) -> dict[str, float]:
    """Return how good a plan's credit is, averaged over agents and games.

    Args:
        games: states with the same number of agents.
        plan: the plan.
        size: actions per agent (G).
        groups: groups drawn per game, > 1.
        seed: fixes the draws.
        in_turn: each agent acts after those before it, so its credit is compared with the truth given their actions.

    Returns:
        ``correlation`` (Pearson, per agent within a game), ``sign`` (share of the actions with \\|A*\\| > `CLEAR` whose
        credit has the same sign), ``error`` (mean squared), ``spectator`` (root mean square of the credit of an agent
        that changes nothing, when one is added), ``bias`` and ``variance`` of the gradient for the policies' logits,
        relative to the squared exact gradient; ``cells`` and ``executed`` per group.
    """
    found: dict[str, list[float]] = {}
    exact_squared = bias = variance = 0.0
    for number, game in enumerate(games):
        rng = np.random.default_rng([seed, number])
        agents = len(game.policies)
        drawn = _draw(game, plan, size, groups, rng)
        credits, executed = zip(*(advantages(game, plan, sampled) for sampled in drawn), strict=True)
        credit = np.stack(credits)  # (groups, agents, G)
        found.setdefault("executed", []).append(float(np.mean(executed)))
        for agent, truth in enumerate(game.truth()):
            policy, given, true = game.policies[agent], credit[:, agent], truth[drawn[:, :, agent]]
            if in_turn:
                true = game.truth_in_turn()[agent][tuple(np.moveaxis(drawn[:, :, : agent + 1], -1, 0))]
            for name, value in dataclasses.asdict(agreement(given, true)).items():
                if value is not None:
                    found.setdefault(name, []).append(value)
            # The gradient of one group: mean of A (one_hot - p).
            hot = (drawn[:, :, agent, None] == np.arange(len(policy))) - policy
            gradients = np.mean(given[:, :, None] * hot, axis=1)
            exact = policy * truth
            noise = gradients.var(axis=0, ddof=1)
            exact_squared += float(exact @ exact)
            variance += float(noise.sum())
            bias += float(((gradients.mean(axis=0) - exact) ** 2 - noise / groups).sum())
        watched = game.with_spectator()
        if not in_turn and not plan.refuse(agents + 1, size):
            few = _draw(watched, plan, size, max(2, groups // 4), rng)
            idle = [advantages(watched, plan, sampled)[0][-1] for sampled in few]
            found.setdefault("spectator", []).append(float(np.sqrt(np.mean(np.square(idle)))))
    result = {name: float(np.mean(values)) for name, values in found.items()}
    cells = len(plan.cells(len(games[0].policies), size))
    return result | {"bias": bias / exact_squared, "variance": variance / exact_squared, "cells": float(cells)}


def largest(plan: Plan, agents: int, executions: int) -> int:
    """Return the largest group whose cells are at most ``executions``; 0 if there is none."""
    sizes = [size for size in range(2, executions + 1) if not plan.refuse(agents, size)]
    return max((size for size in sizes if len(plan.cells(agents, size)) <= executions), default=0)


def _draw(game: Game, plan: Plan, size: int, groups: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return sampled actions, shape (groups, G, agents)."""
    found = []
    for agent, policy in enumerate(game.policies):
        block = plan.block(agent, len(game.policies), size)
        found.append(np.repeat(rng.choice(len(policy), (groups, size // block), p=policy), block, axis=1))
    return np.stack(found, axis=-1)
