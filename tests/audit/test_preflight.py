"""The base policy's preflight, on episodes whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline_lib.audit.ladder import compare, make_rung
from pipeline_lib.audit.preflight import Played, episodes_of, preflight, within
from pipeline_lib.audit.result import Check, Status, conclude, worst
from pipeline_lib.training.experience import Decision, Experience


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


def test_lost_episodes_are_left_out():
    lost = NOISE.copy()
    lost[0, 0] = np.nan
    assert within(lost, lost) == pytest.approx(1.0)


def decision(turn: int, parent: int | None, reward: float | None, meals: float) -> Decision:
    return Decision("p", turn, 0, parent, 1.0, (), (), (), reward, {}, {"meals": meals})


def test_turns_are_added_up_by_episode():
    experience = Experience(
        [decision(0, None, 1.0, 1), decision(0, None, 2.0, 1), decision(1, 1, 0.5, 3), decision(1, 0, None, 2)]
    )
    found = episodes_of(experience, 2)
    assert found.rewards[0, 1] == 2.5 and np.isnan(found.rewards[0, 0])
    assert found.metrics["meals"].tolist() == [[2.0, 3.0]]


def rung(name: str, role: str, reward: float, outcome: float):
    return make_rung(name, role, [reward], [outcome], [{"term": reward}])


@pytest.mark.parametrize(
    ("degenerate", "expected"), [(0.0, Status.PASS), (0.85, Status.FAIL), (0.95, Status.FAIL), (2.0, Status.FAIL)]
)
def test_degenerate_teams_must_stay_below_working_ones_by_a_margin(degenerate, expected):
    rungs = [rung("idle", "degenerate", degenerate, 0), rung("works", "working", 0.9, 1), rung("low", "other", -0.1, 0)]
    checks = {c.name: c for c in compare(rungs, "meals")}
    assert checks["ladder"].status is expected
    assert ("'idle'" in checks["ladder"].sentence) and ("'works'" in checks["ladder"].sentence)


def test_the_conclusion_is_the_worst_check():
    good, bad = Check("a", Status.PASS, "Fine."), Check("b", Status.FAIL, "'wait' wins.")
    assert worst([Status.WARN, Status.PASS]) is Status.WARN and worst([]) is Status.PASS
    assert conclude([good, bad]) == (Status.FAIL, "1 of 2 checks fail. 'wait' wins.")
    assert conclude([good])[1].startswith("All 1 checks pass")
