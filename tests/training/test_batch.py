"""What is trained on: exactly the tokens the policy chose, counted once, whatever is merged or cut."""

import numpy as np
import pytest

from pipeline_lib.play import Decision, Experience
from pipeline_lib.rollouts.engine import Action
from pipeline_lib.settings.train import LossSettings
from pipeline_lib.training.batch import WeightedAction, actions_of, build, normaliser
from tests.training.conftest import END


def action(
    prompt: tuple[int, ...], ids: tuple[int, ...], advantage: float = 1.0, weight: float = 1.0
) -> WeightedAction:
    return WeightedAction(prompt, ids, tuple(-0.1 * (k + 1) for k in range(len(ids))), advantage, weight)


def loss(**changes: object) -> LossSettings:
    return LossSettings.model_validate(changes)


def test_equal_actions_become_one_row_with_the_sum_of_advantages() -> None:
    rows = [action((5,), (8, 9), 0.75), action((5,), (8, 9), -0.25), action((5,), (9, 9), 1.0)]
    batch = build(rows, 2.0, loss())
    assert batch.counts.rows == 2
    assert batch.counts.collapsed == 1
    assert (batch.positive - batch.negative).tolist() == pytest.approx([0.25, 0.25, 0.5, 0.5])
    assert batch.weight.tolist() == pytest.approx([1.0, 1.0, 0.5, 0.5])


def test_equal_actions_to_different_prompts_stay_apart() -> None:
    assert build([action((5,), (8,)), action((6,), (8,))], 1.0, loss()).counts.rows == 2
    assert build([action((5,), (6, 8)), action((5, 6), (8,))], 1.0, loss()).counts.rows == 2


def test_rows_without_effect_are_skipped_and_counted() -> None:
    rows = [action((5,), (8,), 0.0), action((5,), (9,), 1.0), action((5,), (9,), -1.0), action((6,), (8,), 2.0)]
    batch = build(rows, 1.0, loss())
    assert (batch.counts.rows, batch.counts.skipped, batch.counts.collapsed) == (1, 3, 0)


def test_rows_without_advantage_stay_when_kl_or_entropy_need_them() -> None:
    rows = [action((5,), (8,), 0.0)]
    assert build(rows, 1.0, loss(kl=0.1)).counts.rows == 1
    assert build(rows, 1.0, loss(entropy=0.1)).counts.rows == 1


def test_with_a_ratio_opposite_advantages_do_not_cancel() -> None:
    rows = [action((5,), (9,), 1.0), action((5,), (9,), -1.0)]
    batch = build(rows, 1.0, loss(epochs=2, clip=0.2))
    assert batch.positive.tolist() == batch.negative.tolist() == [1.0]


def test_divisors() -> None:
    rows = [action((5,), (8, 9, 10), 0.0), action((5,), (8,), 1.0, weight=0.5)]
    assert normaliser(rows, "batch_tokens") == 3.5  # rows without advantage count
    assert normaliser(rows, "sequences") == normaliser(rows, "sequence_mean") == 1.5


def test_sequence_mean_divides_by_the_length_of_each_action() -> None:
    batch = build(
        [action((5,), (8, 9), 1.0), action((5,), (8, 9, 10, 11), 1.0)], 2.0, loss(normalisation="sequence_mean")
    )
    assert batch.positive.tolist() == pytest.approx([0.25] * 2 + [0.125] * 4)


def test_an_action_without_tokens_or_log_probabilities_is_refused() -> None:
    with pytest.raises(ValueError, match="equally long"):
        build([WeightedAction((5,), (), (), 1.0, 1.0)], 1.0, loss())
    with pytest.raises(ValueError, match="equally long"):
        build([WeightedAction((5,), (8, 9), (-0.1,), 1.0, 1.0)], 1.0, loss())


def experience() -> Experience:
    full = Action((8, 9), (-0.1, -0.2), "0 1", "length")
    ended = Action((8, END), (-0.3, -0.4), "0", "stop")
    return Experience(
        [
            Decision("a", 0, 0, None, 1.0, ("one", "two"), ((5,), (6,)), (full, ended)),
            Decision("a", 0, 0, None, 1.0, ("one", "two"), ((5,), (6,)), (ended, ended)),
            Decision("b", 0, 1, None, 1.0, ("one",), ((7,),), (ended,)),
        ],
        {"one": 4, "two": 4},
    )


def test_every_agent_gets_the_advantage_of_its_joint_action_once() -> None:
    found = actions_of(experience(), [(1.0, 1.0), (-1.0, -1.0), (0.5,)], mask_truncated=False)
    assert [(a.prompt, a.advantage) for a in found["one"][0]] == [((5,), 1.0), ((5,), -1.0), ((7,), 0.5)]
    assert [(a.prompt, a.advantage, a.version) for a in found["two"][0]] == [((6,), 1.0, 4), ((6,), -1.0, 4)]


def test_decisions_without_a_reward_are_left_out() -> None:
    found = actions_of(experience(), [(1.0, 1.0), (None, None), (None,)], mask_truncated=False)
    assert [len(rows) for rows, _ in found.values()] == [1, 1]


def test_agents_of_a_joint_action_may_have_advantages_of_their_own_or_none() -> None:
    found = actions_of(experience(), [(1.0, -0.5), (None, 0.25), (0.5,)], mask_truncated=False)
    assert [a.advantage for a in found["one"][0]] == [1.0, 0.5]
    assert [a.advantage for a in found["two"][0]] == [-0.5, 0.25]


def test_truncated_actions_can_be_left_out_and_are_counted() -> None:
    found = actions_of(experience(), [(1.0, 1.0), (-1.0, -1.0), (0.5,)], mask_truncated=True)
    assert (len(found["one"][0]), found["one"][1]) == (2, 1)
    assert (len(found["two"][0]), found["two"][1]) == (2, 0)


def test_no_rows_at_all() -> None:
    batch = build([action((5,), (8,), 0.0)], 1.0, loss())
    assert batch.prompts == []
    assert np.array_equal(batch.offsets, [0])
