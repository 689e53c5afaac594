"""From returns and cells to one advantage per action, and whole trainings with every plan."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_lib.credit.plans import Aligned, Column, Cross, Latin, Pairings, Plan, Removal, Replay
from pipeline_lib.play.experience import Cells, Decision, Experience
from pipeline_lib.policies.store import team_digest
from pipeline_lib.protocols import SequentialPipeline
from pipeline_lib.rollouts.engine import Action
from pipeline_lib.settings.train import AdvantageSettings
from pipeline_lib.training.advantages import advantages, returns_to_go
from pipeline_lib.training.credit import credit
from tests.training.conftest import Agree, make_settings, make_team, run_training

SAID = (Action((8,), (-0.1,), "0", "stop"),) * 2
MEAN = AdvantageSettings()


def decision(reward: float | None, group: int = 0, parent: int | None = None, last: bool = True) -> Decision:
    return Decision("a", 0, group, parent, 1.0, ("one", "two"), ((5,), (6,)), SAID, reward, last=last)


def played(table: Any, plan: Plan, below: tuple[float, ...] = (), last: bool = True) -> Experience:
    """Return a group of two agents with a reward per cell; joint action g goes on to one that earns ``below[g]``."""
    table = np.array(table, dtype=float)
    size = len(table)
    chosen = plan.cells(2, size)
    rewards = table[chosen[:, 0], chosen[:, 1]]
    own = [None if np.isnan(table[g, g]) else float(table[g, g]) for g in range(size)]
    decisions = [decision(reward, last=last or reward is None) for reward in own]
    decisions += [decision(value, group=1 + g, parent=g) for g, value in enumerate(below) if own[g] is not None]
    cells = [] if plan == Aligned() else [Cells(0, chosen, rewards)]
    return Experience(decisions, cells=cells)


def given(experience: Experience, plan: Plan, settings: AdvantageSettings = MEAN, discount: float = 1.0) -> Any:
    returns = returns_to_go(
        [d.reward for d in experience.decisions], [d.parent for d in experience.decisions], discount
    )
    found, flat = credit(experience, returns, plan, settings)
    return found, flat, returns


def test_each_agent_gets_its_rows_less_their_mean() -> None:
    found, flat, _ = given(played([[1, 0], [3, 4]], Cross()), Cross())
    assert found == [(-1.5, 0.0), (1.5, 0.0)]
    assert flat == 0.0
    column, _, _ = given(played([[1, 0], [3, 4]], Column()), Column())
    # column of (0, 0): 1 beside 3 and beside 0; column of (1, 1): 4 beside 0 and beside 3
    assert column == [(-1.0, 0.5), (2.0, 0.5)]


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out", "max", "none"])
@pytest.mark.parametrize("scale", ["none", "group_std", "agent_std"])
def test_without_combinations_it_is_the_advantage_of_the_joint_action_to_the_bit(baseline: str, scale: str) -> None:
    settings = AdvantageSettings.model_validate({"baseline": baseline, "scale": scale})
    rng = np.random.default_rng(0)
    rewards = [None if lost else float(r) for r, lost in zip(rng.normal(size=24), rng.random(24) < 0.2, strict=True)]
    groups = [place // 8 for place in range(24)]
    experience = Experience([decision(r, g) for r, g in zip(rewards, groups, strict=True)])
    found, flat = credit(experience, rewards, Aligned(), settings)
    expected, flats = advantages(rewards, groups, settings)
    assert found == [(value, value) for value in expected]
    assert flat == sum(flats.values()) / 3


def test_what_followed_is_credited_by_the_joint_action_it_followed() -> None:
    """This turn by all cells, later turns by the one that was continued."""
    table, below = [[1.0, 0.0], [3.0, 4.0]], (10.0, 20.0)
    found, _, _ = given(played(table, Cross(), below, last=False), Cross(), discount=0.5)
    values = np.array([[0.5 + 5, 2 + 5], [3.5 + 10, 2 + 10]])  # (action, agent)
    assert np.array(found[:2]) == pytest.approx(values - values.mean(axis=0))


def test_two_turns_are_credited_without_bias() -> None:
    """By enumeration: two agents, two actions, G = 2; the second turn's reward depends on the first joint action."""
    rng = np.random.default_rng(4)
    first, second = rng.normal(size=(2, 2)), rng.normal(size=(2, 2))
    policies = rng.dirichlet([2, 2], size=2)
    total = first + second
    settings = AdvantageSettings(baseline="leave_one_out")
    for plan in (Aligned(), Cross(), Column()):
        found = np.zeros((2, 2))
        for drawn in itertools.product(range(2), repeat=4):
            a, b = drawn[:2], drawn[2:]
            chance = np.prod(policies[0][list(a)]) * np.prod(policies[1][list(b)])
            experience = played(first[np.ix_(a, b)], plan, tuple(second[a[g], b[g]] for g in range(2)), last=False)
            rows, _, _ = given(experience, plan, settings)
            for g, i in itertools.product(range(2), range(2)):
                action = (a, b)[i][g]
                found[i] += 0.5 * chance * rows[g][i] * (np.eye(2)[action] - policies[i])
        joint = np.outer(*policies)
        exact = [
            sum(joint[x, y] * total[x, y] * (np.eye(2)[(x, y)[i]] - policies[i]) for x in range(2) for y in range(2))
            for i in range(2)
        ]
        assert found == pytest.approx(np.array(exact), abs=1e-12), plan.name


