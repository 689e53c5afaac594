"""Attention by blocks: equal to attention with a mask over all pairs of tokens, its gradients too."""

from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig, LlamaForCausalLM

from pipeline_lib.policies import token_blocks, trained_model
from pipeline_lib.policies.adapted_linear import attach
from pipeline_lib.policies.kept_products import KeptProducts
from pipeline_lib.policies.token_blocks import blocks_of
from pipeline_lib.settings.policy import LoraAdapter
from pipeline_lib.training import tree_attention as module
from pipeline_lib.training.tree_attention import NAME, TreeAttention, attend_to_blocks, with_blocks
from tests.training.test_logprobs import SIZE

#: Trees as runs (first token, end, parent of the first), each with the row and the place where it begins.
TREES: dict[str, list[tuple[int, int, list[tuple[int, int, int]]]]] = {
    "a prompt with three actions": [(0, 0, [(0, 7, -1), (7, 10, 6), (10, 12, 6), (12, 15, 6)])],
    "branches of branches": [(0, 0, [(0, 4, -1), (4, 9, 3), (9, 11, 5), (11, 12, 10), (12, 15, 0)])],
    "two trees in a row, and one in another": [
        (0, 0, [(0, 5, -1), (5, 7, 4)]),
        (0, 7, [(0, 3, -1), (3, 8, 1)]),
        (1, 0, [(0, 9, -1), (9, 12, 8)]),
    ],
}


def sees(runs: list[tuple[int, int, int]]) -> list[set[int]]:
    """Return each token's ancestors with itself, found by walking from parent to parent."""
    parents = {
        token: token - 1 if token > first else parent for first, end, parent in runs for token in range(first, end)
    }
    found = []
    for token in sorted(parents):
        path = set()
        while token >= 0:
            path.add(token)
            token = parents[token]
        found.append(path)
    return found


@pytest.mark.parametrize("longest", [1, 3, 128])
@pytest.mark.parametrize("share", [1, 3])
@pytest.mark.parametrize("name", TREES)
def test_values_and_gradients_are_those_of_a_mask(
    name: str, share: int, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_blocks, "BLOCK", longest)
    torch.manual_seed(0)
    size = (2, 15, 2)  # rows, tokens, kv heads
    visible = torch.zeros(2, 15, 15, dtype=torch.bool)
    for row, place, runs in TREES[name]:
        for token, path in enumerate(sees(runs)):
            visible[row, place + token, [place + k for k in path]] = True
    blocks = tuple(block for row, place, runs in TREES[name] for block in blocks_of(row, place, runs))
    assert all(block.end - block.first <= longest for block in blocks)
    real = visible.any(-1)  # the rest is padding

    def states(heads: int, width: int) -> torch.Tensor:
        return torch.randn(*size[:2], heads, width, dtype=torch.float64).transpose(1, 2).requires_grad_()

    query, key, value = states(2 * share, 4), states(2, 4), states(2, 6)
    found = TreeAttention.apply(query, key, value, blocks, 0.7)
    mask = (visible | torch.eye(15, dtype=torch.bool))[:, None]
    expected = scaled_dot_product_attention(query, key, value, mask, scale=0.7, enable_gqa=True).transpose(1, 2)
    assert torch.allclose(found[real], expected[real], atol=1e-6) and not found[~real].any()
    given = torch.randn(expected.shape, dtype=torch.float64) * real[:, :, None, None]
    own = torch.autograd.grad(found, (query, key, value), given)
    for mine, theirs in zip(own, torch.autograd.grad(expected, (query, key, value), given), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


def test_large_models_on_the_cpu_use_it_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = LlamaForCausalLM(LlamaConfig(**SIZE))
    attend_to_blocks(model)
    assert model.config._attn_implementation == "sdpa"
    monkeypatch.setattr(trained_model, "SMALL_MODEL", 0)
    attend_to_blocks(model)
    assert model.config._attn_implementation == NAME
    assert "attn" not in str(model.config.to_dict()).replace("'attention", "")  # a saved model says nothing of it
    ids = torch.tensor([[3, 4, 5, 6]])
    plain = model(input_ids=ids, attention_mask=torch.tensor([[0, 1, 1, 1]])).logits[0, 1:]
    model.set_attn_implementation("sdpa")
    expected = model(input_ids=ids, attention_mask=torch.tensor([[0, 1, 1, 1]])).logits[0, 1:]
    assert torch.equal(plain, expected)  # a mask without blocks: torch's kernel
    model.set_attn_implementation("eager")
    attend_to_blocks(model)
    assert model.config._attn_implementation == "eager"  # as a person asked


@pytest.mark.parametrize(("most", "computed"), [(0, 4), (10**9, 2)], ids=["no room", "room"])
def test_under_gradient_checkpointing_it_is_computed_once_if_there_is_room(
    most: int, computed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model: Any = attach(LlamaForCausalLM(LlamaConfig(**SIZE)), LoraAdapter(rank=2), "main", 0).train()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    monkeypatch.setattr(trained_model, "SMALL_MODEL", 0)
    attend_to_blocks(model.get_base_model())
    mask = with_blocks(torch.ones(1, 1, 6, 6, dtype=torch.bool).tril(), tuple(blocks_of(0, 0, [(0, 6, -1)])))
    calls = []
    attend = module.attend
    monkeypatch.setattr(module, "attend", lambda *given: calls.append(given) or attend(*given))

    def gradients() -> list[torch.Tensor]:
        calls.clear()
        model.zero_grad()
        found = model(input_ids=torch.arange(3, 9)[None], attention_mask=mask, use_cache=False)
        found.logits[..., 1].sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    plain = gradients()
    assert len(calls) == 2, "once in each layer"
    model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": (kept := KeptProducts(most)).contexts})
    again = gradients()
    assert len(calls) == computed and all(map(torch.equal, plain, again)) and kept.held == 0
