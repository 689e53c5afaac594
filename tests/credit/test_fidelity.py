"""Credit against the truth, in small: what the benchmark measures is right, and ranks the plans as theory does."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.credit_fidelity import Game, advantages, largest, measure
from benchmarks.credit_games import error_of_the_pool, philosophers_games
from benchmarks.credit_page import reached
from pipeline_lib.credit.aligned import Aligned
from pipeline_lib.credit.column import Column
from pipeline_lib.credit.cross import Cross
from pipeline_lib.credit.latin import Latin
from pipeline_lib.credit.pairings import Pairings


def drawn_games(agents: int, count: int = 6) -> list[Game]:
    """Return games of five actions per agent with main effects and as much interaction."""
    rng = np.random.default_rng(agents)
    found = []
    for _ in range(count):
        table = rng.normal(size=(5,) * agents)
        for agent in range(agents):
            table = table + rng.normal(size=[5 if k == agent else 1 for k in range(agents)])
        found.append(Game(tuple(rng.dirichlet([2.0] * 5) for _ in range(agents)), table, table))
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
        assert found == pytest.approx(expected - mean)
    assert game.with_spectator().truth()[-1] == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize("agents", [2, 3])
def test_at_equal_tokens_more_executions_are_nearer_to_the_truth_and_none_is_biased(agents: int) -> None:
    games = drawn_games(agents)
    found = {
        plan.name: measure(games, plan, 4, 200, 0) for plan in (Aligned(), Pairings(2), Latin(), Cross(), Column())
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
        assert game.now.shape == (4,) * seats
        assert np.ptp(game.now) > 0
        assert np.ptp(game.whole - game.now) > 0
        assert max(np.ptp(truth) for truth in game.truth()) > 0.01


def test_the_error_of_a_pool_is_that_of_means_over_its_draws() -> None:
    """The partner's two actions, equally likely, turn an advantage around: a mean over 32 is off by 1 / sqrt(32)."""
    match = np.array([[1.0, -1.0], [-1.0, 1.0]])
    game = Game((np.array([0.5, 0.5]),) * 2, match, match)
    assert error_of_the_pool([game]) == pytest.approx(1 / np.sqrt(32))


def test_when_enough_tests_passed() -> None:
    rows = [{"metrics/tests_passed": value} for value in (0.5, 0.95, 0.8, 0.92, 1.0, 0.95)]
    assert reached(rows, 3) == 5
    assert reached(rows, 1) == 2
    assert reached(rows[:4], 3) is None
