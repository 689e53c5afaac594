"""A very small base policy and tiny real architectures; made once."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from pipeline_lib.environments.coding.settings import GeneratedProblems
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.settings.policy import EmbeddedPolicy

TINY = EmbeddedPolicy.model_validate(
    {
        "hidden_size": 32, "layers": 1, "heads": 2, "kv_heads": 1, "mlp_size": 48, "vocabulary": 400, "context": 160,
        "warm_start": {"steps": 12, "batch": 8},
    }
)  # fmt: skip


@pytest.fixture(scope="session")
def problems_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few generated problems."""
    folder = tmp_path_factory.mktemp("problems")
    prepare("coding", GeneratedProblems.model_validate({"sizes": {"train": 40, "validation": 4, "test": 4}}), folder)
    return folder


@pytest.fixture(scope="session")
def base(problems_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base policy of `TINY`; tests do not change it."""
    folder = tmp_path_factory.mktemp("bases") / "base"
    build_base(TINY, problems_folder, folder)
    return folder


@pytest.fixture(scope="session")
def foreign(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return folders of random models of a real architecture, with the base's tokenizer."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            kind, _, seed = name.partition("-")
            folder = tmp_path_factory.mktemp(name) / "model"
            tokenizer = AutoTokenizer.from_pretrained(base)
            config = AutoConfig.for_model(
                kind,
                vocab_size=len(tokenizer) + 6,
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=1,
                head_dim=16,
                max_position_embeddings=128,
                tie_word_embeddings=kind != "llama",
                bos_token_id=None,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.eos_token_id,
            )
            torch.manual_seed(int(seed or 0))
            AutoModelForCausalLM.from_config(config).save_pretrained(folder)
            for file in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(base / file, folder)
            made[name] = folder
        return made[name]

    return make
