"""Rules of the table: golden values, invariants over random play, and the faults of the published benchmark."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.environments.philosophers import table as tables
from pipeline_lib.environments.philosophers.optimum import most_meals
from pipeline_lib.environments.philosophers.rewards import fairness, summarise
from pipeline_lib.environments.philosophers.scenarios import make_graph
from pipeline_lib.environments.philosophers.table import INVALID, LEFT, RELEASE, RIGHT, WAIT, Table, step
from tests.environments.philosophers_help import constant, play, ring


@pytest.mark.parametrize("n", [2, 3, 5, 10, 50])
def test_everybody_grabbing_left_deadlocks_in_the_first_step(n):
    after = play(ring(n), constant(LEFT))
    assert after.deadlock_time.tolist() == [1]
    assert after.time.tolist() == [1]
    assert after.meals.sum() == 0


@pytest.mark.parametrize("action", [WAIT, RELEASE, INVALID])
def test_doing_nothing_reaches_the_horizon_without_a_meal(action):
    after = play(ring(5), constant(action))
    assert after.time.tolist() == [30]
    assert not after.deadlocked.any()
    assert after.meals.sum() == 0
    assert after.counts.invalid.tolist() == [150 if action == INVALID else 0]
    assert after.counts.waits.tolist() == [150 if action == WAIT else 0]


def test_a_meal_occupies_its_forks_as_the_rules_say():
    table = ring(3, horizon=6)
    alone = np.full((3, 1), WAIT, np.int8)

    def with_first(action: int) -> np.ndarray:
        actions = alone.copy()
        actions[0] = action
        return actions

    table = step(table, with_first(LEFT))
    table = step(table, with_first(RIGHT))
    assert table.meals[0, 0] == 1 and table.eating[0, 0] == 1
    during = step(table, with_first(WAIT))
    assert during.eating[0, 0] == 0 and not during.taken().any()
    # In the step in which the meal ends the forks are not yet free; in the next one they are.
    neighbour = alone.copy()
    neighbour[1] = LEFT  # fork 1, the eater's right one
    assert not step(table, neighbour).left[1, 0]
    assert step(during, neighbour).left[1, 0]


@pytest.mark.parametrize("eating_time", [1, 2, 4])
def test_eating_time_is_the_number_of_steps_forks_stay_busy_after_the_meal_began(eating_time):
    table = ring(2, horizon=20, eating_time=eating_time)
    first = np.array([[LEFT], [WAIT]], np.int8)
    table = step(step(table, first), np.array([[RIGHT], [WAIT]], np.int8))
    for _ in range(eating_time):
        assert table.taken().all()
        table = step(table, first * 0)
    assert not table.taken().any()


def test_a_contested_fork_goes_to_the_smallest_priority():
    table = tables.make_table(make_graph("ring", 2), [[0, 1], [1, 0]], 5)
    # Fork 1 is the right one of philosopher 0 and the left one of philosopher 1.
    after = step(table, np.array([[RIGHT, RIGHT], [LEFT, LEFT]], np.int8))
    assert after.right[0].tolist() == [True, False]
    assert after.left[1].tolist() == [False, True]
    assert after.counts.failed.tolist() == [1, 1]


def test_a_released_fork_can_be_taken_in_the_same_step():
    table = ring(2)
    table = step(table, np.array([[LEFT], [WAIT]], np.int8))  # philosopher 0 holds fork 0
    after = step(table, np.array([[RELEASE], [RIGHT]], np.int8))  # philosopher 1's right fork is fork 0
    assert after.right[1, 0] and not after.left[0, 0]


def test_sequential_play_moves_one_philosopher_per_step_in_order_of_priority():
    table = tables.make_table(make_graph("ring", 3), [[2, 0, 1]], 30, sequential=True)
    assert [int(table.mover()[0])] == [1]
    table = step(table, np.full((3, 1), LEFT, np.int8))
    assert table.left[:, 0].tolist() == [False, True, False]
    assert int(table.mover()[0]) == 2
    table = step(step(table, np.full((3, 1), LEFT, np.int8)), np.full((3, 1), LEFT, np.int8))
    assert table.deadlock_time.tolist() == [3]


def early_end_is_flagged(table: Table) -> bool:
    """An episode that stopped before its horizon is a flagged deadlock, and a flagged deadlock is a real one."""
    stopped = table.time < table.horizon
    real = ~table.eating.any(axis=0) & (table.left ^ table.right).all(axis=0)
    return np.array_equal(stopped, table.deadlocked & stopped) and bool(real[table.deadlocked].all())


def test_a_sequential_deadlock_is_flagged_and_a_lost_flag_is_caught():
    after = play(ring(5, sequential=True), constant(LEFT))
    assert after.time.tolist() == [5]
    assert after.deadlocked.all() and early_end_is_flagged(after)
    # The published benchmark ends these episodes and then reports them without the flag.
    flag_lost = dataclasses.replace(after, deadlock_time=np.array([-1], np.int32))
    assert not early_end_is_flagged(flag_lost)


def forks_are_consistent(table: Table) -> bool:
    """No fork is in two hands; a meal needs both hands full; who is hungry never has both."""
    both = table.left & table.right
    hands = tables.exclusive_violations(table.graph, table.left, table.right)
    return not hands.any() and np.array_equal(both, table.eating > 0)


def phantom_fork_step(table: Table, actions: np.ndarray) -> Table:
    """A faulty copy of the rule: an eater's RELEASE frees its forks for others before its meal has ended."""
    generous = (actions == RELEASE) & (table.eating > 0)
    open_table = dataclasses.replace(table, left=table.left & ~generous, right=table.right & ~generous)
    return step(open_table, actions)


