"""Token log-probabilities against a plain forward pass over everything."""

from typing import Any

import pytest
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from pipeline_lib.rollouts.engine import Request, Sampling
from pipeline_lib.rollouts.sampling import scaled_logits
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.settings.train import LossSettings
from pipeline_lib.training import logprobs as module
from pipeline_lib.training.batch import WeightedAction, build
from pipeline_lib.training.logprobs import TokenScorer
from pipeline_lib.training.packing import MicroBatch, micro_batches
from pipeline_lib.training.tree_attention import NAME
from tests.rollouts.tiny import policy as tiny_policy
from tests.training.conftest import add_lora, make_model, make_team

SHARP = Sampling(temperature=0.6, top_p=0.9, top_k=9)
SIZE: dict[str, Any] = {
    "vocab_size": 16,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 64,
}


def models() -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "qwen3": make_model(),
        "qwen3-lora": add_lora(make_model()),
        "qwen2": Qwen2ForCausalLM(Qwen2Config(**SIZE)).eval(),
        "llama": LlamaForCausalLM(LlamaConfig(**SIZE)).eval(),
        # soft-capped logits: decoder plus output layer are not the model
        "gemma2": Gemma2ForCausalLM(Gemma2Config(**SIZE, final_logit_softcapping=0.5, query_pre_attn_scalar=16)).eval(),
    }


def sharpened(model: Any) -> Any:
    """Scale the output layer, so that the distribution is far from uniform and filters bite."""
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(6)
    return model


ROWS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), (8, 9, 10, 1)),
    ((2, 3, 4), (9, 1)),
    ((5,), (8,)),
    ((5,), (9,)),
    ((2, 3), (8, 9, 11, 5, 1)),
    ((2, 3), (8, 7, 1)),
]


def passes(rows: list[tuple[tuple[int, ...], tuple[int, ...]]], budget: int, share: bool) -> list[MicroBatch]:
    batch = build([WeightedAction(p, a, (0.0,) * len(a), 1.0, 1.0) for p, a in rows], 1.0, LossSettings())
    return micro_batches(batch, budget, share)


