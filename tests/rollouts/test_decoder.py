import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Cache

from pipeline_lib.policies.adapted_linear import attach
from pipeline_lib.policies.computing import cpu_numerics
from pipeline_lib.rollouts import EngineError, Request, Sampling, shared_prompts
from pipeline_lib.rollouts.actions import decode_all
from pipeline_lib.rollouts.decoder import FusedDecoder, unsupported
from pipeline_lib.rollouts.generic_model import GenericModel
from pipeline_lib.rollouts.rollout_model import RolloutModel
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.settings.policy import LoraAdapter
from tests.rollouts.tiny import CONFIGS, FAST, policy, reference_logits


def test_fast_path_serves_the_architectures_it_names_and_says_why_not() -> None:
    assert {kind: unsupported(policy(kind).model) for kind in FAST} == dict.fromkeys(FAST)
    assert unsupported(policy("gpt2").model) == "architecture GPT2LMHeadModel"
    window = policy("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=0)
    assert unsupported(window.model) == "sliding-window attention"
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    assert unsupported(policy("llama", rope_parameters=rope).model) == "rotary embedding dynamic"
    assert unsupported(policy("llama", hidden_act="gelu").model) == "activation gelu"


@pytest.mark.parametrize("kind", ["sliding", "dynamic"])
def test_models_outside_the_fast_path_are_served_all_the_same(kind: str) -> None:
    team = {
        "sliding": lambda: policy("qwen2", use_sliding_window=True, sliding_window=6, max_window_layers=0),
        "dynamic": lambda: policy(
            "llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
        ),
    }[kind]()
    engine = TransformersEngine()
    engine.load({"team": team})
    prompts = [tuple(range(60, 60 + n)) for n in (4, 13)]
    found = engine.generate([Request("team", p, 2, 1) for p in prompts], Sampling(max_new_tokens=9))
    for prompt, actions in zip(prompts, found, strict=True):
        for action in actions:
            exact = reference_logits(team, prompt, action.ids).log_softmax(-1)
            exact = exact.gather(1, torch.tensor(action.ids)[:, None])[:, 0]
            assert torch.allclose(torch.tensor(action.logprobs), exact, atol=1e-4)


@pytest.mark.parametrize("kind", [*FAST, "gpt2", "gemma2", "mamba"])
def test_slots_hold_what_was_placed_moved_and_appended(kind: str) -> None:
    """Forks, moves and growth in any order give the logits of a whole forward pass."""
    team = policy(kind)
    fused = kind in FAST
    model: RolloutModel = FusedDecoder(team.model, torch.float32) if fused else GenericModel(team.model, torch.float32)
    model.refresh(team.model.state_dict())
    prompts = [(5, 6, 7), (8,), tuple(range(30, 51))]
    with torch.inference_mode():
        prefill = model.prefill(prompts, keep=True)
        for prompt, row in zip(prompts, prefill.logits, strict=True):
            assert torch.allclose(row, reference_logits(team, prompt, (0,))[0], atol=1e-4)
        model.reserve(8, 60, 40)
        model.place(prefill, np.array([2, 0, 1, 0]), np.array([0, 3, 1, 2]))
        held = [prompts[2], prompts[1], prompts[0], prompts[0]]
        model.move(np.array([], dtype=np.int64), np.array([], dtype=np.int64), 4)
        rng = np.random.default_rng(0)
        for step in range(14):
            tokens = rng.integers(0, 250, len(held))
            positions = np.array([len(ids) for ids in held])
            logits = model.step(tokens, positions)
            held = [(*ids, int(t)) for ids, t in zip(held, tokens, strict=True)]
            for ids, row in zip(held, logits, strict=True):
                assert torch.allclose(row, reference_logits(team, ids, (0,))[0], atol=2e-4)
            if step == 3:  # slot 1 ends; slot 0 forks into it and into a new slot
                model.move(np.array([0, 0]), np.array([1, 4]), 5)
                held = [held[0], held[0], held[2], held[3], held[0]]
            if step == 9:  # slots 0 and 2 end; the last two take their places
                model.move(np.array([4, 3]), np.array([0, 2]), 3)
                held = [held[4], held[1], held[3]]


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "gpt2"])
@pytest.mark.parametrize("intel", [True, False])  # it decides how slots attend
def test_bfloat16_copies_of_float32_policies(kind: str, intel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_prompts, "on_intel", lambda: intel)
    team = policy(kind, spread=1.0)
    engine = TransformersEngine(dtype=torch.bfloat16)
    engine.load({"team": team})
    actions = engine.generate([Request("team", (1, 2, 3), 8, 0)], Sampling(max_new_tokens=12))[0]
    off = []
    for action in actions:
        exact = reference_logits(team, (1, 2, 3), action.ids).log_softmax(-1)
        off.append(torch.tensor(action.logprobs) - exact.gather(1, torch.tensor(action.ids)[:, None])[:, 0])
    error = torch.cat(off).abs()
    assert 1e-4 < float(error.mean()) < 0.1  # bf16 it is, and close


