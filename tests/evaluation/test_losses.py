"""Episodes that the infrastructure lost: they favour nobody, are named, and too many of them end sweep and test."""

import dataclasses
import re

import numpy as np
import pytest

from pipeline_lib.environment_api.metrics import with_reward
from pipeline_lib.evaluation import verdict
from pipeline_lib.evaluation.comparison import bounds
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.run import refuse_losses
from pipeline_lib.evaluation.selection import common_means
from pipeline_lib.evaluation.table import tabulate
from pipeline_lib.settings.evaluate import EvaluateSettings, VerdictSettings
from tests.evaluation.build import METRICS, compare, episode

SETTINGS = VerdictSettings(resamples=200)


def team(values: np.ndarray) -> list[EpisodeRecord]:
    return [
        episode(f"p{i:03d}", k, None if np.isnan(value) else float(value), tokens=10 + i + k)
        for i, row in enumerate(values)
        for k, value in enumerate(row)
    ]


def without(values: np.ndarray, wrong: bool, count: int) -> np.ndarray:
    """Lose the first ``count`` episodes that are wrong (or right)."""
    found = values.copy()
    places = np.argwhere(found == (0.0 if wrong else 1.0))[:count]
    found[tuple(places.T)] = np.nan
    return found


def half_solved(seed: int, problems: int = 60) -> np.ndarray:
    return (np.random.default_rng(seed).random((problems, 4)) < 0.5).astype(float)


def test_losing_only_wrong_episodes_improves_nobody() -> None:
    """Without the worst case the team that loses its wrong episodes would be IMPROVED."""
    values = half_solved(1)
    survivors = without(values, wrong=True, count=90)
    found = compare({0: team(survivors)}, team(half_solved(2)), SETTINGS)
    assert found.difference.estimate is not None and found.difference.estimate > 0.2
    assert found.verdict == "INCONCLUSIVE"
    assert found.losses is not None and found.losses.lost == (90, 0) and found.losses.played == (240, 240)
    assert found.losses.low < 0.05 < found.losses.high
    assert "90 of 240 episodes of the first team" in found.sentence and "worst case" in found.sentence


def test_the_bounds_are_the_means_with_the_worst_and_the_best_values() -> None:
    first, second = without(half_solved(3), True, 5), without(half_solved(4), False, 7)
    found = compare({0: team(first)}, team(second), SETTINGS).losses
    assert found is not None
    low = np.nan_to_num(first, nan=0.0).mean() - np.nan_to_num(second, nan=1.0).mean()
    high = np.nan_to_num(first, nan=1.0).mean() - np.nan_to_num(second, nan=0.0).mean()
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.assumed is False


def test_a_clear_difference_survives_a_few_lost_episodes_and_names_them() -> None:
    better = (np.random.default_rng(5).random((60, 4)) < 0.9).astype(float)
    whole = compare({0: team(better)}, team(half_solved(6)), SETTINGS)
    lossy = compare({0: team(without(better, True, 1))}, team(without(half_solved(6), False, 1)), SETTINGS)
    assert whole.losses is None and "lost" not in whole.sentence
    assert lossy.verdict == whole.verdict == "IMPROVED"
    assert "1 of 240 episodes of the first team and 1 of 240 episodes of the second team" in lossy.sentence
    for wide, narrow in ((lossy.difference, whole.difference), (lossy.means[0], whole.means[0])):
        assert wide.low is not None and narrow.low is not None and wide.high is not None and narrow.high is not None
        assert wide.low <= narrow.low and wide.high >= narrow.high
    assert (lossy.difference.high or 0) > (whole.difference.high or 0)


def test_equal_teams_are_not_equivalent_if_what_was_lost_could_be_the_margin() -> None:
    same = half_solved(7, 200)
    assert compare({0: team(same)}, team(same), SETTINGS).verdict == "EQUIVALENT"
    assert compare({0: team(without(same, True, 60))}, team(same), SETTINGS).verdict == "INCONCLUSIVE"


def test_a_metric_without_a_range_is_bounded_by_what_was_seen() -> None:
    rewards = np.random.default_rng(8).normal(3.0, 1.0, (40, 2))
    lossy = rewards.copy()
    lossy[3, 1] = np.nan
    found = compare({0: team(lossy)}, team(rewards), SETTINGS, "reward")
    assert found.losses is not None and found.losses.assumed and "within the values that were seen" in found.sentence


