"""Credit against the truth, in small: what the benchmark measures is right, and ranks the plans as theory does."""

import itertools

import numpy as np
import pytest

from benchmarks.credit_fidelity import Game, advantages, largest, measure
from benchmarks.credit_games import error_of_the_pool, philosophers_games
from benchmarks.credit_page import reached
from pipeline_lib.credit.plans import Aligned, Column, Cross, Latin, Pairings, Removal, Replay


def drawn_games(agents: int, count: int = 6) -> list[Game]:
    """Return games of five actions per agent with main effects and as much interaction; the sixth is its absence."""
    rng = np.random.default_rng(agents)
    found = []
    for _ in range(count):
        table = rng.normal(size=(6,) * agents)
        for agent in range(agents):
            table = table + rng.normal(size=[6 if k == agent else 1 for k in range(agents)])
        policies = tuple(np.append(rng.dirichlet([2.0] * 5), 0.0) for _ in range(agents))
        found.append(Game(policies, table, table))
    return found


def test_the_truth_is_that_of_the_policies() -> None:
    [game] = drawn_games(3, 1)
    mean, values = 0.0, [np.zeros(5) for _ in range(3)]
    for joint in itertools.product(range(5), repeat=3):
        chance = np.prod([game.policies[i][a] for i, a in enumerate(joint)])
        mean += chance * game.whole[joint]
        for i, a in enumerate(joint):
            values[i][a] += chance / game.policies[i][a] * game.whole[joint]
    for found, expected in zip(game.truth(), values, strict=True):
        assert found[:5] == pytest.approx(expected - mean)
    assert game.with_spectator().truth()[-1] == pytest.approx([0.0, 0.0, 0.0])


def test_the_truth_in_turn_is_given_what_the_agents_before_did() -> None:
    [game] = drawn_games(3, 1)
    truth = game.truth_in_turn()
    weights = [policy[:5] for policy in game.policies]
    for first, second, third in itertools.product(range(5), repeat=3):
        here = game.whole[first, second, :5]
        assert truth[2][first, second, third] == pytest.approx(here[third] - here @ weights[2])
        answered = game.whole[first, :5, :5] @ weights[2]
        assert truth[1][first, second] == pytest.approx(answered[second] - answered @ weights[1])
    assert truth[0] == pytest.approx(game.truth()[0])


def test_removal_subtracts_what_the_team_gets_without_the_agent() -> None:
    [game] = drawn_games(2, 1)
    sampled = np.array([[0, 1], [3, 2]])
    found, executed = advantages(game, Removal(), sampled)
    table = game.whole
    lost = np.array(
        [[table[0, 1] - table[5, 1], table[3, 2] - table[5, 2]], [table[0, 1] - table[0, 5], table[3, 2] - table[3, 5]]]
    )
    assert executed == 6
    assert found == pytest.approx(lost - lost[:, ::-1])  # leave one out


def test_in_turn_a_fixed_context_is_nearer_to_the_truth_and_not_biased() -> None:
    games = drawn_games(2)
    aligned = measure(games, Aligned(), 8, 400, 0, in_turn=True)
    replay = measure(games, Replay((2, 4)), 8, 400, 0, in_turn=True)
    assert replay["correlation"] > aligned["correlation"] + 0.05
    assert replay["error"] < aligned["error"]
    for values in (aligned, replay):
        assert abs(values["bias"]) < 0.1 * values["variance"]


