"""The base policy's preflight, on episodes whose answer is known."""

import math
import warnings

import numpy as np
import pytest

from pipeline_lib.audit.result import Check, Status, best_policy, bounded, compare, conclude, make_rung, worst
from pipeline_lib.audit.run import Played, preflight, within
from pipeline_lib.play import Decision, Experience


def status(played: Played, name: str) -> Status:
    return next(c.status for c in preflight(played, "meals", "meals", ("wait_share",)) if c.name == name)


def played(reward, meals, wait) -> Played:
    return Played(np.asarray(reward, float), {"meals": np.asarray(meals, float), "wait_share": np.asarray(wait, float)})


RNG = np.random.default_rng(0)
NOISE, OTHER = RNG.normal(size=(32, 8)), RNG.normal(size=(32, 8))


def test_a_reward_that_follows_the_outcome_passes():
    found = preflight(played(NOISE, NOISE + 0.1 * OTHER, OTHER), "meals", "meals", ("wait_share",))
    assert [c.status for c in found] == [Status.PASS] * 3


def test_groups_without_variance_are_counted():
    flat = np.ones((32, 8))
    assert status(played(flat, NOISE, OTHER), "base_signal") is Status.FAIL
    few = flat.copy()
    few[:3] = NOISE[:3]
    assert status(played(few, NOISE, OTHER), "base_signal") is Status.WARN
    differ_between_groups = np.arange(32.0)[:, None] * np.ones((1, 8))
    assert status(played(differ_between_groups, NOISE, OTHER), "base_signal") is Status.FAIL


def test_a_reward_against_the_outcome_fails_and_one_beside_it_warns():
    assert status(played(-NOISE, NOISE, OTHER), "base_alignment") is Status.FAIL
    assert status(played(OTHER, NOISE, OTHER), "base_alignment") is Status.WARN
    assert status(played(NOISE, np.zeros((32, 8)), OTHER), "base_alignment") is Status.WARN


def test_being_paid_for_waiting_fails_only_if_waiting_does_not_help():
    assert status(played(NOISE, -NOISE, NOISE), "base_wait_share") is Status.FAIL
    assert status(played(NOISE, NOISE, NOISE), "base_wait_share") is Status.PASS


def test_differences_between_groups_do_not_count_as_correlation():
    level = 10 * RNG.normal(size=(32, 1))
    assert abs(within(NOISE + level, OTHER + level)) < 0.2
    assert within(np.ones((2, 2)), NOISE[:2, :2]) is None


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_base_of_which_every_episode_was_lost_is_said_to_be_lost():
    lost = np.full((4, 8), np.nan)
    (found,) = preflight(played(lost, lost, lost), "meals", "meals", ("wait_share",))
    assert found.status is Status.FAIL and "All 32 episodes" in found.sentence and found.mend


def test_lost_episodes_are_left_out():
    lost = NOISE.copy()
    lost[0, 0] = np.nan
    assert within(lost, lost) == pytest.approx(1.0)


def decision(turn: int, parent: int | None, reward: float | None, meals: float) -> Decision:
    return Decision("p", turn, 0, parent, 1.0, (), (), (), reward, metrics={"meals": meals})


def test_turns_are_added_up_by_episode():
    experience = Experience(
        [decision(0, None, 1.0, 1), decision(0, None, 2.0, 1), decision(1, 1, 0.5, 3), decision(1, 0, None, 2)]
    )
    found = Played.of(experience, 2)
    assert found.rewards[0, 1] == 2.5 and np.isnan(found.rewards[0, 0])
    assert found.metrics["meals"].tolist() == [[2.0, 3.0]]


def rung(name: str, role: str, reward: float, outcome: float):
    return make_rung(name, role, [reward], [outcome], [{"term": reward}])


@pytest.mark.parametrize(
    ("degenerate", "expected"), [(0.0, Status.PASS), (0.85, Status.PASS), (0.95, Status.WARN), (2.0, Status.FAIL)]
)
def test_a_degenerate_team_is_refused_when_it_beats_half_of_the_working_ones(degenerate, expected):
    working = [rung(f"works {i}", "working", 0.9 + 0.1 * i, 1) for i in range(4)]
    checks = {c.name: c for c in compare([rung("idle", "degenerate", degenerate, 0), *working], "meals")}
    assert checks["ladder"].status is expected
    assert ("'idle'" in checks["ladder"].sentence) and ("'works 0'" in checks["ladder"].sentence)


@pytest.mark.parametrize(("lazy", "expected"), [(0.3, Status.FAIL), (0.6, Status.WARN), (0.9, Status.PASS)])
def test_ties_at_the_top_are_broken_against_the_reward(lazy, expected):
    rungs = [rung("does all", "working", 1.0, 1), rung("lazy", "other", 1.0, lazy), rung("idle", "degenerate", 0, 0)]
    best = {c.name: c for c in compare(rungs, "meals")}["best"]
    assert best.status is expected and "'lazy'" in best.sentence


def test_the_best_is_what_training_could_tell_apart():
    assert best_policy([1.0, 0.99, 0.0], [1.0, 0.1, 0.0]).index == 1, "a hundredth of the gain is not seen"
    assert best_policy([1.0, 0.9, 0.0], [1.0, 0.1, 0.0]).index == 0
    assert best_policy([1.0, 0.9, 0.0], [1.0, 0.1, 0.0], errors=[0.1, 0.1, 0.0]).index == 1, "nor what is noise"
    assert best_policy([np.nan, 1.0, -np.inf], [1.0, 0.5, 0.2]).index == 1
    assert best_policy([100.99, 101.0, 100.0], [0.1, 1.0, 0.0]).share == pytest.approx(0.1), "an offset hides nothing"


@pytest.mark.parametrize("wrong", [[0.0, 2.0], [0.0, float("nan")], [-0.1, 1.0]])
def test_rewards_outside_of_their_bounds_are_refused(wrong):
    assert bounded([0.0, 1.0], (0.0, 1.0)).status is Status.PASS
    assert bounded(wrong, (0.0, 1.0)).status is Status.FAIL


def test_the_conclusion_is_the_worst_check_and_names_reward_policy_and_remedy():
    good, bad = Check("a", Status.PASS, "Fine."), Check("b", Status.FAIL, "'wait' wins.", {}, "pay for meals.")
    assert worst([Status.WARN, Status.PASS]) is Status.WARN and worst([]) is Status.PASS
    said = "1 of 2 checks fail for the reward 'mine'. 'wait' wins. To fix it: pay for meals."
    assert conclude([good, bad], "'mine'") == (Status.FAIL, said)
    assert conclude([good], "'mine'")[1].startswith("All 1 checks pass")


def test_infinite_rewards_are_averaged_without_warnings() -> None:
    with warnings.catch_warnings(action="error"):
        found = make_rung("a space", "other", [-math.inf, 1.0], [0.0, 0.0], [{}, {}])
    assert found.reward == -math.inf and math.isnan(found.error)
