"""LoRA: it starts as nothing, learns apart, merges exactly and out of place."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from peft.tuners.lora import Linear
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

from pipeline_lib.policies.adapted_linear import AdaptedLinear, attach
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.lora import merged_state
from pipeline_lib.policies.policy import Policy, PolicyError, Team
from pipeline_lib.settings.policy import EmbeddedPolicy, LoraAdapter
from tests.policies.conftest import TINY
from tests.rollouts.tiny import CONFIGS
from tests.rollouts.tiny import policy as random_policy

IDS = torch.tensor([[7, 30, 31, 60, 90, 12]])
SETTINGS = EmbeddedPolicy.model_validate({**TINY.model_dump(), "adapter": {"kind": "lora", "rank": 4, "alpha": 6.0}})


@pytest.fixture
def team(base: Path) -> Team:
    return load_team(SETTINGS, base, ("helper", "main"))


def _stir(policy: Policy, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in policy.trainable():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def _logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(IDS).logits
        return logits


def test_a_fresh_adapter_changes_nothing(team: Team, base: Path):
    plain = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
    for policy in team.policies.values():
        assert torch.equal(_logits(policy.model), _logits(plain))


def test_training_one_agent_leaves_the_other_alone(team: Team):
    helper, main = team.policies.values()
    before = _logits(main.model)
    optimiser = torch.optim.SGD([parameter for _, parameter in helper.trainable()], lr=5.0)
    for _ in range(3):
        helper.model(IDS).logits.log_softmax(-1)[0, -1, 5].neg().backward()
        optimiser.step()
        optimiser.zero_grad()
    assert not torch.allclose(_logits(helper.model), before)
    assert torch.equal(_logits(main.model), before)


def test_the_merged_weights_are_the_adapted_model(team: Team, base: Path):
    helper, main = team.policies.values()
    _stir(helper, 1)
    _stir(main, 2)
    for policy in (helper, main):
        plain = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
        state = merged_state(policy)
        assert state.keys() == plain.state_dict().keys()
        plain.load_state_dict(state)
        assert torch.allclose(_logits(plain), _logits(policy.model), atol=1e-5)


def test_merging_a_hundred_times_moves_no_bit_of_the_trained_model(team: Team):
    policy = team.policy_of("main")
    _stir(policy)
    before = copy.deepcopy(policy.model.state_dict())
    logits, first = _logits(policy.model), merged_state(policy)
    for _ in range(100):
        again = merged_state(policy)
    assert all(torch.equal(value, before[name]) for name, value in policy.model.state_dict().items())
    assert torch.equal(_logits(policy.model), logits)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_what_is_merged_into_bfloat16_is_summed_in_float32(base: Path):
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    adapted: Any = attach(plain, LoraAdapter(rank=4), "main", 0)
    policy = Policy("main", adapted, tokenizer=None)  # type: ignore[arg-type]
    assert {parameter.dtype for _, parameter in policy.trainable()} == {torch.float32}
    _stir(policy)
    layer = adapted.get_base_model().model.layers[0].mlp.up_proj
    delta = layer.scaling["default"] * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    exact = (layer.base_layer.weight.float() + delta).to(torch.bfloat16)
    merged = merged_state(policy)["model.layers.0.mlp.up_proj.weight"]
    assert merged.dtype == torch.bfloat16 and torch.equal(merged, exact)


def test_a_policy_without_an_adapter_is_its_own_merged_state(base: Path):
    policy = load_team(TINY, base, ("main",)).policy_of("main")
    state = merged_state(policy)
    assert all(torch.equal(state[name], value) for name, value in policy.model.state_dict().items())


def test_adapters_start_from_agent_and_seed(base: Path):
    def first(seed: int, agent: str) -> torch.Tensor:
        torch.manual_seed(hash((seed, agent)) % 2**31)  # the state of the process must not matter
        policy = load_team(SETTINGS, base, ("helper", "main"), seed=seed).policy_of(agent)
        return next(parameter for name, parameter in policy.trainable() if "lora_A" in name)

    assert torch.equal(first(0, "main"), first(0, "main"))
    assert not torch.equal(first(0, "main"), first(0, "helper"))
    assert not torch.equal(first(0, "main"), first(1, "main"))


def test_the_scale_is_alpha_over_rank(team: Team):
    model: Any = team.policy_of("main").model
    assert model.get_base_model().model.layers[0].self_attn.q_proj.scaling["default"] == 6.0 / 4


@pytest.mark.parametrize("target", ["q_prj", "embed_tokens", "norm", "lm_head"])  # the last one is tied
def test_a_target_that_is_no_linear_layer_is_named(base: Path, target: str):
    settings = EmbeddedPolicy.model_validate(
        {**TINY.model_dump(), "adapter": {"kind": "lora", "targets": ["q_proj", target]}}
    )
    with pytest.raises(
        PolicyError, match=rf"policy.adapter.targets: .* has no linear layer '{target}' of its own; it has down_proj"
    ):
        load_team(settings, base, ("main",))


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "mamba"])
def test_models_of_any_architecture_learn_through_adapters_and_merge(kind: str):
    base = random_policy(kind, attn_implementation=None).model
    plain, head = copy.deepcopy(base), base.get_output_embeddings()
    policy = Policy("main", attach(base, LoraAdapter(rank=2), "main", 0), tokenizer=None)  # type: ignore[arg-type]
    adapted: Any = policy.model
    linear = {name for name, module in plain.named_modules() if isinstance(module, torch.nn.Linear | Conv1D)}
    linear -= {name for name, module in base.named_modules() if module is head}
    linear -= {name for name in linear if name.endswith("mlp.router")}  # of Phi-3.5-MoE; it returns a pair
    assert {name for name, module in adapted.get_base_model().named_modules() if isinstance(module, Linear)} == linear
    _stir(policy)
    adapted(IDS).logits.log_softmax(-1)[0, -1, 5].neg().backward()
    assert all(parameter.grad is not None for _, parameter in policy.trainable())
    before = _logits(plain)
    plain.load_state_dict(merged_state(policy))
    assert torch.allclose(_logits(plain), _logits(adapted), atol=1e-3)
    assert not torch.allclose(_logits(plain), before, atol=1e-2)


@pytest.mark.parametrize(("kind", "named"), [("mixtral", "mlp.experts.gate_up_proj"), ("lfm2", ""), ("qwen3", "")])
def test_experts_that_get_no_adapter_are_named_once(kind: str, named: str, caplog: pytest.LogCaptureFixture):
    base = random_policy(kind).model
    for agent in ("helper", "main"):
        attach(base, LoraAdapter(), agent, 0)
    said = [record.getMessage() for record in caplog.records if "get no adapters" in record.getMessage()]
    assert len(said) == bool(named) and all(named in text for text in said)


def test_layers_that_peft_cannot_adapt_are_named():
    with pytest.raises(PolicyError, match=r"policy.adapter.targets: .*'out_proj'.*; name other layers, or set policy"):
        attach(random_policy("mamba").model, LoraAdapter(), "main", 0)
    adapted: Any = attach(random_policy("mamba").model, LoraAdapter(targets=("in_proj",)), "main", 0)
    assert sum(isinstance(module, Linear) for module in adapted.modules()) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_logits_and_gradients_are_those_of_peft(base: Path, dtype: torch.dtype, checkpointing: bool):
    def computed(plain_peft: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
        adapted: Any = attach(plain, LoraAdapter(rank=4), "main", 0)
        policy = Policy("main", adapted, tokenizer=None)  # type: ignore[arg-type]
        _stir(policy)
        kinds = {type(module) for module in adapted.modules() if isinstance(module, Linear)}
        assert kinds == {AdaptedLinear}
        if plain_peft:
            for module in adapted.modules():
                if isinstance(module, AdaptedLinear):
                    module.__class__ = Linear
        if checkpointing:
            adapted.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            adapted.train()
        with torch.autocast("cpu", dtype=dtype, enabled=dtype == torch.bfloat16):
            logits = adapted(IDS.repeat(2, 1)).logits.float()
        logits.log_softmax(-1)[:, -1, 5].sum().backward()
        return logits.detach(), [parameter.grad for _, parameter in policy.trainable() if parameter.grad is not None]

    (ours, gradients), (theirs, expected) = computed(False), computed(True)
    near = {"atol": 1e-5, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 0.05, "rtol": 0.05}
    torch.testing.assert_close(ours, theirs, **near)
    assert len(gradients) == len(expected) > 0
    for gradient, other in zip(gradients, expected, strict=True):
        assert gradient.dtype == torch.float32
        torch.testing.assert_close(gradient, other, **near)


def test_without_its_adapter_the_model_is_the_base(team: Team, base: Path):
    policy: Any = team.policy_of("main")
    _stir(policy)
    with policy.model.disable_adapter():
        plain = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
        assert torch.equal(_logits(policy.model), _logits(plain))