@pytest.mark.parametrize("fast", [True, False])
def test_adapters_are_merged_into_the_copy_and_not_into_the_policy(fast: bool) -> None:
    team = policy("qwen3")
    base = {name: tensor.clone() for name, tensor in team.model.state_dict().items()}
    team.model = get_peft_model(team.model, LoraConfig(r=4, target_modules=["q_proj", "down_proj"]))
    with torch.no_grad():
        for name, parameter in team.model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.3)
    engine = TransformersEngine(fast=fast)
    engine.load({"team": team})
    actions = engine.generate([Request("team", (1, 2, 3), 4, 0)], Sampling(max_new_tokens=8))[0]
    for action in actions:
        exact = reference_logits(team, (1, 2, 3), action.ids).log_softmax(-1)
        found = torch.tensor(action.logprobs)
        assert torch.allclose(found, exact.gather(1, torch.tensor(action.ids)[:, None])[:, 0], atol=1e-4)
    for name, tensor in team.model.get_base_model().state_dict().items():
        if "lora_" not in name:
            assert torch.equal(tensor, base[name.replace(".base_layer", "")])


def test_a_model_in_training_is_sampled_with_its_cache() -> None:
    """Under gradient checkpointing transformers makes none."""
    model = attach(policy("gemma2").model, LoraAdapter(), "team", 0)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    taken = GenericModel(model, torch.float32)
    assert taken.live and isinstance(taken.prefill([(5, 6, 7)], keep=True).cache[0], Cache) and model.training


@pytest.mark.parametrize("kind", ["gemma2", "mamba"])
def test_logits_are_computed_for_the_last_token_only(kind: str) -> None:
    """Those of whole prompts took 1.5 GiB with 262,145 tokens in the vocabulary."""
    model = policy(kind).model
    shapes = []
    model.get_output_embeddings().register_forward_hook(lambda head, given, out: shapes.append(out.shape[1]))
    taken = GenericModel(model, torch.float32)
    shapes.clear()
    with torch.inference_mode():
        logits = taken.prefill([(5, 6, 7), (8, 9)], keep=False).logits
    assert set(shapes) == {1} and logits.shape == (2, taken.vocabulary)


@pytest.mark.parametrize("fast", [True, False])
def test_weights_of_another_shape_are_refused(fast: bool) -> None:
    engine = TransformersEngine(fast=fast)
    engine.load({"team": policy("qwen3")})
    with pytest.raises(
        EngineError, match=r"'team' has other weights .* model\.layers\.1.* None, the copy \(.*call load"
    ):
        engine.update(policy("qwen3", num_hidden_layers=1))
    with pytest.raises(EngineError, match="'main' is not loaded"):
        engine.update(policy("qwen3", name="main"))


@pytest.mark.parametrize("change", ["lacks", "adds", "renames"])
def test_weights_under_other_names_never_leave_the_old_ones_in_place(change: str) -> None:
    model = GenericModel(policy("gpt2").model, torch.float32)
    state = dict(policy("gpt2", seed=1).model.state_dict())
    name = "transformer.h.0.ln_1.weight"
    if change != "adds":
        weight = state.pop(name)
    if change != "lacks":
        state[f"base_model.{name}"] = weight if change == "renames" else state[name]
    with pytest.raises(EngineError, match=r"h\.0\.ln_1\.weight: a weight of the (rollout copy|policy) alone"):
        model.refresh(state)


def test_engine_leaves_process_wide_settings_alone() -> None:
    before = (torch.get_float32_matmul_precision(), torch.get_num_threads(), torch.random.get_rng_state())
    engine = TransformersEngine()
    engine.load({"team": policy("qwen3")})
    state = torch.random.get_rng_state()
    engine.generate([Request("team", (1, 2, 3), 4, 0)], Sampling(max_new_tokens=8))
    assert torch.equal(state, torch.random.get_rng_state())
    assert before[:2] == (torch.get_float32_matmul_precision(), torch.get_num_threads())


def test_log_probabilities_stay_exact_with_the_products_of_training() -> None:
    with cpu_numerics():
        team = policy("qwen3", spread=1.0, hidden_size=128, head_dim=32)
        engine = TransformersEngine()
        engine.load({"team": team})
        actions = engine.generate([Request("team", (1, 2, 3), 64, 0)], Sampling(max_new_tokens=20))[0]
    for action in actions[:8]:
        exact = reference_logits(team, (1, 2, 3), action.ids).log_softmax(-1)
        found = torch.tensor(action.logprobs)
        assert torch.allclose(found, exact.gather(1, torch.tensor(action.ids)[:, None])[:, 0], atol=2e-5)


def test_texts_are_those_of_the_policy() -> None:
    team = policy("qwen3")
    sequences = [(72, 105), (256,), (), tuple(range(200)), (256, 33, 256)]
    assert decode_all(team, sequences) == [team.decode(ids) for ids in sequences]
    assert set(CONFIGS) >= set(FAST)