def test_what_is_lost_costs_as_little_as_it_must() -> None:
    nan = float("nan")
    found, _, _ = given(played([[nan, 0], [3, 4]], Cross()), Cross())
    assert found == [(-1.75, 0.5), (1.75, -0.5)]  # rows 0 and 3.5, columns 3 and 2
    # Where episodes go on, the future of the lost joint action is unknown: its two actions cannot be compared.
    found, _, _ = given(played([[nan, 0], [3, 4]], Cross(), (10.0, 20.0), last=False), Cross())
    assert found[0] == (None, None)
    assert found[1] == (0.0, 0.0)  # nothing left to compare them with
    # All of it lost: no advantage, and no group that could be called flat.
    found, flat, _ = given(played([[nan, nan], [nan, nan]], Cross()), Cross())
    assert (found, flat) == ([(None, None), (None, None)], 0.0)


def test_the_spread_is_that_of_everything_executed_so_an_agent_that_does_not_matter_is_not_blown_up() -> None:
    """Divided by its own tiny spread, the second agent's credit would be as large as the first's."""
    scaled = AdvantageSettings(scale="group_std")
    table = np.array([[0.0, 0.01], [1.0, 1.01]])
    found, _, _ = given(played(table, Cross()), Cross(), scaled)
    assert np.array(found) == pytest.approx(np.array([[-0.5, -0.005], [0.5, 0.005]]) / table.std())
    # Joint actions that earn alike, while combinations do not.
    found, flat, _ = given(played([[1, 0], [2, 1]], Cross()), Cross(), scaled)
    assert flat == 0.0
    assert np.array(found) == pytest.approx(np.array([[-0.5, 0.5], [0.5, -0.5]]) / np.std([1, 0, 2, 1]))


@pytest.mark.parametrize("plan", [Pairings(2), Latin(), Cross(), Column(), Removal()], ids=lambda plan: plan.name)
@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-6, 1.0])
def test_what_differs_only_in_later_turns_is_divided_by_its_own_spread(plan: Plan, size: float) -> None:
    """With equal rewards of this turn the advantages are those of the later returns, whatever the size of the rest."""
    rng = np.random.default_rng(3)
    scaled = AdvantageSettings(scale="group_std")
    below = tuple(rng.normal(size=4))
    chosen = plan.cells(2, 4)
    rewards = size * rng.normal(size=len(chosen))
    order = [int(np.flatnonzero((chosen == g).all(axis=1))[0]) for g in range(4)]
    decisions = [decision(float(rewards[place]), last=False) for place in order]
    decisions += [decision(value, group=1 + g, parent=g) for g, value in enumerate(below)]
    found, flat, _ = given(Experience(decisions, cells=[Cells(0, chosen, rewards)]), plan, scaled)
    advantages = np.array(found[:4], dtype=float)
    assert flat == 4 / 5, "the group of the first turn is not flat: what followed differs"
    assert np.isfinite(advantages).all() and np.abs(advantages).max() < 4
    if size < 1e-3:
        expected = (np.array(below) - np.mean(below)) / np.std(below)
        assert advantages == pytest.approx(np.stack([expected, expected], axis=1), abs=1e-4)


def test_without_combinations_the_spread_is_that_of_the_returns() -> None:
    scaled = AdvantageSettings(scale="group_std")
    plan, table, below = Pairings(1), np.diag([1.0, 2.0, 3.0, 5.0]), (3.0, 2.0, 1.0, 0.0)
    found, _, _ = given(played(table, plan, below, last=False), plan, scaled)
    assert found[:4] == given(played(table, Aligned(), below, last=False), Aligned(), scaled)[0][:4]


def test_each_agent_divided_by_its_own_spread_is_as_large_as_the_others() -> None:
    own = AdvantageSettings(scale="agent_std")
    table = np.array([[0.0, 0.01], [1.0, 1.01]])
    found, _, _ = given(played(table, Cross()), Cross(), own)
    assert np.array(found) == pytest.approx(np.array([[-1.0, -1.0], [1.0, 1.0]])), "0.005 became as large as 0.5"


