"""Prompts as a tree: every beginning once, and every node sees its own prompt and nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.policies import token_blocks
from pipeline_lib.rollouts import decoder as module
from pipeline_lib.rollouts.decoder import FusedDecoder
from pipeline_lib.rollouts.prefix_tree import PrefixTree
from tests.rollouts.tiny import FAST, policy

PROMPTS = [(5, 6, 7), (5, 6), (8, 6, 7), (5, 6, 9, 9)]


def test_shared_beginnings_occur_once():
    tree = PrefixTree.of(PROMPTS)
    assert tree.ids.tolist() == [5, 6, 7, 8, 6, 7, 9, 9]
    assert tree.depth.tolist() == [0, 1, 2, 0, 1, 2, 2, 3]
    assert tree.last.tolist() == [2, 1, 5, 7]
    assert tree.runs == ((0, 3, -1), (3, 6, -1), (6, 8, 1))


def test_policies_share_nothing():
    tree = PrefixTree.of([(5, 6), (5, 7), (5, 6), (5, 6)], np.array([0, 0, 1, 1]))
    assert tree.ids.tolist() == [5, 6, 7, 5, 6]
    assert tree.last.tolist() == [1, 2, 4, 4]
    assert tree.owner.tolist() == [0, 0, 1, 2, 2]


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple), min_size=1, max_size=8), st.integers(1, 7)
)
def test_every_prompt_sees_itself_in_order(prompts: list[tuple[int, ...]], longest: int):
    tree = PrefixTree.of(prompts)
    assert len(tree.ids) == len({p[:n] for p in prompts for n in range(1, len(p) + 1)})
    small = PrefixTree.small(prompts, len(tree.ids))
    assert (small is None) == (len(tree.ids) == sum(map(len, prompts)))
    assert small is None or small.runs == tree.runs
    assert PrefixTree.small(prompts, len(tree.ids) - 1) is None
    seen = tree.seen(len(tree.ids) + 2)
    for prompt, node in zip(prompts, tree.last.tolist(), strict=True):
        nodes = np.flatnonzero(seen[node])
        assert tuple(tree.ids[nodes].tolist()) == prompt
        assert tree.depth[nodes].tolist() == list(range(len(prompt)))
    assert seen[-1].sum() == seen[-2].sum() == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_blocks, "BLOCK", longest)
        blocks = tree.blocks()
    again = np.eye(len(seen), dtype=bool)
    for block in blocks:
        for first, end in block.before:
            again[block.first : block.end, first:end] = True
        again[block.first : block.end, block.first : block.end] = np.tri(block.end - block.first, dtype=bool)
    assert (again == seen).all()


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("kind", FAST)
def test_the_tree_gives_the_logits_and_caches_of_rows(kind: str, blocks: bool, monkeypatch: pytest.MonkeyPatch):
    model = policy(kind).model
    decoder = FusedDecoder(model, torch.float32)
    decoder.refresh(model.state_dict())
    with torch.inference_mode():
        rows = decoder._prefill_rows(PROMPTS, keep=True)
        if blocks:
            monkeypatch.setattr(module, "PLAIN_TOKENS", 4)
        shared = decoder._prefill_tree(PrefixTree.of(PROMPTS), keep=True)
    assert torch.allclose(rows.logits, shared.logits, atol=1e-5)
    for number, prompt in enumerate(PROMPTS):
        own, other = (p.cache.cells[:, :, number, :, : len(prompt)] for p in (rows, shared))
        assert torch.allclose(own, other, atol=1e-5)


@pytest.mark.parametrize(("large", "most", "taken"), [(True, 8, "tree"), (False, 8, "tree"), (False, 7, "rows")])
def test_small_models_compute_small_trees_only(large: bool, most: int, taken: str, monkeypatch: pytest.MonkeyPatch):
    model = policy("llama").model
    monkeypatch.setattr(module, "is_large_here", lambda model: large)
    monkeypatch.setattr(module, "PLAIN_TOKENS", most)
    decoder = FusedDecoder(model, torch.float32)
    for name in ("tree", "rows"):
        monkeypatch.setattr(decoder, f"_prefill_{name}", lambda prompts, keep, name=name: name)
    assert decoder.prefill(PROMPTS, keep=True) == taken
    assert decoder.prefill([(5, 6), (7, 8)], keep=True) == ("tree" if large else "rows")


@pytest.mark.parametrize(
    ("lengths", "common", "taken"),
    [
        ([40] * 64, 0, "rows"),  # 64 blocks, and no padding
        ([40] * 64, 24, "tree"),
        ([40] * 6, 0, "tree"),  # few enough for attention at once
        ([200] * 16, 0, "tree"),  # long
        ([30] * 32 + [90], 0, "tree"),  # much padding
    ],
)
def test_many_short_prompts_without_a_common_beginning_are_rows(
    lengths: list[int], common: int, taken: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "is_large_here", lambda model: True)
    decoder = FusedDecoder(policy("llama").model, torch.float32)
    own = [range(1000 * number, 1000 * number + length - common) for number, length in enumerate(lengths, start=1)]
    tree = decoder._tree([(*range(common), *one) for one in own])
    assert ("rows" if tree is None else "tree") == taken