def test_an_eaters_release_changes_nothing_and_the_phantom_fork_is_caught():
    table = ring(3)
    table = step(table, np.array([[WAIT], [LEFT], [RIGHT]], np.int8))  # 1 holds fork 1, 2 holds fork 0
    table = step(table, np.array([[WAIT], [RIGHT], [WAIT]], np.int8))  # 1 eats with forks 1 and 2
    attempt = np.array([[WAIT], [RELEASE], [LEFT]], np.int8)  # 1 "releases", 2 asks for fork 2
    assert table.eating[1, 0] == 1
    clean, faulty = step(table, attempt), phantom_fork_step(table, attempt)
    assert clean.meals.sum() == 1 and forks_are_consistent(clean)
    assert faulty.meals.sum() == 2, "the faulty rule serves a meal with a fork that was in use"


def test_deadlock_may_be_made_to_end_by_putting_everything_down():
    after = play(ring(5, deadlock_ends=False), constant(LEFT))
    assert after.time.tolist() == [30]
    assert after.counts.deadlocks.tolist() == [30]
    assert after.deadlock_time.tolist() == [1]
    assert not after.taken().any()


def test_livelock_is_forks_changing_hands_without_a_meal():
    def swing(table: Table) -> np.ndarray:
        return np.full(table.left.shape, LEFT if table.time[0] % 2 == 0 else RELEASE, np.int8)

    restless = tables.make_table(make_graph("chain", 4), [[0, 1, 2, 3]], 30)
    after = play(restless, swing)
    assert after.counts.livelock.tolist() == [1]
    assert play(restless, constant(WAIT)).counts.livelock.tolist() == [0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"priority": [[0, 0, 2]]}, "permutation"),
        ({"horizon": 0}, "horizon: got 0"),
        ({"eating_time": 0}, "eating_time: got 0"),
        ({"holdings": [[1, 0, 2]]}, "a fork is in two hands"),
        ({"holdings": [[3, 0, 0]]}, "holdings"),
    ],
)
def test_impossible_tables_are_refused(change, words):
    values = {"priority": [[0, 1, 2]], "horizon": 30} | change
    with pytest.raises(ValueError, match=words):
        tables.make_table(make_graph("ring", 3), **values)


@pytest.mark.parametrize("n", [1, 0, 51])
def test_tables_seat_2_to_50(n):
    with pytest.raises(ValueError, match=f"got {n}; a table seats 2 to 50"):
        make_graph("ring", n)


def test_unknown_graphs_are_refused():
    with pytest.raises(ValueError, match="accepted: ring, chain, grid"):
        make_graph("star", 5)


@pytest.mark.parametrize("name", ["ring", "chain", "grid"])
@pytest.mark.parametrize("n", [2, 3, 5, 8, 12])
def test_graphs_are_connected_and_colours_separate_neighbours(name, n):
    graph = make_graph(name, n)
    reached = {0}
    for _ in range(n):
        reached |= {j for i in reached for j in graph.neighbours[i]}
    assert reached == set(range(n))
    assert all(graph.colours[i] != graph.colours[j] for i in range(n) for j in graph.neighbours[i])
    assert all(graph.left[i] != graph.right[i] for i in range(n))
    everybody = {*graph.left, *graph.right}
    assert everybody == set(range(graph.forks))