@pytest.mark.parametrize("agents", [2, 3])
def test_at_equal_tokens_more_executions_are_nearer_to_the_truth_and_none_is_biased(agents: int) -> None:
    games = drawn_games(agents)
    found = {
        plan.name: measure(games, plan, 4, 200, 0)
        for plan in (Aligned(), Pairings(2), Latin(), Cross(), Column(), Removal())
    }
    order = ["aligned", "pairings", "latin", "cross"][: 2 + agents - 1]  # for two agents latin is cross
    for worse, better in itertools.pairwise(order):
        assert found[worse]["correlation"] < found[better]["correlation"], (worse, better)
        assert found[worse]["error"] > found[better]["error"], (worse, better)
        assert found[worse]["variance"] > found[better]["variance"], (worse, better)
    assert found["column"]["correlation"] < found["cross"]["correlation"]
    for name, values in found.items():
        # The mean of 200 groups is off by its own noise only, and that is taken out of the squared bias.
        assert abs(values["bias"]) < 0.1 * values["variance"], name
    assert found["cross"]["spectator"] == found["column"]["spectator"] == 0.0
    assert found["aligned"]["spectator"] > 1.0


def test_an_estimate_is_not_compared_with_what_it_was_made_of() -> None:
    """A table of the sampled actions would call cross perfect; the policies' truth does not."""
    assert measure(drawn_games(2), Cross(), 4, 300, 0)["correlation"] < 0.9


def test_what_comes_later_is_credited_by_what_was_continued() -> None:
    """Where all reward is still to come, combinations execute nothing that helps: cross gives what aligned gives."""
    [game] = drawn_games(2, 1)
    later = Game(game.policies, np.zeros_like(game.now), game.whole)
    sampled = np.random.default_rng(0).integers(0, 5, (4, 2))
    assert advantages(later, Cross(), sampled)[0] == pytest.approx(advantages(later, Aligned(), sampled)[0])
    assert advantages(game, Cross(), sampled)[0] != pytest.approx(advantages(game, Aligned(), sampled)[0])


def test_groups_at_equal_executions() -> None:
    assert [largest(plan, 2, 64) for plan in (Aligned(), Pairings(2), Latin(), Cross(), Column())] == [64, 32, 8, 8, 8]
    assert [largest(plan, 3, 64) for plan in (Aligned(), Latin(), Cross(), Column())] == [64, 8, 4, 4]


@pytest.mark.parametrize("seats", [3, 4])
def test_philosophers_are_a_game_in_which_what_is_done_matters(seats: int) -> None:
    for game in philosophers_games(seats, 2, 7):
        assert game.now.shape == (5,) * seats
        assert (game.now[..., -1] == game.now[..., 0]).all()  # absent, a philosopher waits
        assert np.ptp(game.now) > 0
        assert np.ptp(game.whole - game.now) > 0
        assert max(np.ptp(truth) for truth in game.truth()) > 0.01


def test_the_error_of_a_pool_is_that_of_means_over_its_draws() -> None:
    """The partner's two actions, equally likely, turn an advantage around: a mean over 32 is off by 1 / sqrt(32)."""
    match = np.array([[1.0, -1.0], [-1.0, 1.0]])
    game = Game((np.array([0.5, 0.5]),) * 2, match, match)
    assert error_of_the_pool([game]) == pytest.approx(1 / np.sqrt(32))


def test_the_error_of_a_pool_with_two_others_is_that_of_redrawn_pools() -> None:
    [game] = drawn_games(3, 1)
    rng = np.random.default_rng(0)
    spreads = []
    for agent, own in enumerate(game.policies):
        table = np.moveaxis(game.whole, agent, 0)
        first, second = (policy for other, policy in enumerate(game.policies) if other != agent)
        values = np.array(
            [table @ (rng.multinomial(12, second) / 12) @ (rng.multinomial(12, first) / 12) for _ in range(4000)]
        )
        spreads.append(own @ np.var(values - (values @ own)[:, None], axis=0))
    # What the two pools do only together is of a smaller order, 1 / 12^2, and is left out.
    assert 0.85 < error_of_the_pool([game]) / np.sqrt(np.mean(spreads)) < 1.02


def test_when_enough_tests_passed() -> None:
    rows = [{"metrics/tests_passed": value} for value in (0.5, 0.95, 0.8, 0.92, 1.0, 0.95)]
    assert reached(rows, 3) == 5
    assert reached(rows, 1) == 2
    assert reached(rows[:4], 3) is None
