"""Forward passes: exactly the tokens the policy chose, in their own context, computed once, within the budget."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.settings.train import LossSettings
from pipeline_lib.training.batch import PolicyBatch, build
from pipeline_lib.training.packing import MicroBatch, micro_batches
from tests.training.conftest import END
from tests.training.test_batch import action, loss


def context(cut: MicroBatch, place: int) -> tuple[int, ...]:
    """Return the tokens that a node sees, in the order of their positions, as the model is told."""
    pack, node = divmod(place, cut.input_ids.shape[1])
    seen = (
        list(range(node + 1)) if cut.visible is None else [int(k) for k in cut.visible[pack, node].nonzero().flatten()]
    )
    if cut.blocks is not None:
        (block,) = (one for one in cut.blocks if one.row == pack and one.first <= node < one.end)
        before = [k for first, end in block.before for k in range(first, end)]
        assert seen == [*before, *range(block.first, node + 1)]
    places = [int(cut.position_ids[pack, k]) for k in seen]
    assert places == list(range(len(seen)))  # every node stands where it stands in its own sequence
    return tuple(int(cut.input_ids[pack, k]) for k in seen)


def trained(batch: PolicyBatch, budget: int, share: bool = True) -> dict[tuple[tuple[int, ...], int], float]:
    """Return the weight of every trained (context, token) pair, read off the passes as the model sees them."""
    found: dict[tuple[tuple[int, ...], int], float] = {}
    for cut in micro_batches(batch, budget, share):
        for place, target, net in zip(cut.positions, cut.targets, cut.positive - cut.negative, strict=True):
            key = (context(cut, int(place)), int(target))
            found[key] = found.get(key, 0.0) + float(net)
    return found


def naive(rows: list[Any]) -> dict[tuple[tuple[int, ...], int], float]:
    found: dict[tuple[tuple[int, ...], int], float] = {}
    for row in rows:
        for k, token in enumerate(row.action):
            key = (row.prompt + row.action[:k], token)
            found[key] = found.get(key, 0.0) + row.advantage
    return found


ACTIONS = [
    action((5, 6), (8, 9, 10, END), 1.0),
    action((5, 6), (9, END), -1.0),
    action((5, 6, 7), (8,), 0.5),
    action((5, 6), (8, 9, 10, 11), 0.25),
    action((5, 6), (8, 9, 2), 0.125),
]


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("budget", [1, 7, 4096])
def test_trained_are_the_chosen_tokens_and_no_others(budget: int, share: bool) -> None:
    """Padding, the prompt and whatever follows the end token have no weight; the end token has (fault 1.4)."""
    assert trained(build(ACTIONS, 1.0, loss()), budget, share) == pytest.approx(naive(ACTIONS))


@pytest.mark.parametrize("share", [True, False])
def test_a_prompt_that_holds_end_and_padding_ids_is_not_cut(share: bool) -> None:
    batch = build([action((0, END, 0, 5), (8, END))], 1.0, loss())
    assert trained(batch, 99, share) == {((0, END, 0, 5), 8): 1.0, ((0, END, 0, 5, 8), END): 1.0}


def test_shared_beginnings_are_computed_once() -> None:
    (cut,) = micro_batches(build(ACTIONS, 1.0, loss()), 4096)
    assert cut.input_ids.tolist() == [[5, 6, 8, 9, 10, 9], [5, 6, 7, 0, 0, 0]]
    assert cut.position_ids[0].tolist() == [0, 1, 2, 3, 4, 2]
    assert len(cut.targets) == 9  # distinct (context, token) pairs, of 14 action tokens
    assert len(cut.tokens) == len(cut.edges) == 14


def test_short_packs_share_a_row_and_do_not_see_each_other() -> None:
    rows = [*ACTIONS[:2], action((5, 7), (9, 2), 1.0), action((6, 7), (9, 3), 1.0), action((7, 7), (9, 4), 1.0)]
    (cut,) = micro_batches(build(rows, 1.0, loss()), 4096)
    assert cut.input_ids.tolist() == [[5, 6, 8, 9, 10, 9], [5, 7, 9, 6, 7, 9], [7, 7, 9, 0, 0, 0]]
    assert cut.position_ids.tolist() == [[0, 1, 2, 3, 4, 2], [0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 0, 0]]
    assert cut.visible is not None
    assert not cut.visible[1, :3, 3:].any() and not cut.visible[1, 3:, :3].any()
    assert trained(build(rows, 1.0, loss()), 4096) == pytest.approx(naive(rows))


def test_actions_of_one_token_need_the_prompt_only() -> None:
    rows = [action((5, 6), (8 + k,), float(k + 1)) for k in range(4)]
    for share in (True, False):
        (cut,) = micro_batches(build(rows, 1.0, loss()), 4096, share)
        assert cut.input_ids.tolist() == [[5, 6]]
        assert cut.positions.tolist() == [1, 1, 1, 1]
        assert cut.visible is None


def test_without_sharing_every_pack_is_one_sequence() -> None:
    cuts = micro_batches(build(ACTIONS, 1.0, loss()), 4096, share=False)
    assert all(cut.visible is None for cut in cuts)
    assert sum(len(cut.input_ids) for cut in cuts) == 4


@pytest.mark.parametrize("share", [True, False])
def test_passes_keep_to_the_budget_and_are_sorted(share: bool) -> None:
    rows = [action(tuple(range(2, 2 + n)), (8, 9, k)) for n in (3, 9, 4, 12, 3, 5) for k in range(3)]
    rows += [action((7, 7), (k, k, k, k)) for k in range(12)]
    cuts = micro_batches(build(rows, 1.0, loss()), 24, share)
    assert all(cut.input_ids.numel() <= 24 for cut in cuts)
    lengths = [cut.input_ids.shape[1] for cut in cuts]
    assert lengths == sorted(lengths, reverse=True)


def test_memory_follows_the_budget_not_the_group() -> None:
    """However many actions a group has, no pass has more tokens, or a larger attention matrix, than the budget."""
    for size in (8, 64, 512):
        rows = [action((2, 3, 4), (k, k, k, k, k)) for k in range(size)]
        cuts = micro_batches(build(rows, 1.0, loss()), 64)
        assert max(cut.input_ids.numel() for cut in cuts) <= 64
        assert max(cut.visible.numel() for cut in cuts if cut.visible is not None) <= 64 * 64


def test_padding_sees_itself_and_nobody_sees_padding() -> None:
    (cut,) = micro_batches(build(ACTIONS, 1.0, loss()), 4096)
    assert cut.visible is not None
    padded = cut.visible[1, 3:]
    assert padded.sum(-1).tolist() == [1, 1, 1]
    assert not cut.visible[1, :3, 3:].any()


def test_behaviour_is_that_of_the_edge() -> None:
    batch = build(ACTIONS, 1.0, loss())
    (cut,) = micro_batches(batch, 4096)
    per_token = torch.tensor(batch.behaviour, dtype=torch.float32)
    assert torch.allclose(cut.of_edges(per_token), cut.behaviour)


@given(
    st.lists(
        st.tuples(st.integers(2, 7), st.lists(st.integers(1, 3), min_size=1, max_size=5), st.floats(-1, 1)),
        min_size=1,
        max_size=14,
    ),
    st.integers(1, 40),
    st.booleans(),
)
def test_merging_sharing_and_cutting_change_no_weight(
    items: list[tuple[int, list[int], float]], budget: int, share: bool
) -> None:
    rows = [action((prompt,), tuple(ids), advantage) for prompt, ids, advantage in items]
    found = trained(build(rows, 1.0, loss()), budget, share)
    for key, value in naive(rows).items():
        assert found.get(key, 0.0) == pytest.approx(value, abs=1e-5)


def test_nothing_to_compute() -> None:
    assert micro_batches(build([action((5,), (8,), 0.0)], 1.0, LossSettings()), 10) == []


def test_a_pass_is_filled_up_to_a_number_of_tokens_and_trees_stay_whole() -> None:
    """Smaller passes, not smaller trees: a tree that is divided repeats its prompt."""
    rows = [action((4, 4, n), (8, 9, end), 1.0) for n in (5, 6, 7, 10) for end in (END, 11)]
    batch = build(rows, 1.0, loss())
    sizes = {fill: [cut.input_ids.numel() for cut in micro_batches(batch, 4096, True, fill)] for fill in (1, 12, 4096)}
    assert sizes == {1: [5, 5, 5, 5], 12: [10, 10], 4096: [20]}
    for fill in sizes:
        found: dict[Any, float] = {}
        for cut in micro_batches(batch, 4096, True, fill):
            for place, target, net in zip(cut.positions, cut.targets, cut.positive - cut.negative, strict=True):
                key = (context(cut, int(place)), int(target))
                found[key] = found.get(key, 0.0) + float(net)
        assert found == pytest.approx(naive(rows))
