"""One advantage per action, from a plan of credit, returns and a baseline.

A joint action that was only executed as sampled gives its advantage to all of its actions (`advantages`).  If a plan
executed combinations (`pipeline_lib.credit`), every action k of agent i gets its own return,

    R_i(k) = Q_i(k) + (R_k - r_k)

Q_i(k) is its value computed from its cells, this turn's reward only.  R_k - r_k is the later return of joint action k,
the only cell with action k from which an episode continued.  Both parts are unbiased given the action, because the
other agents' actions are independent samples from their policies; so their sum is unbiased.  The returns of an agent's
actions are then compared like those of a group.

If all cells are sampled joint actions (``replay``), the later returns are part of Q_i(k).

Means leave out lost cells.  If episodes continue, an action whose own joint action was lost has no known later return
and gets no advantage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.credit.plans import Plan
from pipeline_lib.environment_api.environment import LARGEST, RewardError
from pipeline_lib.play.experience import Cells, Decision, Experience
from pipeline_lib.training.advantages import advantages, group_advantages, is_flat, returns_to_go

if TYPE_CHECKING:
    from pipeline_lib.settings.train import AdvantageSettings


def credit(
    experience: Experience, returns: Sequence[float | None], plan: Plan, settings: AdvantageSettings
) -> tuple[list[tuple[float | None, ...]], float]:
    """Return the advantage of every action, and the share of flat groups.

    Args:
        experience: the experience of a step.
        returns: R of every decision (`advantages.returns_to_go`), None if unknown.
        plan: the plan with which it was collected.
        settings: baseline and scale.

    Returns:
        For each decision the advantages of its actions, None if unknown; and the share of groups in which all executed
        joint actions have the same reward.
    """
    groups = [decision.group for decision in experience.decisions]
    together, flat = advantages(returns, groups, settings)
    result = [
        (advantage,) * len(decision.actions) for decision, advantage in zip(experience.decisions, together, strict=True)
    ]
    for cells in experience.cells:
        members = range(cells.first, cells.first + cells.size)
        following = _following(experience, returns, members)
        if plan.nested:  # every cell is a sampled joint action with a later return of its own
            cells = replace(cells, rewards=cells.rewards + following)
            following = np.zeros(cells.size)
        earned = _returns_of_cells(cells, following)
        if earned.size:
            flat[groups[cells.first]] = is_flat(earned)
        found = compare_actions(plan, cells, following, settings, float(earned.std()) if earned.size else 0.0)
        for place, row in zip(members, found.T, strict=True):
            result[place] = tuple(None if np.isnan(value) else float(value) for value in row)
    return result, (sum(flat.values()) / len(flat) if flat else 0.0)


def credit_by_critic(
    experience: Experience,
    returns: Sequence[float | None],
    baselines: Sequence[Sequence[float]],
    settings: AdvantageSettings,
) -> tuple[list[tuple[float | None, ...]], float]:
    """Return the same as `credit`, with what a critic predicted as the baseline of every action (`critic.Critic`).

    A scale divides by the standard deviation of the group's returns, where these are not all equal.
    """
    members: dict[int, list[int]] = {}
    for place, decision in enumerate(experience.decisions):
        if returns[place] is not None:
            members.setdefault(decision.group, []).append(place)
    result: list[tuple[float | None, ...]] = [(None,) * len(d.actions) for d in experience.decisions]
    flat = 0
    for places in members.values():
        values = np.array([returns[place] for place in places], dtype=np.float64)
        flat += (equal := is_flat(values))
        spread = 1.0 if equal or settings.scale == "none" else float(values.std())
        for place, value in zip(places, values, strict=True):
            result[place] = tuple(float((value - baseline) / spread) for baseline in baselines[place])
    return result, flat / len(members) if members else 0.0


def credit_individually(
    experience: Experience,
    teams: Mapping[str, Sequence[str]],
    share: float,
    discount: float,
    gains: bool,
    settings: AdvantageSettings,
) -> tuple[list[tuple[float | None, ...]], float]:
    """Return the same as `credit` for agents that are trained on rewards of their own.

    The rewards of agent i are (1 - share) r + share r_i; each agent's returns are compared with its own in the group.
    With a share of 1 this is the partially observable stochastic game of self-interested agents (POSG), whose
    equilibria need not be best for the team; with 0 the Dec-POMDP of MAGRPO (arXiv 2508.04652, section 3).  What an
    agent that plays alone earns by itself is the joint reward.

    Args:
        experience: the experience of a step.
        teams: the agents by problem, also those that do not act in a turn.
        share: weight of an agent's own reward, in [0, 1].
        discount, gains: as `returns_to_go`.
        settings: baseline and scale.

    Raises:
        RewardError: a joint action says of an agent of its team no reward of its own, or none that can be trained on.
    """
    decisions = experience.decisions
    groups, parents = [d.group for d in decisions], [d.parent for d in decisions]
    by_agent: dict[str, list[float | None]] = {}
    flat: dict[int, bool] = {}
    for name in sorted({agent for d in decisions for agent in d.agents}):
        rewards = [_reward_of(name, d, teams[d.problem], share) for d in decisions]
        by_agent[name], equal = advantages(returns_to_go(rewards, parents, discount, gains), groups, settings)
        flat |= {group: flat.get(group, True) and value for group, value in equal.items()}
    found = [tuple(by_agent[agent][place] for agent in d.agents) for place, d in enumerate(decisions)]
    return found, (sum(flat.values()) / len(flat) if flat else 0.0)


def _reward_of(agent: str, decision: Decision, team: Sequence[str], share: float) -> float | None:
    """Return what an agent is trained on; None if the reward is lost, or the agent is not of this team."""
    if decision.reward is None or agent not in team:
        return None
    if len(team) == 1:
        return decision.reward
    own = decision.agent_rewards.get(agent, math.nan)
    if not abs(own) <= LARGEST:
        told = ", ".join(f"{name} {value:g}" for name, value in decision.agent_rewards.items()) or "nothing"
        raise RewardError(
            f"train.individual_reward trains agent {agent} on what it earns by itself, and agent_rewards of a joint "
            f"action has no number for it that can be learned from (it says: {told}); let the environment give one "
            f"for each of {', '.join(team)}, or set train.individual_reward to 0"
        )
    return (1 - share) * decision.reward + share * own


def _following(experience: Experience, returns: Sequence[float | None], members: Sequence[int]) -> NDArray[np.float64]:
    """Return R - r of a group's joint actions, shape (G,); NaN if unknown, 0 if all episodes ended with this turn."""
    ended = all(experience.decisions[place].last for place in members)
    found = np.full(len(members), 0.0 if ended else np.nan)
    for k, place in enumerate(members):
        reward, value = experience.decisions[place].reward, returns[place]
        if reward is not None and value is not None:
            found[k] = value - reward
    return found