def test_what_a_reward_declares_bounds_it_as_a_share_is_bounded() -> None:
    """Lost episodes may have had any reward within the bounds, and a great difference shows in few families."""
    metrics = with_reward(METRICS, -1.0, 1.5)
    rewards = np.random.default_rng(8).normal(0.2, 0.1, (40, 2))
    lossy = rewards.copy()
    lossy[3, 1] = np.nan
    found = verdict.compare({0: team(lossy)}, team(rewards), SETTINGS, "reward", metrics=metrics)
    assert found.losses is not None and not found.losses.assumed and "values that were seen" not in found.sentence
    assert found.losses.high - found.losses.low == pytest.approx(2.5 / 80)
    better, worse = (
        [dataclasses.replace(e, family=f"f{int(e.problem[1:]) // 5}") for e in team(np.repeat(means, 5)[:, None])]
        for means in (np.append(np.ones(11), 1.05), -np.ones(12))
    )
    told = [verdict.compare({0: better}, worse, SETTINGS, "reward", metrics=m) for m in (METRICS, metrics)]
    assert [one.difference.p for one in told] == [None, None], "too few families carry the variation for a test"
    assert [one.verdict for one in told] == ["INCONCLUSIVE", "IMPROVED"]


@pytest.mark.parametrize(("lost", "share"), [(1, 0.005), (5, 0.2), (24, 0.99)])
def test_too_many_losses_are_an_error_that_names_setting_and_team(lost: int, share: float) -> None:
    records = [episode(f"p{i}", 0, None if i < lost else 1.0) for i in range(24)]
    said = re.escape(f"team 0 step 10: {lost} of 24 episodes") + r".*infra_error_share \(" + f"{share:g}"
    with pytest.raises(EvaluationError, match=said):
        refuse_losses(records, share, "team 0 step 10")
    refuse_losses(records, lost / 24, "team 0 step 10")


def test_checkpoints_are_compared_on_the_episodes_that_none_of_them_lost() -> None:
    """A checkpoint whose wrong episodes were lost is no better than before."""
    values = half_solved(9)
    tables = [tabulate(team(one), "tests_passed") for one in (values, without(values, True, 100))]
    means, _, notes = common_means(tables, "seed 0")
    assert (means[0] == means[1]).all()
    assert "100 episodes were lost" in notes[0]


def test_single_runs_hold_whatever_was_lost_too() -> None:
    runs = {seed: half_solved(20 + seed) for seed in range(3)}
    base = half_solved(30)
    lossy = {seed: team(without(values, True, 90)) for seed, values in runs.items()}
    found = compare(lossy, team(base), SETTINGS)
    assert all(run.p_adjusted is not None and run.p_adjusted > 0.05 for run in found.per_seed)
    assert dataclasses.asdict(found)["losses"]["lost"] == (270, 0)


def test_bounds_without_a_test_are_those_of_the_worst_and_the_best_values() -> None:
    """If one of eight families may have gained nearly nothing, they are no longer eight that all gain everything."""
    better, base = np.ones((8, 4)), np.zeros((8, 4))
    lossy = better.copy()
    lossy[0, 1:] = np.nan
    known, worst, best = (
        compare({0: team(values)}, team(base), SETTINGS)
        for values in (lossy, np.nan_to_num(lossy, nan=0.0), np.nan_to_num(lossy, nan=1.0))
    )
    assert known.difference.p is None and best.verdict == "IMPROVED" and worst.verdict == "INCONCLUSIVE"
    limits = [bounds(one) for one in (known, worst, best)]
    assert limits[0] == pytest.approx((limits[1][0], limits[2][1]))
    assert known.verdict == "INCONCLUSIVE"


def test_families_that_lost_episodes_could_make_equal_are_not_said_to_be_equal() -> None:
    """With its lost episodes wrong the team would lose half of every family; as it was seen it does not."""
    values = np.array([[1.0, 0.0]] * 6 + [[1.0, np.nan]] * 6)
    found = compare({0: team(values)}, team(np.ones((12, 2))), SETTINGS)
    assert found.difference.p is None and found.difference.estimate == -0.25
    assert "on every family" not in found.sentence
    assert "With the lost episodes at an end of their range, no variation between families" in found.sentence


def test_losing_wrong_episodes_makes_no_team_look_better_to_the_rule_of_the_champion() -> None:
    values = half_solved(10)
    whole, lossy = (
        verdict.team({0: team(one)}, EvaluateSettings(metric="tests_passed"), METRICS)
        for one in (values, without(values, True, 60))
    )
    assert lossy["metrics"]["tests_passed"] > whole["metrics"]["tests_passed"] + 0.05, "the test is too easy"
    assert lossy["least"] == pytest.approx(whole["least"]) == pytest.approx(values.mean())
