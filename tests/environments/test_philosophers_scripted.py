"""Scripted policies: golden values, agreement with the text environment, and tables they refuse."""

import dataclasses

import numpy as np
import pytest

from pipeline_lib.environments.philosophers.rewards import metrics
from pipeline_lib.environments.philosophers.runtime import PhilosophersEnvironment
from pipeline_lib.environments.philosophers.scenarios import dpbench, generate_scenarios, make_scenario
from pipeline_lib.environments.philosophers.scripted import all_tables, play_teams, script, scripted_records, summaries
from pipeline_lib.environments.philosophers.settings import PhilosophersSettings, ScenarioFamily, ScenarioProblems
from pipeline_lib.environments.philosophers.table import ACTIONS
from pipeline_lib.settings.problems import SplitSizes
from tests.environments.philosophers_help import ring


def played(name: str, n: int, episodes: int = 1):
    [(_, table, summary)] = summaries(script(name), [dpbench(n)] * episodes, seed=0)
    return table, metrics(summary)


@pytest.mark.parametrize(
    ("name", "n", "meals", "fairness"),
    [
        ("parity", 3, [6, 0, 6], None),
        ("parity", 5, [6, 0, 10, 0, 6], 0.40909),
        ("hierarchy", 3, [6, 6, 0], None),
        ("hierarchy", 5, [5, 5, 6, 6, 0], 0.705),
        ("time_slots", 3, [4, 3, 3], None),
        ("time_slots", 5, [4, 3, 4, 3, 3], 0.912),
    ],
)
def test_golden_meals_of_deterministic_policies(name, n, meals, fairness):
    table, found = played(name, n)
    assert table.meals[:, 0].tolist() == meals
    assert not table.deadlocked.any()
    if fairness is not None:
        assert found["fairness"][0] == pytest.approx(fairness, abs=5e-4)


@pytest.mark.parametrize(("n", "total", "least"), [(2, 10, 0), (3, 15, 5), (4, 20, 4), (5, 29, 5)])
def test_the_optimal_policy_reaches_the_optimum_and_feeds_everybody(n, total, least):
    table, found = played("optimal", n)
    assert table.meals.sum() == total and table.meals.min() >= least
    assert found["meals_share"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("name", "n", "deadlock", "meals"),
    [
        ("random", 3, 0.706, 3.2),
        ("random", 5, 0.147, 8.4),
        ("random", 7, 0.018, 12.4),
        ("polite_random", 5, 0.037, 15.8),
    ],
)
def test_golden_rates_of_random_policies(name, n, deadlock, meals):
    _, found = played(name, n, episodes=4000)
    assert found["deadlock"].mean() == pytest.approx(deadlock, abs=0.02)
    assert found["meals"].mean() == pytest.approx(meals, abs=0.15)


def test_the_same_seed_plays_the_same_and_another_seed_differently():
    first, again, other = (
        summaries(script("random"), [dpbench(5)] * 50, seed=seed)[0][1].meals for seed in (1, 1, 2)
    )  # fmt: skip
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 10])
def test_identical_memoryless_deterministic_philosophers_never_eat(n):
    """Rotational symmetry is never broken (Lehmann & Rabin, 1981): all 432 policies, two thirds of them deadlock."""
    after = play_teams(ring(n, 432), np.tile(np.arange(432), (n, 1)))
    assert after.meals.sum() == 0
    assert after.deadlocked.mean() == pytest.approx(2 / 3)


@pytest.mark.parametrize(("n", "split", "best"), [(3, "parity", 15), (5, "parity", 26), (5, "one", 28)])
def test_the_best_of_all_pairs_of_memoryless_policies(n, split, best):
    first, second = (grid.ravel() for grid in np.meshgrid(np.arange(432), np.arange(432)))
    mine = np.arange(n) % 2 == 0 if split == "parity" else np.arange(n) == 0
    after = play_teams(ring(n, len(first)), np.where(mine[:, None], first, second))
    assert after.meals.sum(axis=0).max() == best
    assert len(all_tables()) == 432


VARIED = ScenarioFamily(
    philosophers=(3, 4, 5), graphs=("ring", "chain"), held=0.6, eating_time=(1, 2), horizon=(12, 20), labels="shuffled"
)


@pytest.mark.parametrize("mode", ["simultaneous", "sequential"])
@pytest.mark.parametrize("name", ["parity", "hierarchy", "time_slots", "optimal", "unparseable", "greedy_left"])
def test_text_and_arrays_play_the_same_game(name, mode):
    """A script whose actions go through text, parser and `Environment.step` earns the very same records."""
    settings = ScenarioProblems(family=VARIED, sizes=SplitSizes(train=1, validation=1, test=12))
    scenarios = generate_scenarios(settings)["test"]
    environment = PhilosophersEnvironment(PhilosophersSettings(mode=mode))
    sequential = mode == "sequential"
    expected = scripted_records(script(name), scenarios, environment.reward, sequential=sequential)
    states = [environment.start(scenario) for scenario in scenarios]
    rewards, outcomes = [0.0] * len(states), {}
    playing = list(range(len(states)))
    while playing:
        texts = []
        for i in playing:
            table = states[i].table.select([states[i].column])
            codes = script(name).act(table, np.random.default_rng(0))[:, 0]
            texts.append([f"ACTION: {ACTIONS[c]}" if c < 4 else "I refuse." for c in codes])
        for i, outcome in zip(playing, environment.step([states[i] for i in playing], texts), strict=True):
            states[i], outcomes[i] = outcome.state, outcome
            rewards[i] += outcome.reward
        playing = [i for i in playing if not outcomes[i].done]
    for i, record in enumerate(expected):
        assert rewards[i] == pytest.approx(record.reward)
        assert outcomes[i].metrics == pytest.approx(record.metrics)
        assert {key: outcomes[i].details[key] for key in record.details} == record.details


def test_records_are_in_order_and_name_their_sample():
    scenarios = [make_scenario("ring", 5), make_scenario("chain", 4), make_scenario("ring", 5, horizon=20)]
    environment = PhilosophersEnvironment(PhilosophersSettings())
    records = scripted_records(script("random"), scenarios, environment.reward, samples=3)
    assert [(r.problem, r.sample) for r in records] == [(s.id, j) for s in scenarios for j in range(3)]
    assert all(dataclasses.asdict(r)["tokens"] == 0 for r in records)


@pytest.mark.parametrize(
    ("name", "scenario", "words"),
    [
        ("parity", make_scenario("grid", 5), "made for ring and chain, not for a grid"),
        ("optimal", make_scenario("ring", 8), "up to 7 philosophers, not for 8"),
    ],
)
def test_tables_a_script_is_not_made_for_are_refused(name, scenario, words):
    with pytest.raises(ValueError, match=words):
        summaries(script(name), [scenario], seed=0)


def test_unknown_scripts_are_refused():
    with pytest.raises(ValueError, match="no scripted policy 'clever'; known: wait, release"):
        script("clever")


@pytest.mark.parametrize("graph", ["ring", "chain", "grid"])
@pytest.mark.parametrize("name", ["random", "polite_random", "hierarchy", "time_slots", "optimal"])
def test_no_script_beats_the_optimum(name, graph):
    scenarios = [make_scenario(graph, n, eating_time=e) for n in (2, 5, 6) for e in (1, 3)]
    for batch, table, summary in summaries(script(name), scenarios, seed=0):
        assert (table.meals.sum(axis=0) <= batch.optimum).all()
        assert (summary.share <= 1).all()
