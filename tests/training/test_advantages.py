"""Returns and advantages against closed forms, and against the faults of the public code."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.settings.train import AdvantageSettings
from pipeline_lib.training.advantages import advantages, group_advantages, returns_to_go

RETURNS = np.array([1.2, 3.5, 0.4, 2.0])


def settings(baseline: str = "mean", scale: str = "none") -> AdvantageSettings:
    return AdvantageSettings.model_validate({"baseline": baseline, "scale": scale})


def test_default_is_the_return_minus_the_mean_and_not_divided() -> None:
    assert group_advantages(RETURNS, AdvantageSettings()) == pytest.approx([-0.575, 1.725, -1.375, 0.225])


def test_closed_forms() -> None:
    assert group_advantages(RETURNS, settings("max")) == pytest.approx([-2.3, 0.0, -3.1, -1.5])
    assert group_advantages(RETURNS, settings("none")) == pytest.approx(RETURNS)
    others = [np.delete(RETURNS, i).mean() for i in range(4)]
    assert group_advantages(RETURNS, settings("leave_one_out")) == pytest.approx(RETURNS - others)
    assert group_advantages(RETURNS, settings("mean", "group_std")) == pytest.approx(
        (RETURNS - RETURNS.mean()) / RETURNS.std()
    )


def test_variants_that_claim_to_differ_do_differ() -> None:
    """Centring and scaling after every baseline made all four of the public code's algorithms the same."""
    variants = [
        group_advantages(RETURNS, settings(baseline, scale))
        for baseline in ("mean", "leave_one_out", "max", "none")
        for scale in ("none", "group_std")
    ]
    for one, other in itertools.combinations(variants, 2):
        assert not np.allclose(one, other, atol=1e-3)


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out", "max"])
@pytest.mark.parametrize("scale", ["none", "group_std"])
def test_equal_returns_give_exactly_zero(baseline: str, scale: str) -> None:
    noise = np.array([0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2])  # differ in the last bit only
    assert np.ptp(noise) > 0
    assert (group_advantages(noise, settings(baseline, scale)) == 0).all()


def test_equal_returns_without_a_baseline_are_kept() -> None:
    assert group_advantages(np.array([2.0, 2.0]), settings("none", "group_std")) == pytest.approx([2.0, 2.0])


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out", "max"])
def test_group_of_one_teaches_nothing(baseline: str) -> None:
    assert group_advantages(np.array([2.0]), settings(baseline)) == pytest.approx([0.0])


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8), st.floats(-3, 3))
def test_relative_baselines_ignore_a_constant(returns: list[float], shift: float) -> None:
    values = np.array(returns)
    for baseline in ("mean", "leave_one_out", "max"):
        moved = group_advantages(values + shift, settings(baseline))
        assert moved == pytest.approx(group_advantages(values, settings(baseline)), abs=1e-6)


def test_groups_do_not_mix() -> None:
    result, flat = advantages([1.0, 3.0, 10.0, 10.0], [0, 0, 1, 1], AdvantageSettings())
    assert result == pytest.approx([-1.0, 1.0, 0.0, 0.0])
    assert flat == {0: False, 1: True}


def test_infrastructure_failures_are_neither_scored_nor_part_of_the_baseline() -> None:
    result, _ = advantages([1.0, None, 3.0], [0, 0, 0], AdvantageSettings())
    assert result[1] is None
    assert [result[0], result[2]] == pytest.approx([-1.0, 1.0])  # with None as 0 the mean would be 4/3
    assert advantages([None, None], [0, 0], AdvantageSettings()) == ([None, None], {})


def test_return_to_go_of_an_episode_uses_the_discount() -> None:
    rewards, parents = [1.0, 2.0, 4.0], [None, 0, 1]
    assert returns_to_go(rewards, parents, 1.0) == pytest.approx([7.0, 6.0, 4.0])
    assert returns_to_go(rewards, parents, 0.5) == pytest.approx([3.0, 4.0, 4.0])


def test_return_on_the_tree_is_the_mean_over_the_group_below() -> None:
    """Two joint actions, the first with a group of three below it (MAGRPO: r + discount * mean of the children)."""
    rewards = [1.0, 5.0, 0.0, 3.0, 6.0]
    assert returns_to_go(rewards, [None, None, 0, 0, 0], 0.9) == pytest.approx([1 + 0.9 * 3.0, 5.0, 0.0, 3.0, 6.0])


def test_gains_are_what_a_turn_adds_and_pay_nothing_for_failing_first() -> None:
    rewards, parents = [0.6, 2.0, 2.0, 1.0], [None, None, 0, 0]  # a failure, repaired once in two; a success
    assert returns_to_go(rewards, parents, 1.0) == pytest.approx([2.1, 2.0, 2.0, 1.0]), "failing first earns more"
    assert returns_to_go(rewards, parents, 1.0, gains=True) == pytest.approx([1.5, 2.0, 1.4, 0.4])
    assert returns_to_go(rewards, parents, 0.5, gains=True)[0] == pytest.approx(0.5 * 0.6 + 0.5 * 1.5)
    assert returns_to_go([1.0, 2.0, 4.0], [None, 0, 1], 1.0, gains=True) == pytest.approx([4.0, 3.0, 2.0])
    assert returns_to_go([1.0, None, 4.0], [None, 0, 0], 1.0, gains=True) == [4.0, None, 3.0]


def test_return_after_infrastructure_failures() -> None:
    assert returns_to_go([1.0, None, 4.0], [None, 0, 0], 1.0) == [5.0, None, 4.0]
    assert returns_to_go([1.0, None, None], [None, 0, 0], 1.0) == [None, None, None]


def test_children_come_after_their_parent() -> None:
    with pytest.raises(ValueError, match="must come before"):
        returns_to_go([1.0, 1.0], [1, None], 1.0)
