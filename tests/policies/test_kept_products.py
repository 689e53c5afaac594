"""Products kept under gradient checkpointing: fewer are computed, values stay, and no more is held than may be."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pipeline_lib.policies import adapted_linear
from pipeline_lib.policies.adapted_linear import attach
from pipeline_lib.policies.kept_products import KeptProducts
from pipeline_lib.settings.policy import LoraAdapter
from tests.training.test_logprobs import SIZE

IDS = torch.tensor([[3, 4, 5, 6, 7, 8]])


class Counted:
    """torch's functions, of which `linear` counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def linear(self, *given: Any) -> torch.Tensor:
        self.calls += 1
        return torch.nn.functional.linear(*given)


def gradient(model: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[list[torch.Tensor], int]:
    """Return the adapters' gradients, and how many products of frozen weights took them."""
    counted = Counted()
    monkeypatch.setattr(adapted_linear, "functional", counted)
    model.zero_grad()
    model(input_ids=IDS, use_cache=False).logits[..., 1].sum().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None], counted.calls


def adapted() -> Any:
    torch.manual_seed(0)
    model: Any = attach(LlamaForCausalLM(LlamaConfig(**SIZE)), LoraAdapter(rank=2), "main", 0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    return model.train()


def keeping(model: Any, most: int) -> KeptProducts:
    kept = KeptProducts(most)
    model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": kept.contexts})
    return kept


def test_products_are_computed_once_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    model = adapted()
    plain, products = gradient(model, monkeypatch)
    assert products == 2 * 7  # layers, matrices
    model.gradient_checkpointing_enable({"use_reentrant": False})
    again, computed = gradient(model, monkeypatch)
    assert computed == 2 * products and all(map(torch.equal, plain, again))
    least = None
    for most in (0, 6 * 4 * (32 + 2), 3000, 10**9):
        kept = keeping(model, most)
        found, computed = gradient(model, monkeypatch)
        assert all(map(torch.equal, plain, found)) and kept.held == 0
        assert least is None or computed <= least
        least = computed
        if most == 0:
            assert computed == 2 * products
    assert least == products


def test_no_more_is_held_than_may_be_and_a_graph_that_is_dropped_gives_it_back() -> None:
    model = adapted()
    all_bytes = 6 * 4 * 2 * (32 + 16 + 16 + 32 + 48 + 48 + 32 + 7 * 2)  # tokens, float32, layers, outputs with A x
    for most in (1000, 10**9):
        kept = keeping(model, most)
        loss = model(input_ids=IDS, use_cache=False).logits.sum()
        assert 0 < kept.held <= min(most, all_bytes) and (most < all_bytes or kept.held == all_bytes)
        del loss
        assert kept.held == 0
        with torch.no_grad():
            model(input_ids=IDS, use_cache=False)
        assert kept.held == 0


def test_a_product_that_the_layer_changes_in_place_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = adapted()
    for layer in model.get_base_model().model.layers:
        layer.mlp.down_proj.register_forward_hook(lambda _module, _given, out: out.mul_(2))  # as Falcon adds to it
    plain, products = gradient(model, monkeypatch)
    keeping(model, 10**9)
    found, computed = gradient(model, monkeypatch)
    assert all(map(torch.equal, plain, found)) and computed == products + 2
