"""Weights that are read in another type than the file's: the same as transformers reads, in less memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    PreTrainedConfig,
    Qwen2MoeConfig,
)

from pipeline_lib.policies.model_config import load_config
from pipeline_lib.policies.policy import PolicyError
from pipeline_lib.policies.pretrained import describe_models, load_model, load_tokenizer
from pipeline_lib.policies.weight_files import converted_weights
from pipeline_lib.settings.policy import PretrainedPolicy

SMALL: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512}
FEED_FORWARD = SMALL | {"intermediate_size": 96}
CONFIGS: list[PreTrainedConfig] = [
    LlamaConfig(**FEED_FORWARD, eos_token_id=[3, 5]),
    LlamaConfig(**FEED_FORWARD, tie_word_embeddings=True),
    GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=512),
    BloomConfig(hidden_size=64, n_layer=2, n_head=4, vocab_size=512),
    MixtralConfig(**FEED_FORWARD, num_local_experts=4),  # whose experts' matrices transformers joins
    Qwen2MoeConfig(**FEED_FORWARD, moe_intermediate_size=48, shared_expert_intermediate_size=48, num_experts=4),
]


@pytest.fixture(params=CONFIGS, ids=lambda config: config.model_type)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(request.param).save_pretrained(tmp_path, max_shard_size="100KB")
    return tmp_path


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
def test_a_model_is_the_one_that_transformers_loads(folder: Path, dtype: torch.dtype) -> None:
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert (converted_weights(folder, dtype) is None) == (dtype == torch.float32)
    own = load_model(str(folder), "main", dtype, "auto")
    other = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    weights, expected = own.state_dict(), other.state_dict()
    assert list(weights) == list(expected) and type(own) is type(other)
    assert all(value.dtype == dtype and torch.equal(value, expected[name]) for name, value in weights.items())
    assert own.config.to_dict() == other.config.to_dict() and own.name_or_path == other.name_or_path
    assert own.generation_config.to_dict() == other.generation_config.to_dict()
    assert sum(1 for _ in own.parameters()) == sum(1 for _ in other.parameters()), "ties are kept"


def test_a_file_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    AutoModelForCausalLM.from_config(CONFIGS[0]).save_pretrained(tmp_path, max_shard_size="100KB")
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    whole = (tmp_path / names[1]).read_bytes()
    for content in (whole[:-9], b"", None):
        (tmp_path / names[1]).unlink()
        if content is not None:
            (tmp_path / names[1]).write_bytes(content)
        with pytest.raises(PolicyError, match=names[1]):
            load_model(str(tmp_path), "main", torch.bfloat16, "auto")
        (tmp_path / names[1]).write_bytes(whole)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}}))
    with pytest.raises(PolicyError, match=r"policy\.models"):
        load_model(str(tmp_path), "main", torch.bfloat16, "auto")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
def test_weights_that_are_missing_or_no_numbers_are_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    """transformers draws missing ones at random, others in every process."""
    model = AutoModelForCausalLM.from_config(CONFIGS[0])
    whole = dict(model.state_dict())
    name = "model.layers.1.mlp.up_proj.weight"
    (tmp_path / "no number").mkdir()
    infinite = {**whole, name: whole[name].clone().index_fill_(0, torch.tensor([3]), torch.nan)}
    model.save_pretrained(tmp_path / "no number", state_dict=infinite)
    with pytest.raises(PolicyError, match=rf"{name} has values that are no finite numbers"):
        load_model(str(tmp_path / "no number"), "main", dtype, "auto")
    model.save_pretrained(tmp_path / "missing", state_dict={key: value for key, value in whole.items() if key != name})
    with pytest.raises(
        PolicyError, match=rf"weights that config.json asks for are not in the files \(1, such as {name}\)"
    ):
        load_model(str(tmp_path / "missing"), "main", dtype, "auto")
    config = tmp_path / "whole" / "config.json"
    model.save_pretrained(config.parent)
    config.write_text(config.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    with pytest.raises(PolicyError, match=r"are not in the files \(9, such as model\.layers\.2"):
        load_model(str(config.parent), "main", dtype, "auto")
    config.write_text(config.read_text().replace('"num_hidden_layers": 3', '"num_hidden_layers": 1'))
    with pytest.raises(PolicyError, match=r"layers, biases or scales .* not describe \(9, such as model\.layers\.1"):
        load_model(str(config.parent), "main", dtype, "auto")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("config", "name", "refused"),
    [
        (0, "model.layers.1.self_attn.q_proj.bias", True),
        (0, "model.layers.0.mlp.up_proj.weight_scale_inv", True),  # of weights in eight bits
        (0, "value_head.weight", False),  # of another task
        (0, "model.layers.0.self_attn.rotary_emb.inv_freq", False),
        (2, "transformer.h.0.attn.bias", False),  # masks, which older releases saved
        (2, "transformer.h.0.attn.masked_bias", False),
    ],
)
def test_weights_that_a_module_has_no_place_for_are_refused(
    tmp_path: Path, dtype: torch.dtype, config: int, name: str, refused: bool
) -> None:
    """transformers leaves them out."""
    model = AutoModelForCausalLM.from_config(CONFIGS[config])
    model.save_pretrained(tmp_path, state_dict={**model.state_dict(), name: torch.ones(64)})
    if refused:
        with pytest.raises(PolicyError, match=rf"{tmp_path}: .* config.json does not describe \(1, such as {name}\)"):
            load_model(str(tmp_path), "main", dtype, "auto")
    else:
        load_model(str(tmp_path), "main", dtype, "auto")


def test_an_adapter_alone_or_beside_a_model_is_refused(tmp_path: Path) -> None:
    """transformers adds it to some of the agents' models, and not to others."""
    model: Any = AutoModelForCausalLM.from_config(CONFIGS[0])
    get_peft_model(model, LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")).save_pretrained(str(tmp_path))
    for held in (r"an adapter \(adapter_config.json\) and no model", r"a model and an adapter"):
        for load in (lambda: load_model(str(tmp_path), "main", torch.float32, "auto"), lambda: config_of(tmp_path)):
            with pytest.raises(PolicyError, match=rf"policy.models: {tmp_path}: it holds {held}.* Merge the adapter"):
                load()
        AutoModelForCausalLM.from_config(CONFIGS[0]).save_pretrained(tmp_path)


def config_of(folder: Path) -> Any:
    return load_config(str(folder), "main")


def test_a_limit_on_attention_scores_is_never_left_out(tmp_path: Path) -> None:
    """sdpa of transformers ignores that of Gemma 2."""
    config = Gemma2Config(**FEED_FORWARD, num_key_value_heads=2, head_dim=16, attn_logit_softcapping=0.5)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    for asked in ("auto", "eager"):
        assert load_model(str(tmp_path), "main", torch.float32, asked).config._attn_implementation == "eager"
    with pytest.raises(PolicyError, match=rf"policy.attention: {tmp_path} .* auto, eager or flash_attention_2"):
        load_model(str(tmp_path), "main", torch.float32, "sdpa")
    with pytest.raises(PolicyError, match=r"policy\.attention"):  # already where the base is made
        describe_models(PretrainedPolicy(models=(str(tmp_path),), attention="sdpa"))


def test_code_in_a_folder_is_refused_without_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": names}))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}})
    )
    (tmp_path / "own.py").write_text("raise SystemExit('was run')")
    questions: list[str] = []
    monkeypatch.setattr("builtins.input", lambda text="": questions.append(text) or "n")
    for load in (lambda: load_model(str(tmp_path), "main", torch.float32, "auto"), lambda: tokenizer_of(tmp_path)):
        with pytest.raises(PolicyError, match=r"cannot be loaded \(.* custom code"):
            load()
    assert not questions


def tokenizer_of(folder: Path) -> Any:
    return load_tokenizer(str(folder), "main")


MEASURED = """
import re, sys
from pathlib import Path
import torch
from pipeline_lib.policies import pretrained, weight_files

def most():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) >> 10

weight_files._PART = 16 * 2**20
before = most()
model = pretrained.load_model(sys.argv[1], "main", torch.bfloat16, "auto")
print(most() - before, sum(p.numel() for p in model.parameters()) * 2 >> 20)
"""


def test_a_model_in_bfloat16_is_held_once_while_it_is_loaded(tmp_path: Path) -> None:
    """With transformers alone it takes 3.2 times its own size: the whole file is mapped."""
    config = LlamaConfig(hidden_size=1024, intermediate_size=4096, num_hidden_layers=3, vocab_size=16_000)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path)], check=True, capture_output=True, text=True
    ).stdout
    grown, size = map(int, done.split())
    assert size > 150 and grown < 1.5 * size