def _returns_of_cells(cells: Cells, following: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the returns that the executed cells have, or may have, for their spread.

    A sampled joint action has its own later return.  Any other cell was not continued: its later return may be that of
    any joint action of the group, each equally likely.  So the returns are all equal only if nothing in them differs.

    Returns:
        Flat, one value per executed cell and later return that is known; lost cells are left out.
    """
    known = following[~np.isnan(following)]
    after = np.tile(known if known.size else np.zeros(1), (len(cells.rewards), 1))
    first = cells.chosen[:, 0]
    sampled = (cells.chosen == first[:, None]).all(axis=1) & (first >= 0)
    own = following[first[sampled]]
    after[sampled] = np.where(np.isnan(own)[:, None], after[sampled], own[:, None])
    returns = cells.rewards[:, None] + after
    return returns[~np.isnan(returns)]


def compare_actions(
    plan: Plan, cells: Cells, following: NDArray[np.float64], settings: AdvantageSettings, spread: float
) -> NDArray[np.float64]:
    """Return the advantage of every action of one group.

    Args:
        plan: the plan of the group.
        cells: the group's cells with their rewards.
        following: shape (G,), R - r of the joint actions; NaN where unknown.
        settings: baseline and scale.
        spread: what ``group_std`` divides by.

    Returns:
        Shape (agents, G), NaN where unknown.
    """
    table = plan.compare(cells.chosen, cells.rewards, len(following)) + following
    found = np.full((table.shape[0], table.shape[2]), np.nan)
    for agent, comparisons in enumerate(table):
        for judged, values in enumerate(comparisons):
            known = ~np.isnan(values)
            compared = np.full(len(values), np.nan)
            # Each agent by its own spread: that of the returns at hand.
            shared = None if settings.scale == "agent_std" else spread
            compared[known] = group_advantages(values[known], settings, shared)
            # A row gives advantages to all of its actions, a column to one.
            own = slice(None) if len(comparisons) == 1 else judged
            found[agent, own] = compared[own]
    return found
