"""Saved teams: the same weights come back, the same bytes are written, and anything else is refused by name."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.policy import PolicyError, Team
from pipeline_lib.policies.store import restore_team, save_team, team_digest
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.settings.policy import EmbeddedPolicy
from pipeline_lib.storage import CorruptFileError, folder_digest
from tests.policies.conftest import TINY

AGENTS = ("helper", "main")
WAYS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"adapter": {"kind": "lora", "rank": 4}},
    "shared": {"parameters": "shared"},
    "shared lora": {"parameters": "shared", "adapter": {"kind": "lora", "rank": 4}},
}


def _settings(**changes: object) -> EmbeddedPolicy:
    return EmbeddedPolicy.model_validate({**TINY.model_dump(), **changes})


def _stirred(base: Path, **changes: object) -> Team:
    team = load_team(_settings(**changes), base, AGENTS)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for policy in team.policies.values():
            for _, parameter in policy.trainable():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return team


def _logits(team: Team, agent: str) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = team.policy_of(agent).model(torch.tensor([[5, 40, 41]])).logits
        return logits


@pytest.mark.parametrize("way", WAYS)
def test_a_team_comes_back_bit_by_bit(base: Path, tmp_path: Path, way: str):
    team = _stirred(base, **WAYS[way])
    save_team(team, tmp_path)
    fresh = load_team(_settings(**WAYS[way]), base, AGENTS)
    assert team_digest(fresh) != team_digest(team)
    restore_team(fresh, tmp_path)
    assert team_digest(fresh) == team_digest(team)
    for agent in AGENTS:
        assert torch.equal(_logits(fresh, agent), _logits(team, agent))


@pytest.mark.parametrize("way", WAYS)
def test_the_bytes_follow_from_the_weights_alone(base: Path, tmp_path: Path, way: str):
    save_team(_stirred(base, **WAYS[way]), tmp_path / "one")
    save_team(_stirred(base, **WAYS[way]), tmp_path / "elsewhere" / "two")
    assert folder_digest(tmp_path / "one") == folder_digest(tmp_path / "elsewhere" / "two")
    assert str(base).encode() not in b"".join(p.read_bytes() for p in (tmp_path / "one").rglob("*.json"))


def test_another_process_writes_the_same_bytes(base: Path, tmp_path: Path):
    save_team(load_team(_settings(**WAYS["lora"]), base, AGENTS), tmp_path / "here")
    code = (
        "from pathlib import Path\n"
        "from tests.policies.test_store import AGENTS, WAYS, _settings, load_team, save_team\n"
        f"team = load_team(_settings(**WAYS['lora']), Path({str(base)!r}), AGENTS)\n"
        f"save_team(team, Path({str(tmp_path / 'there')!r}))\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True, capture_output=True)
    assert folder_digest(tmp_path / "here") == folder_digest(tmp_path / "there")


def test_restoring_counts_the_version_up_so_that_old_rollout_copies_are_noticed(base: Path, tmp_path: Path):
    team = _stirred(base)
    save_team(team, tmp_path)
    restore_team(team, tmp_path)
    assert {policy.version for policy in team.policies.values()} == {1}


def test_a_full_policy_is_an_ordinary_transformers_folder(base: Path, tmp_path: Path):
    team = _stirred(base)
    save_team(team, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "main", attn_implementation="eager")
    with torch.no_grad():
        assert torch.equal(model(torch.tensor([[5, 40, 41]])).logits, _logits(team, "main"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "main")
    assert tuple(tokenizer("def aux(xs):")["input_ids"]) == team.policy_of("main").encode("def aux(xs):")


def test_an_adapter_is_an_ordinary_peft_folder(base: Path, tmp_path: Path):
    team = _stirred(base, **WAYS["lora"])
    save_team(team, tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
    model = PeftModel.from_pretrained(plain, str(tmp_path / "helper"))
    with torch.no_grad():
        assert torch.allclose(model(torch.tensor([[5, 40, 41]])).logits, _logits(team, "helper"), atol=1e-6)
    assert (
        sum(path.stat().st_size for path in (tmp_path / "helper").iterdir())
        < (base / "model.safetensors").stat().st_size
    )


def test_the_digest_sees_one_changed_bit_and_not_the_frozen_base(base: Path):
    team = _stirred(base, **WAYS["lora"])
    before = team_digest(team)
    model: Any = team.policy_of("main").model
    with torch.no_grad():
        model.get_base_model().model.norm.weight.add_(1.0)
    assert team_digest(team) == before
    with torch.no_grad():
        next(parameter for _, parameter in team.policy_of("main").trainable()).view(-1)[0].add_(1e-3)
    assert team_digest(team) != before


def test_tied_weights_are_written_once(base: Path, tmp_path: Path):
    save_team(_stirred(base), tmp_path)
    assert (tmp_path / "main" / "model.safetensors").stat().st_size <= 1.1 * (base / "model.safetensors").stat().st_size


@pytest.mark.parametrize("file", ["main/model.safetensors", "helper/model.safetensors"])
def test_a_changed_byte_is_noticed(base: Path, tmp_path: Path, file: str):
    save_team(_stirred(base), tmp_path)
    content = bytearray((tmp_path / file).read_bytes())
    content[-7] ^= 0xFF
    (tmp_path / file).write_bytes(content)
    team = load_team(TINY, base, AGENTS)
    before = team_digest(team)
    with pytest.raises(CorruptFileError, match=rf"{file}: the weights are not the ones"):
        restore_team(team, tmp_path)
    assert team_digest(team) == before, "a refused file must not change any policy"


def test_missing_and_truncated_files_are_named(base: Path, tmp_path: Path):
    team = _stirred(base)
    save_team(team, tmp_path)
    path = tmp_path / "main" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CorruptFileError, match=r"main/model.safetensors: not readable"):
        restore_team(team, tmp_path)
    path.unlink()
    with pytest.raises(CorruptFileError, match=r"main/model.safetensors: missing"):
        restore_team(team, tmp_path)
    with pytest.raises(PolicyError, match="there is no saved team"):
        restore_team(team, tmp_path / "main")


def test_another_team_is_refused(base: Path, tmp_path: Path):
    save_team(_stirred(base), tmp_path)
    shared = load_team(_settings(parameters="shared"), base, AGENTS)
    with pytest.raises(PolicyError, match=r"holds policies \['helper', 'main'\], the team has \['team'\]"):
        restore_team(shared, tmp_path)


def test_an_adapter_is_no_full_policy(base: Path, tmp_path: Path):
    save_team(_stirred(base, **WAYS["lora"]), tmp_path)
    with pytest.raises(PolicyError, match=r"holds adapter weights, those of policy 'helper' are full"):
        restore_team(load_team(TINY, base, AGENTS), tmp_path)


def test_an_adapter_for_another_base_is_refused(base: Path, problems_folder: Path, tmp_path: Path):
    save_team(_stirred(base, **WAYS["lora"]), tmp_path / "saved")
    other = _settings(seed=1, **WAYS["lora"])
    build_base(other, problems_folder, tmp_path / "other")
    with pytest.raises(PolicyError, match=r"trained on another base than policy 'helper' has"):
        restore_team(load_team(other, tmp_path / "other", AGENTS), tmp_path / "saved")


@pytest.mark.parametrize("changes", [{"vocabulary": 300}, {"hidden_size": 64}, {"layers": 2}])
def test_weights_of_another_shape_are_refused(
    base: Path, problems_folder: Path, tmp_path: Path, changes: dict[str, int]
):
    save_team(_stirred(base), tmp_path / "saved")
    other = _settings(**changes)
    build_base(other, problems_folder, tmp_path / "other")
    with pytest.raises(PolicyError, match=r"weights of another model than policy 'helper' .*vocabulary, width"):
        restore_team(load_team(other, tmp_path / "other", AGENTS), tmp_path / "saved")


def test_an_adapter_of_another_rank_is_refused(base: Path, tmp_path: Path):
    save_team(_stirred(base, **WAYS["lora"]), tmp_path)
    team = load_team(_settings(adapter={"kind": "lora", "rank": 2}), base, AGENTS)
    with pytest.raises(PolicyError, match="adapter rank differ"):
        restore_team(team, tmp_path)


def test_nothing_is_unpickled(base: Path, tmp_path: Path):
    save_team(_stirred(base), tmp_path)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} <= {".json", ".safetensors", ".jinja"}


def test_the_record_says_who_uses_what(base: Path, tmp_path: Path):
    save_team(_stirred(base), tmp_path)
    record = json.loads((tmp_path / "team.json").read_text())
    assert record["uses"] == {"helper": "helper", "main": "main"}
    assert {policy["kind"] for policy in record["policies"].values()} == {"full"}


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_other_architectures_are_saved_and_restored(foreign: Callable[[str], Path], tmp_path: Path, kind: str):
    from pipeline_lib.settings.policy import PretrainedPolicy

    settings = PretrainedPolicy.model_validate(
        {"models": [str(foreign(kind))], "adapter": {"kind": "none"}, "attention": "eager"}
    )
    build_base(settings, tmp_path, tmp_path / "base")
    teams = [load_team(settings, tmp_path / "base", AGENTS) for _ in range(2)]
    with torch.no_grad():
        for _, parameter in teams[0].policy_of("main").trainable():
            parameter.add_(0.01)
    save_team(teams[0], tmp_path / "saved")
    restore_team(teams[1], tmp_path / "saved")
    assert team_digest(teams[0]) == team_digest(teams[1])