def test_a_group_is_flat_when_all_that_was_executed_earned_alike() -> None:
    assert given(played([[1, 1], [1, 1]], Cross()), Cross())[1] == 1.0
    assert given(played([[1, 1], [1, 1]], Cross()), Cross())[0] == [(0.0, 0.0), (0.0, 0.0)]


def test_a_turn_later_is_part_of_what_an_alternative_is_worth() -> None:
    """With replay every joint action continues, so the mean over those with an action includes later turns."""
    plan = Replay((2, 2))
    table = np.diag([1.0, 2.0, 3.0, 4.0])
    experience = played(table, plan, (10.0, 20.0, 30.0, 40.0), last=False)
    found, flat, _ = given(experience, plan)
    assert np.array(found[:4]) == pytest.approx(np.array([[-11, -5.5], [-11, 5.5], [11, -5.5], [11, 5.5]]))
    assert flat == 4 / 5, "what followed is one decision per group"
    same, flat, _ = given(played(np.diag([1.0, 2.0, 3.0, 4.0]), plan, (4.0, 3.0, 2.0, 1.0), last=False), plan)
    assert (same[:4], flat) == ([(0.0, 0.0)] * 4, 1.0), "whole returns are equal"


@pytest.mark.parametrize("kind", ["pairings", "latin", "cross", "column", "removal"])
def test_one_agent_is_trained_to_the_same_bits_by_every_plan(tmp_path: Path, kind: str) -> None:
    digests = []
    for credit_kind in ("aligned", kind):
        team = make_team(("one",))
        settings = make_settings(steps=2, checkpoint_every=2, group_size=4, credit={"kind": credit_kind})
        run_training(tmp_path, team, Agree(("one",), turns=2), settings=settings, scratch=tmp_path / credit_kind)
        digests.append(team_digest(team))
    assert digests[0] == digests[1]


@pytest.mark.parametrize("kind", ["pairings", "cross", "column", "removal"])
def test_two_turns_are_trained_with_scaled_advantages_by_every_plan(tmp_path: Path, kind: str) -> None:
    settings = make_settings(
        steps=2,
        checkpoint_every=2,
        group_size=4,
        groups="tree",
        credit={"kind": kind},
        advantage={"scale": "group_std"},
    )
    _, steps = run_training(tmp_path, make_team(), Agree(turns=2), settings=settings)
    assert all(np.isfinite(value) for step in steps for value in step.values() if isinstance(value, float))


@pytest.mark.parametrize(
    ("kind", "shared", "lora", "cells"),
    [("latin", True, False, 64), ("cross", False, True, 512), ("column", False, False, 176)],
)
def test_three_agents_learn(tmp_path: Path, kind: str, shared: bool, lora: bool, cells: int) -> None:
    settings = make_settings(steps=20, group_size=8, learning_rate=3e-2, credit={"kind": kind})
    names = ("one", "two", "three")
    _, steps = run_training(tmp_path, make_team(names, shared, lora), Agree(names), settings=settings)
    assert steps[0]["executions/cells"] == 3 * cells
    assert 3 * 8 < steps[0]["executions/count"] <= 3 * cells
    assert steps[0]["actions/count"] == 3 * 3 * 8
    first, last = (np.mean([step["reward/mean"] for step in part]) for part in (steps[:3], steps[-3:]))
    assert last > first + 0.1


def test_agents_that_read_each_other_learn_by_replay(tmp_path: Path) -> None:
    settings = make_settings(steps=20, group_size=16, learning_rate=3e-2, credit={"kind": "replay", "fan_out": (4, 4)})
    _, steps = run_training(tmp_path, make_team(), Agree(), settings=settings, protocol=SequentialPipeline())
    assert steps[0]["actions/count"] == 3 * (4 + 16), "the first agent writes four texts, the second four below each"
    assert steps[0]["executions/count"] <= steps[0]["executions/cells"] == 3 * 16
    first, last = (np.mean([step["reward/mean"] for step in part]) for part in (steps[:3], steps[-3:]))
    assert last > first + 0.1


def test_executions_of_what_is_only_sampled(tmp_path: Path) -> None:
    _, steps = run_training(tmp_path, make_team(), Agree(), settings=make_settings(steps=1, checkpoint_every=1))
    assert steps[0]["executions/count"] == steps[0]["executions/cells"] == 3 * 16


def test_plans_are_values() -> None:
    assert Latin() == Latin() and hash(Cross()) == hash(Cross())
