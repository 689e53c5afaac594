import dataclasses
import itertools
import math

import numpy as np
import pytest

from pipeline_lib.environment_api.metrics import Metric, describe
from pipeline_lib.environments.coding.task import METRICS
from pipeline_lib.evaluation.episodes import (
    EpisodeRecord,
    accuracy_at_k,
    check_ranges,
    pass_at_k,
    pass_power_k,
    summarise_team,
    value_of,
)
from pipeline_lib.evaluation.results import EvaluationError
from tests.evaluation.build import episode


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (10, 3, 1, 3 / 10),
        (10, 3, 5, 11 / 12),
        (5, 2, 2, 7 / 10),
        (6, 3, 1, 1 / 2),
        (200, 10, 10, 0.408547866),
        (200, 10, 100, 0.999228974),
        (200, 1, 100, 1 / 2),
        (20, 19, 2, 1.0),
        (4, 0, 4, 0.0),
    ],
)
def test_pass_at_k_is_exact(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=5e-10)


def test_pass_at_k_is_not_the_biased_formula() -> None:
    assert pytest.approx(0.83193) == 1 - (1 - 3 / 10) ** 5
    assert pass_at_k(10, 3, 5) > 0.9


@pytest.mark.parametrize("k", [1, 2, 4, 6])
def test_estimators_average_over_all_subsets_of_k(k: int) -> None:
    values = [0.0, 0.25, 0.25, 1.0, 1.0, 0.5]
    subsets = list(itertools.combinations(values, k))
    solved = sum(value >= 1 for value in values)
    assert accuracy_at_k(values, k) == pytest.approx(np.mean([max(s) for s in subsets]))
    assert pass_at_k(6, solved, k) == pytest.approx(np.mean([any(v >= 1 for v in s) for s in subsets]))
    assert pass_power_k(6, solved, k) == pytest.approx(np.mean([all(v >= 1 for v in s) for s in subsets]))


def test_pass_power_k() -> None:
    assert pass_power_k(10, 7, 3) == pytest.approx(0.2916666667)
    assert pass_power_k(10, 2, 3) == 0.0


@pytest.mark.parametrize(("n", "c", "k"), [(5, 6, 1), (5, -1, 1), (5, 2, 6), (5, 2, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(EvaluationError, match=f"k={k} of n={n} episodes with c={c}"):
        pass_at_k(n, c, k)


def test_every_problem_counts_the_same_and_lost_episodes_are_not_zeros() -> None:
    records = [
        episode("a", 0, 1.0, all_passed=1.0, cooperation=1.0),
        episode("a", 1, 1.0, all_passed=1.0, cooperation=0.0),
        episode("a", 2, None),
        episode("b", 0, 0.0, all_passed=0.0, cooperation=0.0),
    ]
    summary = summarise_team(records, (1, 2), METRICS)
    assert summary["overall"]["tests_passed"] == 0.5
    assert summary["overall"]["pass@1"] == 0.5
    assert "pass@2" not in summary["overall"]  # problem b has one episode
    assert summary["overall"]["cooperation@1"] == 0.25
    assert (summary["episodes"], summary["lost"]) == (3, 1)
    assert summary["problems"]["a"]["pass^1"] == 1.0


def test_schemes_are_shares_of_episodes() -> None:
    found = [["fallback", "decorator"], ["fallback"], [], None]
    details = [
        {"schemes": schemes, "status": "ok", "prompt_tokens": 7} if schemes is not None else {} for schemes in found
    ]
    records = [dataclasses.replace(episode("a", k, 1.0), details=detail) for k, detail in enumerate(details)]
    assert summarise_team(records)["schemes"] == {"fallback": 0.5, "decorator": 0.25}
    assert summarise_team(records)["status"] == {"ok": 0.75}
    assert summarise_team(records)["details"] == {"prompt_tokens": 7.0}


def test_bad_values_are_refused_in_words() -> None:
    with pytest.raises(EvaluationError, match="'tests_passed' of episode 3 of problem HumanEval/7 is nan"):
        value_of(episode("HumanEval/7", 3, math.nan), "tests_passed")
    with pytest.raises(EvaluationError, match=r"no metric 'meals'.*reward, tests_passed"):
        value_of(episode("p", 0, 1.0), "meals")
    with pytest.raises(EvaluationError, match="no episode to evaluate"):
        summarise_team([episode("p", 0, None)])
    assert value_of(episode("p", 0, None), "tests_passed") is None


def test_values_are_shown_in_natural_units() -> None:
    assert describe("tests_passed", METRICS).text(0.713) == "71.3 %"
    assert describe("tests_passed", METRICS).difference(0.124) == "+12.4 points"
    assert describe("tests_passed", METRICS).difference(-0.0001) == "+0.0 points"
    assert describe("reward", METRICS).difference(-0.5) == "-0.5"
    assert describe("reward", METRICS).difference(0.1 + 0.2 - 0.3) == "+0", "the sum is not exact"
    assert describe("meals_per_step", METRICS).label == "meals per step"


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("won", 2.0, False),
        ("won", -0.1, False),
        ("won", 1.0 + 1e-12, True),
        ("cost", 7.0, True),
        ("cost", -1.0, False),
        ("reward", 3.0, False),
        ("other", 9.0, True),
    ],
)
def test_a_value_outside_its_declared_range_is_refused(name: str, value: float, fits: bool) -> None:
    """A share of 2 would be shown as 200 %, and a difference as +200 points."""
    metrics = {"won": Metric("won", share=True), "cost": Metric("cost", low=0.0), "reward": Metric("reward", high=2.0)}
    values = {"reward": 1.0, name: value}
    row = EpisodeRecord("q", "f", 0, values.pop("reward"), 1, {}, values, 1)
    if fits:
        check_ranges([row, dataclasses.replace(row, reward=None, metrics={})], metrics)
        return
    with pytest.raises(EvaluationError, match=rf"'{name}' of episode 0 of problem q is {value}, but the environment"):
        check_ranges([row], metrics)
