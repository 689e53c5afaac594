"""The type in which a model computes, where the machine decides: timed when the base is made, and recorded with it."""

from pathlib import Path

import pytest
import torch

from pipeline_lib.assembly.teams import compute_dtype
from pipeline_lib.policies import warm_start
from pipeline_lib.policies.computing import faster_type
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.sizes import sizes_of
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.settings import Params
from pipeline_lib.settings.policy import PretrainedPolicy
from pipeline_lib.storage import read_json

SMALL = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


def test_a_type_is_chosen_and_the_number_of_threads_stays():
    before = torch.get_num_threads()
    assert faster_type(sizes_of(SMALL)) in ("float32", "bfloat16")
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("chosen", ["float32", "bfloat16"])
def test_every_later_stage_computes_in_the_recorded_type(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
):
    policy = PretrainedPolicy(kind="pretrained", models=(str(base),), dtype="auto", chat="never")
    monkeypatch.setattr(warm_start, "faster_type", lambda sizes: chosen)  # as on another machine
    build_base(policy, tmp_path / "problems", tmp_path / "base")
    assert read_json(tmp_path / "base" / "base.json")["dtype"] == chosen
    monkeypatch.setattr(warm_start, "faster_type", lambda sizes: pytest.fail("it is not measured again"))
    model = load_team(policy, tmp_path / "base", ("helper", "main")).policy_of("main").model
    frozen = {parameter.dtype for parameter in model.parameters() if not parameter.requires_grad}
    trained = {parameter.dtype for parameter in model.parameters() if parameter.requires_grad}
    assert frozen == {getattr(torch, chosen)} and trained == {torch.float32}
    assert compute_dtype(Params(policy=policy), tmp_path / "base") == getattr(torch, chosen)
