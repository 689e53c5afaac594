"""Rewards: terms sum up, turns sum up, nothing is worth something for doing nothing, mistakes are refused in words."""

import numpy as np
import pytest

from pipeline_lib.environment_api.environment import RewardError
from pipeline_lib.environments.philosophers.rewards import TERMS, Reward, SoundReward, SumReward
from pipeline_lib.environments.philosophers.runtime import make_reward
from pipeline_lib.environments.philosophers.scenarios import dpbench
from pipeline_lib.environments.philosophers.scripted import SCRIPTS, script, summaries
from pipeline_lib.environments.philosophers.settings import TermsReward
from pipeline_lib.settings.environment import CustomReward


def earned(reward: Reward, name: str, n: int = 5, episodes: int = 1) -> float:
    [(_, _, summary)] = summaries(script(name), [dpbench(n)] * episodes, seed=0)
    return float(reward.total(summary).mean())


@pytest.mark.parametrize(
    ("n", "ladder"),
    [
        (5, {"wait": 0, "greedy_left": -0.097, "parity": 0.534, "time_slots": 0.560, "hierarchy": 0.647}),
        (3, {"wait": 0, "greedy_left": -0.097, "parity": 0.600, "time_slots": 0.633, "hierarchy": 0.600}),
    ],
)
def test_the_sound_reward_has_the_known_ladder(n, ladder):
    assert {name: earned(SoundReward(), name, n) for name in ladder} == pytest.approx(ladder, abs=6e-4)
    assert earned(SoundReward(), "random", 5, 4000) == pytest.approx(0.224, abs=0.01)


class Meals(Reward):
    """A reward of one's own."""

    def __init__(self, each: float = 1.0) -> None:
        self.each, self.bounds = each, (0.0, 1000.0 * each)

    def terms(self, summary):
        return {"meals": self.each * summary.total_meals}


def test_a_reward_of_ones_own_is_a_class_with_named_terms():
    reward = make_reward(CustomReward(path=f"{__name__}:Meals", options={"each": 2.0}))
    assert earned(reward, "parity") == 44.0


class Once(Reward):
    """Returns one number for all episodes, or one that is not finite."""

    bounds = (0.0, 1.0)

    def __init__(self, finite: bool) -> None:
        self.finite = finite

    def terms(self, summary):
        return {"share": summary.share.mean() if self.finite else np.where(summary.share > 0, np.nan, 0.0)}


@pytest.mark.parametrize(("finite", "value"), [(True, r"np\.float64\(0\.75.*\)"), (False, "nan")])
def test_a_term_has_a_finite_number_for_each_episode(finite, value):
    reward = make_reward(CustomReward(path=f"{__name__}:Once", options={"finite": finite}))
    said = rf"returned {value} for its term 'share' .*a term is an array of 4 finite numbers, one for each episode"
    with pytest.raises(RewardError, match=said):
        earned(reward, "parity", episodes=4)


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        (f"{__name__}:Missing", {}, "cannot find.*Missing"),
        ("no.such.module:Meals", {}, "cannot find.*No module named"),
        (f"{__name__}:Meals", {"per_meal": 1.0}, "per_meal: extra inputs.*its settings: each"),
        (f"{__name__}:Meals", {"each": "much"}, "each: input should be a valid number"),
        ("builtins:dict", {}, "is dict, which is not a reward"),
        (f"{__name__}:earned", {}, "is function, which is not a reward"),
    ],
)
def test_classes_that_cannot_be_used_are_refused(path, options, words):
    with pytest.raises(ValueError, match=words):
        make_reward(CustomReward(path=path, options=options))


def test_a_term_that_is_not_there_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no reward term 'happiness'; known terms: meals, fair_meals"):
        make_reward(TermsReward(weights={"happiness": 1.0}))


def test_every_term_stays_within_0_and_1_and_rewards_within_their_bounds():
    weights = {name: (-1.0) ** i * 0.3 for i, name in enumerate(TERMS)}
    rewards = [SoundReward(), SumReward(weights), SumReward(weights, clip=(-0.1, 0.2))]
    for name in SCRIPTS:
        [(_, _, summary)] = summaries(script(name), [dpbench(5)] * 100, seed=1)
        for term in TERMS.values():
            values = term(summary)
            assert values.shape == (100,) and values.min() >= 0 and values.max() <= 1
        for reward in rewards:
            total, (least, greatest) = reward.total(summary), reward.bounds
            assert total.min() >= least - 1e-12 and total.max() <= greatest + 1e-12


def test_clipping_is_a_term_of_its_own():
    reward = SumReward({"fairness_vacuous": 0.9, "meals": 0.1, "deadlock": -1.0}, clip=(0.0, 1.0))
    [(_, _, summary)] = summaries(script("greedy_left"), [dpbench(5)], seed=0)
    assert {name: values.tolist() for name, values in reward.terms(summary).items()} == {
        "fairness_vacuous": [0.9], "meals": [0.0], "deadlock": [-1.0], "clip": [pytest.approx(0.1)],
    }  # fmt: skip
    assert reward.total(summary).tolist() == [pytest.approx(0.0)]


def test_only_vacuous_terms_pay_for_doing_nothing():
    [(_, _, nothing)] = summaries(script("wait"), [dpbench(5)], seed=0)
    paid = {name for name, term in TERMS.items() if term(nothing)[0] > 0}
    assert paid == {name for name in TERMS if name.endswith("_vacuous")} | {"starvation"}
    assert np.isclose(TERMS["starvation"](nothing)[0], 1.0), "a cost: it takes a negative weight"
