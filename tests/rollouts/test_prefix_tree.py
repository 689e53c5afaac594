"""Prompts as a tree: every beginning once, and every node sees its own prompt and nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline_lib.rollouts.decoder import FusedDecoder, PrefixTree
from tests.rollouts.tiny import FAST, policy

PROMPTS = [(5, 6, 7), (5, 6), (8, 6, 7), (5, 6, 9, 9)]


def test_shared_beginnings_occur_once():
    tree = PrefixTree.of(PROMPTS, 256)
    assert tree is not None
    assert tree.ids.tolist() == [5, 6, 7, 8, 6, 7, 9, 9]
    assert tree.depth.tolist() == [0, 1, 2, 0, 1, 2, 2, 3]
    assert tree.last.tolist() == [2, 1, 5, 7]


@pytest.mark.parametrize(("prompts", "most"), [(PROMPTS, 7), ([(5, 6), (7, 8)], 256), ([(1, 2, 3), (1, 2, 3)], 2)])
def test_no_tree_when_it_is_too_large_or_nothing_is_shared(prompts: list[tuple[int, ...]], most: int):
    assert PrefixTree.of(prompts, most) is None


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple), min_size=1, max_size=8))
def test_every_prompt_sees_itself_in_order(prompts: list[tuple[int, ...]]):
    tree = PrefixTree.of(prompts, 256)
    if tree is None:
        assert len({p[:n] for p in prompts for n in range(1, len(p) + 1)}) == sum(map(len, prompts))
        return
    seen = tree.seen(len(tree.ids) + 2)
    for prompt, node in zip(prompts, tree.last.tolist(), strict=True):
        nodes = np.flatnonzero(seen[node])
        assert tuple(tree.ids[nodes].tolist()) == prompt
        assert tree.depth[nodes].tolist() == list(range(len(prompt)))
    assert seen[-1].sum() == seen[-2].sum() == 1


@pytest.mark.parametrize("kind", FAST)
def test_the_tree_gives_the_logits_and_caches_of_rows(kind: str):
    model = policy(kind).model
    decoder = FusedDecoder(model, torch.float32)
    decoder.refresh(model.state_dict())
    tree = PrefixTree.of(PROMPTS, 256)
    assert tree is not None
    with torch.inference_mode():
        rows, shared = decoder._prefill_rows(PROMPTS, keep=True), decoder._prefill_tree(tree, keep=True)
    assert torch.allclose(rows.logits, shared.logits, atol=1e-5)
    for number, prompt in enumerate(PROMPTS):
        own, other = (p.cache.cells[:, :, number, :, : len(prompt)] for p in (rows, shared))
        assert torch.allclose(own, other, atol=1e-5)
