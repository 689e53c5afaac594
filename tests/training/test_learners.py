"""Getting policies ready: forward passes that are functions of the weights, in the precision asked for."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.rollouts.engine import Request
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.settings.train import LossSettings
from pipeline_lib.training.batch import WeightedAction, build
from pipeline_lib.training.learners import make_learners, without_dropout
from pipeline_lib.training.update import Learner, update_policy
from tests.rollouts.tiny import policy
from tests.training.conftest import SAMPLING, add_lora, make_model, make_settings, make_tokenizer

ROWS = [
    WeightedAction((2, 3), (8, 9, 10, 1), (-2.0,) * 4, 1.0, 1.0),
    WeightedAction((2, 3), (8, 9, 1), (-2.0,) * 3, -0.5, 1.0),
    WeightedAction((5, 2, 4), (9, 1), (-2.0,) * 2, 0.25, 1.0),
]


def learner(model: Any, compute: torch.dtype | None = None, **changes: Any) -> Learner:
    team = Team({"team": Policy("team", model, make_tokenizer())}, {})
    return make_learners(make_settings(**changes), SAMPLING, team, None, compute)[0]


def moments(one: Learner) -> dict[str, torch.Tensor]:
    """Return the gradient of one update, as the optimiser saw it."""
    settings = LossSettings()
    update_policy(one, build(ROWS, 9.0, settings), settings, 1e-3, lambda: None)
    return {k: v for k, v in one.optimiser.state().items() if k.startswith("exp_avg/")}


@pytest.mark.parametrize("lora", [False, True])
def test_gradient_checkpointing_changes_no_gradient(lora: bool) -> None:
    found = []
    for recompute in (False, True):
        model: Any = make_model(layers=2, spread=0.15)
        model = add_lora(model) if lora else model
        torch.manual_seed(1)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(0, 0.1)
        if recompute:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        one = learner(model, gradient_clip=0)
        assert any(module.training for module in model.modules()) == recompute
        found.append(moments(one))
    for key, value in found[0].items():
        assert value.abs().max() > 0
        assert torch.allclose(value, found[1][key], atol=1e-7), key


@pytest.mark.parametrize("kind", ["qwen3", "opt", "seed_oss", "phimoe"])
def test_dropout_and_noise_are_off_also_under_checkpointing(kind: str) -> None:
    """Actions are sampled without them; their log-probabilities must be those of the same function."""
    model: Any = policy(kind).model
    ids = torch.tensor([[2, 3, 4]])
    expected = model(ids, use_cache=False).logits
    model.get_output_embeddings().extra = nn.Dropout(0.9)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    without_dropout(model)
    assert sum(module.training for module in model.modules() if isinstance(module, GradientCheckpointingLayer)) == 2
    assert model.get_output_embeddings().extra.p == 0.0
    assert torch.equal(model(ids, use_cache=False).logits, expected)


def test_sampling_leaves_training_mode_where_it_was() -> None:
    opt = policy("opt")
    opt.model = add_lora(opt.model)
    opt.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    without_dropout(opt.model)
    before = [module.training for module in opt.model.modules()]
    engine = TransformersEngine(rows=2)
    engine.load({"team": opt})
    engine.generate([Request("team", (2, 3), 2, 0)], SAMPLING)
    assert [module.training for module in opt.model.modules()] == before and {*before} == {True, False}


def test_frozen_weights_below_an_adapter_set_the_precision() -> None:
    lora = add_lora(make_model())
    for name, parameter in lora.named_parameters():
        if "lora_" not in name:
            parameter.data = parameter.data.bfloat16()
    one = learner(lora)
    assert one.compute == torch.bfloat16
    assert all(p.dtype == torch.float32 for p in one.optimiser.parameters.values())
    assert all(torch.isfinite(value).all() for value in moments(one).values())
    assert learner(make_model()).compute == torch.float32


def test_full_weights_can_be_trained_in_bfloat16_compute() -> None:
    exact, rounded = (
        moments(learner(make_model(spread=0.15))),
        moments(learner(make_model(spread=0.15), torch.bfloat16)),
    )
    differs = False
    for key, value in exact.items():
        assert rounded[key].dtype == torch.float32
        assert torch.allclose(value, rounded[key], atol=0.05 * float(value.abs().max()) + 1e-5), key
        differs |= not torch.equal(value, rounded[key])
    assert differs


def test_requires_grad_is_left_as_it_was() -> None:
    lora = add_lora(make_model())
    before = {name: p.requires_grad for name, p in lora.named_parameters()}
    moments(learner(lora))
    assert {name: p.requires_grad for name, p in lora.named_parameters()} == before
