"""The documented recipe: two different models are trained by one reward function."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import symposium
from pipeline_lib.storage import file_digest
from tests.flows.project import ROOT
from tests.real_models import NAME, smollm2


@pytest.mark.drawn("a training in an environment", "pipeline_lib")
def test_two_models_of_other_sizes_are_trained_by_one_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs/examples"))
    tokenizer = AutoTokenizer.from_pretrained(smollm2())
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(tmp_path / "another")
    tokenizer.save_pretrained(tmp_path / "another")
    experiment = symposium.Experiment(
        tmp_path / "made",
        "joint_reward:Advert",
        problems={"sizes": {"train": 12, "validation": 4, "test": 4}},
        policy={
            "kind": "pretrained",
            "models": [NAME, str(tmp_path / "another")],
            "dtype": "float32",
            "adapter": {"kind": "lora", "rank": 4, "alpha": 8},
        },
        rollouts={"max_new_tokens": 12},
        audit={"problems": 2, "group_size": 4, "override": "two problems are too few to judge the reward by"},
        train={"steps": 1, "problems_per_step": 2, "group_size": 4, "checkpoint_every": 1},
        evaluate={"baselines": [], "validation": {"samples": 1}},
    )
    run = symposium.train(experiment)
    first, last = (sorted((run.folder / step).rglob("*adapter*.safetensors")) for step in ("step-00000", "step-00001"))
    assert len(first) == len(last) == 2
    for before, after in zip(first, last, strict=True):
        assert file_digest(before) != file_digest(after)
