"""Adapters of several agents on one base: exact, in one batch, and with one base in memory."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file

from pipeline_lib.memory import LEFT_BESIDE_PACKED
from pipeline_lib.policies.adapted_linear import attach
from pipeline_lib.policies.lora import merged_state, plain_model
from pipeline_lib.policies.policy import Policy
from pipeline_lib.rollouts import EngineError, Request, Sampling, kernels, shared_decoder, shared_prompts
from pipeline_lib.rollouts import decoder as decoder_module
from pipeline_lib.rollouts.shared_decoder import SharedDecoder
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.settings.policy import LoraAdapter
from tests.rollouts.tiny import FAST, policy, reference_logprobs

PROMPTS = [tuple(range(60, 60 + n)) for n in (4, 13, 40)]
SAMPLING = Sampling(max_new_tokens=9, temperature=0.9)


@pytest.fixture(autouse=True)
def small_bases_are_shared_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared_decoder, "SMALL_MODEL", 0)


def team(kind: str = "qwen3", **more) -> dict[str, Policy]:
    """Two agents with different adapters and a frozen one, on one base."""
    base = policy(kind, **more)
    found = {"frozen": replace(base, name="frozen", model=base.model.requires_grad_(False))}
    for number, (name, settings) in enumerate(
        {
            "helper": LoraAdapter(rank=4, alpha=8),
            "main": LoraAdapter(rank=3, targets=("q_proj", "v_proj", "down_proj")),
        }.items()
    ):
        model = attach(base.model, settings, name, seed=1)
        _move(model, number)
        found[name] = Policy(name=name, model=model.eval(), tokenizer=base.tokenizer)
    return found


def narrow_team(kind: str) -> dict[str, Policy]:
    """The same on a base in bfloat16."""
    agents = team(kind)
    for agent in agents.values():
        for name, parameter in agent.model.named_parameters():
            if ".lora_" not in name:
                parameter.data = parameter.data.bfloat16()
    return agents


def _move(model, seed: int) -> None:
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_" in name:
                parameter.normal_(std=0.2)


def _requests(names) -> list[Request]:
    return [Request(name, prompt, 3, seed) for seed, prompt in enumerate(PROMPTS) for name in names]


@pytest.mark.parametrize("kind", FAST)
def test_every_agent_acts_with_its_own_adapter_in_one_batch(kind: str):
    agents = team(kind)
    engine = TransformersEngine(rows=5)
    engine.load(agents)
    assert len({id(loaded) for loaded in engine._loaded.values()}) == 1
    requests = _requests(agents)
    found = engine.generate(requests, SAMPLING)
    for request, actions in zip(requests, found, strict=True):
        for action in actions:
            exact = reference_logprobs(agents[request.policy], request.prompt, action, SAMPLING)
            assert torch.allclose(torch.tensor(action.logprobs, dtype=torch.float64), exact.double(), atol=1e-4)
    alone = [engine.generate([request], SAMPLING)[0] for request in requests]
    assert [[a.ids for a in actions] for actions in alone] == [[a.ids for a in actions] for actions in found]
    assert len({actions[0].ids for actions in found[:3]}) > 1


@pytest.mark.parametrize("rows", [1, 64])
def test_actions_end_with_the_context(rows: int):
    """Beside a short prompt, prompts that leave room for one, two and three tokens."""
    agents = team()
    engine = TransformersEngine(rows=rows)
    engine.load(agents)
    lengths = {1: 95, 2: 94, 3: 93, SAMPLING.max_new_tokens: 20}
    requests = [
        Request(name, tuple(60 + (i * i + n) % 60 for i in range(n)), 3, seed)
        for seed, n in enumerate(lengths.values())
        for name in agents
    ]
    for request, actions in zip(requests, engine.generate(requests, SAMPLING), strict=True):
        room = next(most for most, length in lengths.items() if length == len(request.prompt))
        assert max(len(action.ids) for action in actions) == room
        for action in actions:
            exact = reference_logprobs(agents[request.policy], request.prompt, action, SAMPLING)
            assert torch.allclose(torch.tensor(action.logprobs, dtype=torch.float64), exact.double(), atol=1e-4)


def test_agents_on_one_base_have_a_forest(monkeypatch: pytest.MonkeyPatch):
    """Each node is computed below the adapter of its own agent."""
    agents = team("qwen2")
    decoder, owners = SharedDecoder([agents[name] for name in ("helper", "main")]), np.array([0, 1, 0, 1, 1])
    prompts = [PROMPTS[0], *PROMPTS, PROMPTS[1][:8]]
    with torch.inference_mode():
        rows = decoder.prefill(prompts, True, owners)
        monkeypatch.setattr(decoder, "_large", True)
        monkeypatch.setattr(decoder_module, "PLAIN_TOKENS", 4)
        found = decoder.prefill(prompts, True, owners)
    assert torch.allclose(rows.logits, found.logits, atol=1e-5)
    assert not torch.allclose(found.logits[0], found.logits[1], atol=1e-3)
    for number, prompt in enumerate(prompts):
        own, other = (p.cache.cells[:, :, number, :, : len(prompt)] for p in (rows, found))
        assert torch.allclose(own, other, atol=1e-5)


def test_single_tokens_are_remembered_by_agent():
    agents = team()
    engine = TransformersEngine()
    engine.load(agents)
    one = replace(SAMPLING, max_new_tokens=1)
    first = engine.generate(_requests(agents), one)
    assert engine.generate(_requests(agents), one) == first
    for request, actions in zip(_requests(agents), first, strict=True):
        exact = reference_logprobs(agents[request.policy], request.prompt, actions[0], one)
        assert torch.allclose(torch.tensor(actions[0].logprobs, dtype=torch.float64), exact.double(), atol=1e-4)


def test_an_update_is_seen_by_its_agent_alone_and_stale_weights_are_refused():
    agents = team()
    engine = TransformersEngine()
    engine.load(agents)
    before = engine.generate(_requests(agents), SAMPLING)
    _move(agents["main"].model, 7)
    agents["main"].version += 1
    with pytest.raises(EngineError, match="call update"):
        engine.generate(_requests(["main"]), SAMPLING)
    engine.update(agents["main"])
    after = engine.generate(_requests(agents), SAMPLING)
    for request, old, new in zip(_requests(agents), before, after, strict=True):
        assert (old == new) == (request.policy != "main")
    with pytest.raises(EngineError, match="another base"):
        engine.update(team()["main"])


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_there_is_one_base_in_memory(kind: str):
    agents = team(kind)
    logits = {name: one.model(torch.tensor([PROMPTS[1]])).logits for name, one in agents.items()}
    for _ in range(2):  # a second engine finds the base laid out
        engine = TransformersEngine()
        engine.load(agents)
        decoder = engine._loaded["main"].model
        assert isinstance(decoder, SharedDecoder) and decoder._weights is not None
        held = {tensor.untyped_storage().data_ptr() for layer in decoder._weights.layers
                for tensor in (layer.qkv, layer.out, layer.gate_up, layer.down)}  # fmt: skip
        for agent in agents.values():
            own = {
                parameter.untyped_storage().data_ptr()
                for name, parameter in plain_model(agent).named_parameters()
                if name.endswith("proj.weight") or name.endswith("base_layer.weight")
            }
            assert own == held
    for name, agent in agents.items():
        assert torch.equal(agent.model(torch.tensor([PROMPTS[1]])).logits, logits[name])


def test_merged_weights_can_be_saved_after_sampling(tmp_path):
    agents = team()
    TransformersEngine().load(agents)
    state = merged_state(agents["main"])
    state.pop("lm_head.weight")  # tied
    save_file({key: value.contiguous() for key, value in state.items()}, tmp_path / "merged.safetensors")


@pytest.mark.parametrize("intel", [True, False])  # it decides how slots attend
@pytest.mark.parametrize(("packs", "few"), [(True, 32), (False, 0), (False, 32)])
@pytest.mark.parametrize("kind", ["qwen3", "llama"])  # with norms of heads, and with biases
def test_bfloat16_bases_act_as_the_trainer_sees_them(
    intel: bool, packs: bool, few: int, kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shared_prompts, "on_intel", lambda: intel)
    monkeypatch.setattr(shared_decoder, "PACKED_FROM", 1 if packs else 100)
    monkeypatch.setattr(shared_decoder, "FEW_ROWS", few)
    packed: list[torch.Tensor] = []

    def watched(weight: torch.Tensor) -> torch.Tensor:
        packed.append(kernels.packed(weight))
        return packed[-1]

    monkeypatch.setattr(shared_decoder, "packed", watched)
    agents = narrow_team(kind)
    engine = TransformersEngine()
    engine.load(agents)
    found = engine.generate(_requests(agents), SAMPLING)
    off = []
    for request, actions in zip(_requests(agents), found, strict=True):
        for action in actions:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                exact = reference_logprobs(agents[request.policy], request.prompt, action, SAMPLING)
            off.append((torch.tensor(action.logprobs).double() - exact.double()).abs())
    assert torch.cat(off).mean() < 0.07  # single actions are off by up to 0.2
    decoder = engine._loaded["main"].model
    assert isinstance(decoder, SharedDecoder) and decoder._weights is decoder._base  # given back
    can = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert len(packed) == (4 * len(decoder._layers) + 1 if can and packs else 0)
    assert all(weight.is_mkldnn for weight in packed)


def test_packed_matrices_have_the_present_adapters_in_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared_decoder, "PACKED_FROM", 1)
    agents = narrow_team("llama")
    engine = TransformersEngine()
    engine.load(agents)
    decoder = engine._loaded["main"].model
    assert isinstance(decoder, SharedDecoder)
    before = engine.generate(_requests(agents), SAMPLING)
    decoder.reserve(4, 60, 32)  # a call that ended without giving its memory back
    for number, name in enumerate(("helper", "main")):
        _move(agents[name].model, 7 + number)
        engine.update(agents[name])
    assert decoder._weights is decoder._base
    after = engine.generate(_requests(agents), SAMPLING)
    fresh = TransformersEngine()
    fresh.load(agents)
    assert after == fresh.generate(_requests(agents), SAMPLING) != before


def test_own_temperatures_are_drawn_apart():
    agents = team()
    engine = TransformersEngine()
    engine.load(agents)
    own = replace(SAMPLING, temperatures=(("main", 0.5),))
    found = engine.generate(_requests(agents), own)
    for request, actions in zip(_requests(agents), found, strict=True):
        exact = reference_logprobs(agents[request.policy], request.prompt, actions[0], own.of(request.policy))
        assert torch.allclose(torch.tensor(actions[0].logprobs).double(), exact.double(), atol=1e-4)


def test_matrices_are_packed_if_there_is_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared_decoder, "PackedKernels", kernels.Kernels)  # as float32, which packs nothing
    agents, engine = team(), TransformersEngine()
    engine.load(agents)
    decoder = engine._loaded["main"].model
    assert isinstance(decoder, SharedDecoder)
    matrices = [
        tensor for layer in decoder._base.layers for tensor in (layer.qkv, layer.out, layer.gate_up, layer.down)
    ]
    expand = [delta.expand.to(decoder.dtype) for deltas in decoder._deltas for delta in deltas.values()]
    size = sum(tensor.nbytes for tensor in (*matrices, *expand, decoder._base.head))
    packed: list[torch.Tensor] = []
    monkeypatch.setattr(shared_decoder, "packed", lambda weight: packed.append(weight) or weight)
    least = size + LEFT_BESIDE_PACKED
    for free, drawn, count in ((least, 32, 0), (least + 1, 31, 0), (least + 1, 32, len(matrices) + 1)):
        monkeypatch.setattr(shared_decoder, "free_memory", lambda free=free: free)
        decoder.reserve(4, 60, drawn)
        decoder.free()
        assert len(packed) == count
        packed.clear()


@pytest.mark.parametrize("kind", ["gpt2", "gemma2"])
def test_other_architectures_sample_from_the_trained_model_itself(kind: str):
    base = policy(kind)
    target = ("c_attn",) if kind == "gpt2" else ("q_proj", "down_proj")
    config = LoraConfig(r=4, target_modules=list(target), task_type="CAUSAL_LM", fan_in_fan_out=kind == "gpt2")
    model = get_peft_model(base.model, config)
    _move(model, 3)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    agent = Policy(name="team", model=model, tokenizer=base.tokenizer)
    engine = TransformersEngine()
    engine.load({"team": agent})
    for step in range(2):
        found = engine.generate(_requests(["team"]), SAMPLING)
        model.eval()
        for request, actions in zip(_requests(["team"]), found, strict=True):
            exact = reference_logprobs(agent, request.prompt, actions[0], SAMPLING)
            assert torch.allclose(torch.tensor(actions[0].logprobs).double(), exact.double(), atol=1e-4)
        model.train()
        _move(model, 4 + step)
        agent.version += 1
        engine.update(agent)