def test_the_batch_order_and_selection_do_not_matter():
    rng = np.random.default_rng(3)
    priority = np.array([rng.permutation(5) for _ in range(64)])
    actions = rng.integers(0, 5, (20, 5, 64), dtype=np.int8)
    whole = tables.make_table(make_graph("ring", 5), priority, 15)
    rows = rng.permutation(64)
    part = whole.select(rows)
    for now in actions:
        whole, part = step(whole, now), step(part, now[:, rows])
    mixed = tables.concatenate([whole.select(rows[:10]), whole.select(rows[10:])])
    for name in ("left", "right", "eating", "meals", "time", "deadlock_time", "idle"):
        assert np.array_equal(getattr(whole.select(rows), name), getattr(part, name)), name
        assert np.array_equal(getattr(mixed, name), getattr(part, name)), name
    for field in dataclasses.fields(tables.Counts):
        assert np.array_equal(getattr(mixed.counts, field.name), getattr(part.counts, field.name)), field.name


@given(
    n=st.integers(2, 9),
    name=st.sampled_from(["ring", "chain", "grid"]),
    sequential=st.booleans(),
    ends=st.booleans(),
    eating_time=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_invariants_hold_over_random_play(n, name, sequential, ends, eating_time, seed):
    """Each example plays 512 episodes of up to 60 random steps: some millions of agent-steps in all."""
    rng = np.random.default_rng(seed)
    graph = make_graph(name, n)
    batch = 512
    held = rng.integers(0, 3, (batch, n))
    for _ in range(n):  # put down what is in two hands
        doubled = tables.exclusive_violations(graph, held.T == 1, held.T == 2)
        bad = (doubled[graph.left_index] & (held.T == 1)) | (doubled[graph.right_index] & (held.T == 2))
        held[bad.T] = 0
    table = tables.make_table(
        graph, np.array([rng.permutation(n) for _ in range(batch)]), rng.integers(1, 61, batch), eating_time, held,
        sequential, ends,
    )  # fmt: skip
    optimum = graph.forks * 60
    while not table.done.all():
        before = table
        table = step(table, rng.integers(0, 5, (n, batch), dtype=np.int8))
        assert forks_are_consistent(table)
        over = before.done
        assert np.array_equal(before.meals[:, over], table.meals[:, over])
        assert np.array_equal(before.time[over], table.time[over])
        assert (table.meals - before.meals <= (before.eating == 0)).all(), "only the hungry begin a meal"
        assert (table.meals >= before.meals).all()
        assert not (before.deadlocked & ~table.deadlocked).any()
    if ends:
        assert np.array_equal(table.time < table.horizon, table.deadlocked & (table.time < table.horizon))
    counts = table.counts
    summary = summarise(table, optimum)
    assert (counts.taken + counts.failed + counts.released + counts.waits + counts.invalid <= counts.decisions).all()
    assert (summary.fairness() >= 0).all() and (summary.fairness() <= 1).all()
    assert (table.meals.sum(axis=0) * 2 <= counts.taken + (held > 0).sum(axis=1)).all(), "two forks per meal"


def test_fairness_has_the_published_values_except_at_no_meals():
    meals = np.array([[6, 0, 10, 0, 6], [5, 0, 0, 0, 0], [3, 3, 3, 3, 3], [0, 0, 0, 0, 0]], np.int32).T
    found = fairness(meals)
    assert found[0] == pytest.approx(0.409091, abs=1e-6)
    assert found[1:].tolist() == pytest.approx([0.0, 1.0, 0.0])
    assert fairness(meals, without_meals=1.0)[3] == 1.0


@pytest.mark.parametrize(("n", "meals"), [(2, 10), (3, 15), (4, 20), (5, 29)])
def test_golden_optimum(n, meals):
    assert most_meals(make_graph("ring", n), 30) == (meals, True)


@pytest.mark.parametrize(("n", "horizon", "meals"), [(3, 30, 7), (5, 30, 7), (5, 150, 33)])
def test_golden_optimum_of_sequential_play(n, horizon, meals):
    assert most_meals(make_graph("ring", n), horizon, order=tuple(range(n))) == (meals, True)
