"""Each monitor fires on rows where something goes wrong, and stays quiet on rows where it does not."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pipeline_lib.monitors import MONITORS, TREND, End, Estimate, Reading, judge, pooled, rank_correlation
from pipeline_lib.settings.train import TrainSettings

END = End("done", 0.0, 1.0)


def repeat(count: int, **row: Any) -> list[dict[str, float]]:
    return [{name.replace("__", "/"): float(value) for name, value in row.items()} for _ in range(count)]


def only(rows: list[dict[str, float]], monitor: str, subject: str = "") -> Reading:
    (found,) = (r for r in judge(rows, END) if (r.monitor, r.subject) == (monitor, subject))
    return found


def team(**row: float) -> dict[str, float]:
    ablation = {"ablation__pairs": 8, "ablation__team": 0.9, "ablation__team_error": 0.05}
    needs = {
        f"ablation__{name}__{agent}": value
        for agent in "ab"
        for name, value in (("need", 0.6), ("need_error", 0.05), ("mended", 0.0))
    }
    agents = {
        f"agents__{name}__{agent}": value
        for agent in "ab"
        for name, value in (("token_share", 0.5), ("empty_share", 0.0), ("same_share", 0.2))
    }
    return ablation | needs | agents | row


def test_settings_accept_the_monitors_of_training_and_no_others() -> None:
    assert TrainSettings(stop_when=tuple(MONITORS)).stop_when == tuple(MONITORS)
    with pytest.raises(ValueError, match="reward_hacking"):
        TrainSettings.model_validate({"stop_when": ["hacking"]})


def test_an_agent_without_whom_nothing_is_lost_is_trivial() -> None:
    idle = team(ablation__need__b=0.0, ablation__need_error__b=0.0)
    assert only(repeat(3, **idle), "trivial_cooperation", "b").fires
    assert not only(repeat(3, **idle), "trivial_cooperation", "a").fires
    assert not only(repeat(3, **team()), "trivial_cooperation", "b").fires


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (repeat(2, **team(ablation__need__b=0.0)), "16 pairs are too few"),
        (repeat(3, **team(ablation__need__b=0.05, ablation__need_error__b=0.06)), "the need is not known well"),
        (repeat(3, **team(ablation__need__b=0.0, ablation__team=0.2)), "a team that does nothing yet"),
    ],
)
def test_without_evidence_nobody_is_blamed(rows: list[dict[str, float]], why: str) -> None:
    fired = [r for r in judge(rows, END) if r.subject == "b" and r.fires]
    assert fired == [], why


def test_an_agent_that_writes_nothing_or_always_the_same_is_trivial_unless_it_is_needed() -> None:
    def quiet(**row: float) -> list[dict[str, float]]:
        return repeat(5, **{name: value for name, value in team(**row).items() if "ablation" not in name})

    assert only(quiet(agents__empty_share__b=0.95), "trivial_cooperation", "b").fires
    assert only(quiet(agents__same_share__b=0.95), "trivial_cooperation", "b").fires
    both = quiet(agents__same_share__a=0.95, agents__same_share__b=0.95)
    assert not only(both, "trivial_cooperation", "b").fires, "the same answer may be right for a whole team"
    assert not only(repeat(5, **team(agents__same_share__b=0.95)), "trivial_cooperation", "b").fires


def test_a_turn_that_makes_it_worse_is_unstable_and_recovers() -> None:
    rows = repeat(5, turns__gain__2=-0.1, turns__gain_error__2=0.1)
    assert only(rows, "turn_instability", "2").fires  # five updates together: 0.1 +- 0.088
    assert not only(rows[:4] + repeat(1, turns__gain__2=0.1, turns__gain_error__2=0.1), "turn_instability", "2").fires
    recovered = rows + repeat(8, turns__gain__2=0.2, turns__gain_error__2=0.1)
    assert not only(recovered, "turn_instability", "2").fires
    assert not any(r.monitor == "turn_instability" for r in judge(rows[:4], END)), "four updates are too few"


def trend(reward: np.ndarray, done: np.ndarray, error: float = 0.02) -> list[dict[str, float]]:
    return [
        {"reward/mean": float(r), "metrics/done": float(d), "reward/error": error, "reward/end_error": error}
        for r, d in zip(reward, done, strict=True)
    ]


@pytest.mark.parametrize(
    ("done", "least", "most"),
    [
        pytest.param(lambda t, noise: 0.8 - 0.5 * t + noise, 1.0, 1.0, id="it falls"),
        # Correlations of 30 pairs spread by 0.19 (Fisher's z), so 81 % of those of a flat series are clear of 0.5.
        pytest.param(lambda t, noise: 0.4 + noise, 0.75, 1.0, id="it stays where it is"),
        pytest.param(lambda t, noise: 0.2 + 0.5 * t + noise, 0.0, 0.0, id="it rises too"),
        pytest.param(lambda t, noise: 0.999 + 0 * noise, 0.0, 0.0, id="it is at its best"),
    ],
)
def test_a_reward_that_rises_alone_is_hacked(done: Any, least: float, most: float) -> None:
    t = np.linspace(0, 1, TREND)
    fired = []
    for seed in range(200):
        paid, noise = 0.02 * np.random.default_rng(seed).standard_normal((2, TREND))
        fired.append(only(trend(1 + t + paid, done(t, noise)), "reward_hacking").fires)
    assert least <= np.mean(fired) <= most


def test_a_turn_that_a_curriculum_adds_is_no_rise_of_the_reward() -> None:
    """The reward of an episode is the sum over its turns, so it rises with their number."""
    noise = 0.02 * np.random.default_rng(0).standard_normal((2, TREND))
    added = np.where(np.arange(TREND) < 15, 0.5, 1.0)
    rows = [
        {**row, "curriculum/turns": 1.0 if n < 15 else 2.0}
        for n, row in enumerate(trend(added + noise[0], 0.3 + noise[1]))
    ]
    for seen in range(1, TREND + 1):
        assert not any(r.monitor == "reward_hacking" and r.fires for r in judge(rows[:seen], END)), seen
    assert only(rows, "reward_hacking").sentence.startswith("Over 15 updates")
    hacked = trend(0.5 + np.linspace(0, 1, TREND) + noise[0], 0.3 - 0.2 * np.linspace(0, 1, TREND) + noise[1])
    assert only([{**row, "curriculum/turns": 2.0} for row in hacked], "reward_hacking").fires


def test_a_reward_that_does_not_rise_is_not_hacked() -> None:
    rng = np.random.default_rng(0)
    fired = [only(trend(*(1 + 0.02 * rng.standard_normal((2, TREND)))), "reward_hacking").fires for _ in range(500)]
    assert np.mean(fired) < 0.05


def test_visible_tests_that_are_passed_more_often_than_hidden_ones_are_hacked() -> None:
    assert only(repeat(5, tests__gap=0.3, tests__gap_error=0.1), "reward_hacking", "hidden_tests").fires
    assert not only(repeat(5, tests__gap=0.15, tests__gap_error=0.1), "reward_hacking", "hidden_tests").fires


def test_an_agent_whose_part_breaks_anothers_is_named() -> None:
    facts = {"failures__share": 0.5, "failures__caused__b": 0.8, "failures__caused_error__b": 0.1}
    assert only(repeat(5, **facts), "cascading_errors", "b").fires
    assert not only(repeat(5, **facts | {"failures__caused__b": 0.3}), "cascading_errors", "b").fires
    assert not only(repeat(5, **facts | {"failures__share": 0.05}), "cascading_errors", "b").fires, "hardly any fail"


@pytest.mark.parametrize(("mended", "fires"), [(7, True), (3, False)])
def test_failures_that_a_right_part_mends_are_caused_by_it(mended: int, fires: bool) -> None:
    row = {"ablation__pairs": 8, "ablation__failed": 8, "ablation__mended__b": mended, "failures__share": 0.5}
    assert only(repeat(4, **row), "cascading_errors", "b").fires == fires
    assert not any(r.monitor == "cascading_errors" for r in judge(repeat(2, **row), END)), "16 failures are too few"


def test_without_a_metric_nothing_is_judged() -> None:
    assert judge(repeat(40, **team()), None) == judge([], END) == []


def test_errors_of_independent_updates_add_up() -> None:
    found = pooled([{"x": 1.0, "e": 0.3}, {"x": 3.0, "e": 0.4}, {"y": 5.0}], "x", "e")
    assert found == Estimate(2.0, 0.25)
    assert pooled([{"y": 5.0}], "x", "e") is None


def test_the_rank_correlation_is_spearmans_with_ties() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.integers(0, 6, 40).astype(float), rng.integers(0, 6, 40).astype(float)
    assert rank_correlation(first, second)[0] == pytest.approx(stats.spearmanr(first, second).statistic)
    assert rank_correlation(first, np.ones(40))[0] == 0.0


def test_the_interval_covers_no_correlation_where_series_drift() -> None:
    """Independent autoregressive series (0.8): Fisher's plain intervals miss 0 often, these do not."""
    rng = np.random.default_rng(0)
    missed = plain = 0
    for _ in range(400):
        series = np.zeros((2, 130))
        for before, now in itertools.pairwise(range(130)):
            series[:, now] = 0.8 * series[:, before] + rng.standard_normal(2)
        value, low, high = rank_correlation(*series[:, 100:])
        missed += not low <= 0 <= high
        plain += abs(np.arctanh(value)) > 1.96 / np.sqrt(27)
    assert plain / 400 > 0.2
    assert missed / 400 < 0.1
