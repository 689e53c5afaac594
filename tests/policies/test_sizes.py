"""Sizes from a configuration alone, against the models that transformers makes of it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Mamba2Config
from transformers.pytorch_utils import Conv1D

from pipeline_lib.policies.embedded import make_config
from pipeline_lib.policies.model_config import NAMED, load_config
from pipeline_lib.policies.policy import PolicyError
from pipeline_lib.policies.sizes import Sizes, embedded_sizes, known_sizes, sizes_of
from pipeline_lib.settings.policy import EmbeddedPolicy, PretrainedPolicy
from pipeline_lib.storage import write_json

SHAPE: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**SHAPE, "model_type": "llama", "tie_word_embeddings": True},
    "llama, own head": {**SHAPE, "model_type": "llama", "tie_word_embeddings": False},
    "llama, biases": {**SHAPE, "model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "qwen2": {**SHAPE, "model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {**SHAPE, "model_type": "qwen3", "head_dim": 16},
    "gemma2": {**SHAPE, "model_type": "gemma2", "head_dim": 16, "final_logit_softcapping": 30.0},
    "mistral": {**SHAPE, "model_type": "mistral"},
    "gpt2": {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64, "n_positions": 32},
}


def made(config: Any) -> tuple[int, dict[str, list[tuple[int, int]]]]:
    """Return the parameters of the model and its linear layers below the head."""
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    linear: dict[str, list[tuple[int, int]]] = {}
    for path, module in model.named_modules():
        name = path.rpartition(".")[2]
        if isinstance(module, torch.nn.Linear) and path != "lm_head":
            linear.setdefault(name, []).append((module.in_features, module.out_features))
        elif isinstance(module, Conv1D):
            linear.setdefault(name, []).append((module.nx, module.nf))
    return sum(p.numel() for p in model.parameters()), linear


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_tells_the_sizes_of_the_model(name: str) -> None:
    sizes = sizes_of(CONFIGS[name])
    assert (sizes.parameters, sizes.linear) == made(AutoConfig.for_model(**CONFIGS[name]))
    assert sizes.fused == name.startswith(("llama", "qwen")) and sizes.whole_logits == (name == "gemma2")


def test_a_configuration_with_infinity_is_read_from_its_file(tmp_path: Path) -> None:
    """JSON has no infinity; Mamba-2's configuration has one."""
    config = Mamba2Config(hidden_size=32, num_hidden_layers=2, vocab_size=64, num_heads=8, head_dim=8, n_groups=2)
    config.save_pretrained(tmp_path)
    assert sizes_of(load_config(str(tmp_path), "main") or {}).parameters == made(config)[0]


def test_the_embedded_model_has_the_sizes_that_its_section_tells() -> None:
    section = EmbeddedPolicy(hidden_size=64, layers=3, heads=4, kv_heads=1, mlp_size=96, vocabulary=300)
    sizes = embedded_sizes(section)
    assert (sizes.parameters, sizes.linear) == made(make_config(section, 300))
    assert (sizes.query, sizes.kv, sizes.context) == (64, 16, section.context)


def test_agents_on_one_model_have_one_object_and_others_their_own(tmp_path: Any) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "config.json", CONFIGS["llama"])
    paths = tuple(str(tmp_path / name) for name in ("first", "second"))
    one = known_sizes(PretrainedPolicy(models=paths[:1]), ("a", "b"))
    assert one is not None and one["a"] is one["b"]
    two = known_sizes(PretrainedPolicy(models=paths), ("a", "b"))
    assert two is not None and two["a"] == two["b"] and two["a"] is not two["b"]


def test_what_is_not_at_hand_is_not_known_and_a_missing_file_is_said(tmp_path: Any) -> None:
    assert known_sizes(PretrainedPolicy(models=("nobody/has-this-model",)), ("a",)) is None
    assert known_sizes(PretrainedPolicy(models=(str(tmp_path),)), ("a",)) is None
    with pytest.raises(PolicyError, match="there is no such file"):
        known_sizes(PretrainedPolicy(models=("missing.gguf",)), ("a",))
    write_json(tmp_path / "config.json", {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]})
    with pytest.raises(PolicyError, match=r"describes no causal language model that transformers .*T5Config"):
        known_sizes(PretrainedPolicy(models=(str(tmp_path),)), ("a",))


@pytest.mark.parametrize("name", NAMED)
def test_a_named_model_is_known_before_it_is_fetched(name: str) -> None:
    config = load_config(name, "main")
    assert config is not None
    sizes = sizes_of(config)
    assert isinstance(sizes, Sizes) and sizes.parameters == 134_515_008 and sizes.vocabulary == 49_152
