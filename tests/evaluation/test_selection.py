import json
import math

import numpy as np
import pytest

from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.selection import choose, select
from pipeline_lib.settings.evaluate import EvaluateSettings, VerdictSettings
from tests.evaluation.build import constant_team, episode, team

EVALUATE = EvaluateSettings(metric="tests_passed")
ONE_SE = EvaluateSettings(metric="tests_passed", select="one_standard_error")
VERDICT = VerdictSettings(resamples=2_000)


def sweep(gains: dict[int, float], seed: int = 0, problems: int = 60) -> dict[int, list[EpisodeRecord]]:
    rng = np.random.default_rng(seed)
    means = rng.random(problems) * 0.4
    return {step: team(means + gain, 4, seed + step, families=30, noise=0.04) for step, gain in gains.items()}


def test_best_mean_and_one_standard_error() -> None:
    gains = {10: 0.0, 20: 0.3, 30: 0.302, 40: 0.301, 50: 0.1}
    best = select({0: sweep(gains)}, [], EVALUATE, VERDICT).seeds[0]
    assert best.step in (20, 30, 40)
    assert best.last == 50
    assert best.mean == max(point.mean for point in best.curve)
    assert select({0: sweep(gains)}, [], ONE_SE, VERDICT).seeds[0].step == 20
    assert sum(best.repeats.values()) == pytest.approx(1.0)
    assert best.repeats[best.step] > 0.1
    assert set(best.repeats) <= {20, 30, 40}


def test_rules_on_given_means() -> None:
    means, se = np.array([0.5, 0.8, 0.9, 0.9]), np.array([0.02, 0.02, 0.15, 0.02])
    every = np.ones(4, dtype=bool)
    assert choose(means, se, every, "best_mean") == 2  # ties go to the earliest
    assert choose(means, se, every, "one_standard_error") == 1
    assert choose(means, se, np.array([True, False, False, True]), "best_mean") == 3
    assert choose(np.vstack([means, means[::-1]]), se, every, "best_mean").tolist() == [2, 0]


def test_intervals_and_band() -> None:
    curve = select({0: sweep({10: 0.0, 20: 0.2, 30: 0.4})}, [], EVALUATE, VERDICT).curve
    for point in curve:
        assert point.band_low < point.low < point.mean < point.high < point.band_high
        assert point.high - point.mean == pytest.approx(point.se * 2.045, abs=0.001)  # t with 29 degrees of freedom


def test_guarded_checkpoints_are_passed_over() -> None:
    checkpoints = sweep({10: 0.1, 20: 0.2})
    checkpoints[30] = constant_team([1.0] * 60, 4, varied_tokens=False)  # the reward's degenerate maximum
    for step in (10, 20):
        checkpoints[step] = [episode(r.problem, r.sample, r.reward, tokens=r.tokens) for r in checkpoints[step]]
    found = select({0: checkpoints}, [], EVALUATE, VERDICT).seeds[0]
    assert found.step == 20
    assert found.guarded
    assert found.curve[2].faults and not found.curve[1].faults
    only = select({0: {30: checkpoints[30]}}, [], EVALUATE, VERDICT)
    assert not only.seeds[0].guarded
    assert "no checkpoint passes the guards" in "; ".join(only.notes)


@pytest.mark.parametrize("count", [2, 15])
def test_optimism_of_equal_checkpoints_is_the_textbook_value(count: int) -> None:
    factor = {2: 0.564, 15: 1.736}[count]
    found, most = [], []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        checkpoints = {
            step: [episode(f"p{i}", 0, float(v)) for i, v in enumerate(rng.normal(0.5, 0.3, 30))]
            for step in range(1, count + 1)
        }
        selected = select({0: checkpoints}, [], EVALUATE, VERDICT).seeds[0]
        found.append(selected.optimism)
        most.append(selected.optimism_if_equal)
    error = 0.3 / math.sqrt(30)
    assert np.mean(found) == pytest.approx(factor * error, rel=0.2)
    assert np.mean(most) == pytest.approx(factor * error, rel=0.1)


def test_optimism_vanishes_for_a_clear_winner() -> None:
    found = select({0: sweep({10: 0.0, 20: 0.6, 30: 0.1})}, [], EVALUATE, VERDICT).seeds[0]
    assert abs(found.optimism) < 0.001 < found.optimism_if_equal


def test_several_seeds_base_and_champion() -> None:
    checkpoints = {0: sweep({10: 0.1, 20: 0.2}), 5: sweep({10: 0.5, 20: 0.4, 30: 0.3})}
    base = sweep({0: 0.0})[0]
    found = select(checkpoints, base, EVALUATE, VERDICT)
    assert (found.champion_seed, found.champion_step) == (5, 10)
    assert [point.step for point in found.curve] == [10, 20]  # the steps that all seeds have
    assert found.base.mean < found.curve[0].mean
    assert found.design["checkpoints"] == {"0": [10, 20], "5": [10, 20, 30]}
    json.dumps(found.to_json(), allow_nan=False)
    worse = select({0: {10: sweep({0: -0.2})[0]}}, base, EVALUATE, VERDICT)
    assert "no selected checkpoint is better than the base" in "; ".join(worse.notes)


def test_the_same_input_gives_the_same_answer() -> None:
    first, second = (select({0: sweep({10: 0.1, 20: 0.11})}, [], EVALUATE, VERDICT).to_json() for _ in range(2))
    assert first == second


def test_degenerate_sweeps() -> None:
    with pytest.raises(EvaluationError, match="no checkpoints to select from; train first"):
        select({}, [], EVALUATE, VERDICT)
    with pytest.raises(EvaluationError, match="no checkpoints"):
        select({0: {}}, [], EVALUATE, VERDICT)
    apart = {10: [episode("a", 0, 1.0)], 20: [episode("b", 0, 1.0)]}
    with pytest.raises(EvaluationError, match="training seed 0: no problem was evaluated for all checkpoints"):
        select({0: apart}, [], EVALUATE, VERDICT)
    one = select({0: {10: [episode("a", 0, 0.1)], 20: [episode("a", 0, 0.9)]}}, [], EVALUATE, VERDICT).seeds[0]
    assert one.step == 20
    assert one.curve[0].low is None and one.optimism is None
    assert "one problem only" in "; ".join(one.notes)
    flat = select({0: {10: constant_team([0.5] * 9), 20: constant_team([0.5] * 9)}}, [], EVALUATE, VERDICT).seeds[0]
    assert flat.step == 10
    assert flat.curve[0].se is None
    partial = {10: team([0.1] * 9, 1, 0), 20: [*team([0.1] * 9, 1, 1)[:-1], episode("p008", 0, None)]}
    assert "1 of 9 problems lack a checkpoint" in "; ".join(select({0: partial}, [], EVALUATE, VERDICT).notes)