def score(model: Any, sampling: Sampling, budget: int = 4096, share: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities and entropies of `ROWS`, all tokens in order."""
    size = sum(len(action) for _, action in ROWS)
    found, entropy = torch.zeros(size), torch.zeros(size)
    for cut in passes(ROWS, budget, share):
        values, spread = TokenScorer(model, sampling)(cut, True)
        found[cut.tokens], entropy[cut.tokens] = values[cut.edges], spread[cut.edges]
    return found, entropy


def naive(model: Any, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    values, spread = [], []
    for prompt, action in ROWS:
        logits = model(input_ids=torch.tensor([prompt + action])).logits[0, len(prompt) - 1 : -1]
        drawn = torch.tensor(action)
        values.append(scaled_logits(logits, sampling, keep=drawn).log_softmax(-1).gather(-1, drawn[:, None])[:, 0])
        full = (logits.float() / sampling.temperature).log_softmax(-1)
        spread.append(-(full.exp() * full).sum(-1))
    return torch.cat(values), torch.cat(spread)


@pytest.mark.parametrize("name", ["qwen3", "qwen3-lora", "qwen2", "llama", "gemma2"])
@pytest.mark.parametrize("attention", ["eager", "sdpa", NAME])
@pytest.mark.parametrize("budget", [1, 9, 4096])
def test_equal_to_one_row_at_a_time_for_every_architecture(name: str, attention: str, budget: int) -> None:
    """Padding, other rows of the pass, and other branches of a tree cannot be seen."""
    model = sharpened(models()[name])
    model.set_attn_implementation(attention)
    for share in (False, True) if TokenScorer(model, Sampling()).shares else (False,):
        for sampling in (Sampling(), SHARP):
            found, _ = score(model, sampling, budget, share)
            assert torch.allclose(found, naive(model, sampling)[0], atol=1e-5)
        _, entropy = score(model, Sampling(temperature=0.7), budget, share)
        assert torch.allclose(entropy, naive(model, Sampling(temperature=0.7))[1], atol=1e-5)


def test_only_models_that_see_everything_attend_to_trees() -> None:
    assert {name: TokenScorer(model, Sampling()).shares for name, model in models().items()} == {
        "qwen3": True,
        "qwen3-lora": True,
        "qwen2": True,
        "llama": True,
        "gemma2": False,  # every other layer sees a window of recent positions
    }
    windowed = MistralForCausalLM(MistralConfig(**SIZE, sliding_window=8)).eval()
    assert not TokenScorer(windowed, Sampling()).shares
    recurrent = MambaForCausalLM(MambaConfig(vocab_size=16, hidden_size=16, num_hidden_layers=1)).eval()
    assert not TokenScorer(recurrent, Sampling()).shares
    assert not TokenScorer(tiny_policy("bloom").model, Sampling()).shares  # it takes no mask for each pair of tokens
    assert not TokenScorer(tiny_policy("mpt").model, Sampling()).shares  # it counts distances by columns
    blind = make_model()
    blind.config._attn_implementation = "flash_attention_2"
    assert not module._attends_to_trees(blind)


def test_output_layer_is_applied_apart_only_where_that_is_the_model() -> None:
    found = {name: TokenScorer(model, Sampling()).split for name, model in models().items()}
    assert found == {"qwen3": True, "qwen3-lora": True, "qwen2": True, "llama": True, "gemma2": False}


def test_temperature_and_filters_are_part_of_the_distribution() -> None:
    """The public code samples at 0.6 and takes log-probabilities at 1 (off by nats)."""
    model = sharpened(make_model())
    plain, _ = score(model, Sampling())
    for sampling in (Sampling(temperature=0.6), Sampling(top_k=3), Sampling(top_p=0.5)):
        assert (score(model, sampling)[0] - plain).abs().max() > 0.05


def test_entropy_of_a_filtered_distribution_is_finite_and_smaller() -> None:
    model = sharpened(make_model())
    _, filtered = score(model, Sampling(top_k=3))
    _, full = score(model, Sampling())
    assert torch.isfinite(filtered).all()
    assert (filtered <= torch.log(torch.tensor(4.0))).all()  # three kept, and the drawn one
    assert filtered.sum() < full.sum()


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("lora", [False, True])
def test_chunks_change_neither_values_nor_gradients(monkeypatch: pytest.MonkeyPatch, lora: bool, entropy: bool) -> None:
    def run() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        model = sharpened(make_model())
        model = add_lora(model) if lora else model
        torch.manual_seed(1)
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        for name, parameter in trained.items():  # an adapter that does something
            parameter.data += 0.1 * torch.randn(parameter.shape) * ("lora_" in name)
        (cut,) = passes(ROWS, 4096, True)
        values, spread = TokenScorer(model, SHARP)(cut, entropy)
        weights = torch.linspace(-1, 1, len(values))  # every log-probability counts differently
        ((values * weights).sum() + (spread.sum() if spread is not None else 0)).backward()
        return values, {name: p.grad for name, p in trained.items()}

    whole = run()
    monkeypatch.setattr(module, "LOGITS_CHUNK", 2 * 16)  # two positions at a time
    parts = run()
    assert torch.allclose(whole[0], parts[0], atol=1e-6)
    assert whole[1].keys() == parts[1].keys() and max(g.abs().max() for g in whole[1].values()) > 0.1
    for name, gradient in whole[1].items():
        assert torch.allclose(gradient, parts[1][name], atol=1e-5), name


def test_hidden_states_in_float32_go_through_a_narrow_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a norm that autocast computes in float32."""
    model = add_lora(make_model(spread=0.5).bfloat16())
    scorer = TokenScorer(model, Sampling())
    model.get_base_model().model.norm.register_forward_hook(lambda module, given, found: found.float())
    (cut,) = passes(ROWS, 4096, True)
    with torch.autocast("cpu", torch.bfloat16):
        whole, _ = scorer(cut)
        monkeypatch.setattr(module, "LOGITS_CHUNK", 2 * 16)
        parts, _ = scorer(cut)
    parts.sum().backward()
    assert torch.allclose(whole, parts, atol=0.05) and whole.std() > 0.5


@pytest.mark.parametrize("lora", [False, True])
def test_chunking_bounds_the_logits_that_exist_at_once(monkeypatch: pytest.MonkeyPatch, lora: bool) -> None:
    """With a large vocabulary, no more than `LOGITS_CHUNK` logits are made at once; below a frozen layer only once."""
    monkeypatch.setattr(module, "LOGITS_CHUNK", 3 * 1000)
    model = make_model(vocabulary=1000)
    sizes: list[int] = []
    scorer = TokenScorer(add_lora(model) if lora else model, Sampling())
    original = module.scaled_logits
    monkeypatch.setattr(
        module,
        "scaled_logits",
        lambda logits, *more, **named: sizes.append(logits.numel()) or original(logits, *more, **named),
    )
    (cut,) = passes([((2, 3), tuple(range(1, 20))), ((4, 5), tuple(range(20, 39)))], 4096, True)
    scorer(cut)[0].sum().backward()
    assert max(sizes) <= 3 * 1000
    assert sum(sizes) == (1 if lora else 2) * 38 * 1000  # trained: again in the backward pass


@pytest.mark.parametrize("lora", [False, True])
def test_engine_and_trainer_agree(lora: bool) -> None:
    team = make_team(lora=lora)
    policy = team.policies["one"]
    if lora:
        with torch.no_grad():
            for _, parameter in policy.trainable():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
    else:
        sharpened(policy.model)
    for sampling in (Sampling(max_new_tokens=8), Sampling(0.7, 0.9, 9, 8)):
        engine = TransformersEngine(rows=8)
        engine.load(team.policies)
        (actions,) = engine.generate([Request("one", (2, 3), 16, 1)], sampling)
        batch = build([WeightedAction((2, 3), a.ids, a.logprobs, 1.0, 1.0) for a in actions], 1.0, LossSettings())
        for cut in micro_batches(batch, 64):
            values, _ = TokenScorer(policy.model, sampling)(cut)
            assert (values - cut.behaviour).abs().max() < 1e-4


def test_the_checks_hold_in_bfloat16() -> None:
    """Rounding there is coarse enough to hide a soft cap, or a mask that is ignored, from a tolerance."""
    found = {name: TokenScorer(model.bfloat16(), Sampling()) for name, model in models().items()}
    assert [name for name, scorer in found.items() if not scorer.split] == ["gemma2"]
    assert [name for name, scorer in found.items() if not scorer.shares] == ["gemma2"]
