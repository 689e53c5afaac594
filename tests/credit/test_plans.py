"""Which cells a plan executes: how many, which actions meet, and what cannot be made."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline_lib.credit.plans import (
    NOTHING,
    PLANS,
    Aligned,
    Column,
    Cross,
    Latin,
    Pairings,
    Plan,
    Removal,
    Replay,
    field_tables,
    idempotent_square,
    make_plan,
    prime_powers,
)

TEAMS = [(agents, size) for agents in (2, 3, 4) for size in range(2, 10)]

#: Teams for which no balanced array is made: two actions of three agents, and four agents beside a part of 2 or 3.
UNBALANCED = {(3, 2), (4, 2), (4, 3), (4, 6)}


def balanced(cells: NDArray[np.int64], size: int) -> bool:
    """Return whether any two agents show each of their pairs of actions exactly once."""
    pairs = itertools.combinations(range(cells.shape[1]), 2)
    return all(np.array_equal(np.bincount(cells[:, i] * size + cells[:, j]), np.ones(size**2)) for i, j in pairs)


@pytest.mark.parametrize(("agents", "size"), TEAMS)
def test_a_latin_plan_is_balanced_for_every_pair_of_agents(agents: int, size: int) -> None:
    if (agents, size) in UNBALANCED:
        with pytest.raises(ValueError, match="no balanced array is known here"):
            Latin().cells(agents, size)
        return
    cells = Latin().cells(agents, size)
    assert cells.shape == (size**2, agents)
    assert balanced(cells, size)


def test_cyclic_shifts_are_not_balanced_for_three_agents_with_four_actions() -> None:
    """The check above can fail: the second agent's shift by s and the third's by 2 s repeat pairs."""
    g, s = np.indices((4, 4)).reshape(2, -1)
    assert not balanced(np.stack([g, (g + s) % 4, (g + 2 * s) % 4], axis=1), 4)


@pytest.mark.parametrize(("agents", "size"), TEAMS)
@pytest.mark.parametrize("plan", [Aligned(), Pairings(2), Latin(), Cross(), Column()], ids=lambda plan: plan.name)
def test_every_plan_holds_what_was_sampled_and_no_cell_twice(plan: Plan, agents: int, size: int) -> None:
    if plan.refuse(agents, size):
        return
    cells = plan.cells(agents, size)
    counts = {
        "aligned": size,
        "pairings": 2 * size,
        "latin": size**2,
        "cross": size**agents,
        "column": size**2 if agents == 2 else size + agents * size * (size - 1),
    }
    assert len(np.unique(cells, axis=0)) == len(cells) == counts[plan.name]
    assert {(g,) * agents for g in range(size)} <= set(map(tuple, cells.tolist()))
    for agent in range(agents):
        assert len(set(np.bincount(cells[:, agent], minlength=size))) == 1  # every action equally often


@pytest.mark.parametrize(("agents", "size"), TEAMS)
def test_every_pairing_uses_every_action_once_and_the_balanced_ones_repeat_no_pair(agents: int, size: int) -> None:
    for per_action in range(2, size + 1):
        cells = Pairings(per_action).cells(agents, size).reshape(per_action, size, agents)
        assert (np.sort(cells, axis=1) == np.arange(size)[None, :, None]).all()
        if agents <= min(prime_powers(size)):
            flat = cells.reshape(-1, agents)
            for i, j in itertools.combinations(range(agents), 2):
                assert len(np.unique(flat[:, [i, j]], axis=0)) == per_action * size


def test_removal_executes_what_was_sampled_and_each_without_one_agent() -> None:
    cells = Removal().cells(2, 2)
    assert cells.tolist() == [[0, 0], [1, 1], [NOTHING, 0], [NOTHING, 1], [0, NOTHING], [1, NOTHING]]
    worth = Removal().compare(cells, np.array([5.0, 6, 1, 2, 4, 3]), 2)
    assert worth[:, 0].tolist() == [[4, 4], [1, 3]]
    assert len(Removal().cells(5, 8)) == 8 * 6
    assert "more than 4096" in Removal().refuse(64, 64)


def test_replay_compares_only_alternatives_for_the_same_context() -> None:
    plan = Replay((2, 3))
    assert [plan.block(place, 2, 6) for place in (0, 1)] == [3, 1]
    worth = plan.compare(plan.cells(2, 6), np.array([1.0, 2, 6, 0, 0, 3]), 6)
    first = [[known for known in row if not np.isnan(known)] for row in worth[0]]
    assert first == [[3, 1]] * 6, "the mean of what followed each of the first agent's two actions"
    second = [[known for known in row if not np.isnan(known)] for row in worth[1]]
    assert second == [[1, 2, 6]] * 3 + [[0, 0, 3]] * 3
    assert [worth[1, g, g] for g in range(6)] == [1, 2, 6, 0, 0, 3]
    assert "must have one number for each of 3 agents" in plan.refuse(3, 6)
    assert "the product of fan_out [2, 3] must be group_size (8)" in plan.refuse(2, 8)


def test_replay_leaves_a_lost_joint_action_out_of_the_mean() -> None:
    plan = Replay((2, 2))
    nan = float("nan")
    worth = plan.compare(plan.cells(2, 4), np.array([1.0, nan, nan, nan]), 4)
    assert np.array_equal(worth[0, 0], [1, nan, nan, nan], equal_nan=True)
    assert np.array_equal(worth[1, 0], [1, nan, nan, nan], equal_nan=True)


@pytest.mark.parametrize("name", PLANS)
def test_with_one_agent_or_one_action_every_plan_is_what_was_sampled(name: str) -> None:
    plan = make_plan(name)
    assert plan.cells(1, 4).tolist() == [[0], [1], [2], [3]]
    assert plan.cells(3, 1).tolist() == [[0, 0, 0]]


def test_two_agents_have_the_same_cells_in_latin_cross_and_column() -> None:
    whole = set(map(tuple, Cross().cells(2, 6).tolist()))
    assert set(map(tuple, Latin().cells(2, 6).tolist())) == whole == set(map(tuple, Column().cells(2, 6).tolist()))


def test_what_cannot_be_made_is_refused_with_what_can() -> None:
    assert "choose group_size 4, 5, 7, or the plan pairings" in Latin().refuse(4, 6)
    assert Latin().refuse(5, 8) == ""
    assert "32768 executions per group" in Cross().refuse(5, 8)
    assert "per_action (5) is more than the 4 actions" in Pairings(5).refuse(2, 4)
    assert Column().refuse(5, 8) == "" != Column().refuse(50, 16)


@pytest.mark.parametrize("order", [2, 3, 4, 5, 7, 8, 9, 16, 25, 27, 32])
def test_fields_are_fields(order: int) -> None:
    add, multiply = field_tables(order)
    everything = np.arange(order)
    assert (add[0] == everything).all() and (multiply[1] == everything).all() and (multiply[0] == 0).all()
    assert (np.sort(add, axis=1) == everything).all()
    assert (np.sort(multiply[1:], axis=1) == everything).all()
    assert (add == add.T).all() and (multiply == multiply.T).all()
    a, b, c = np.random.default_rng(order).integers(0, order, (3, 200))
    assert (multiply[a, add[b, c]] == add[multiply[a, b], multiply[a, c]]).all()
    assert (multiply[a, multiply[b, c]] == multiply[multiply[a, b], c]).all()


@pytest.mark.parametrize("size", range(3, 18))
def test_idempotent_squares_are_latin(size: int) -> None:
    square = idempotent_square(size)
    assert (np.sort(square, axis=0) == np.arange(size)[:, None]).all()
    assert (np.sort(square, axis=1) == np.arange(size)).all()
    assert (square.diagonal() == np.arange(size)).all()


def test_cells_cannot_be_changed_by_who_asked_for_them() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Cross().cells(2, 3)[0, 0] = 1
