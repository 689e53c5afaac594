"""Exported agents are loaded by transformers and peft alone, and answer as the trained ones do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pipeline_lib.policies.export import ADAPTER, FULL, export_team
from pipeline_lib.policies.policy import PolicyError
from tests.policies.test_store import AGENTS, WAYS, _logits, _stirred

# Runs isolated from the project: no path of it, no module of it.
LOAD = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, base = sys.argv[1], sys.argv[2]
if base:
    from peft import PeftModel
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder)
else:
    model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
with torch.no_grad():
    logits = model(torch.tensor([[5, 40, 41]])).logits
assert not [name for name in sys.modules if name.startswith(("pipeline_lib", "tasks", "flows", "symposium"))]
print(json.dumps({"logits": logits.tolist(), "ids": tokenizer("aux: items")["input_ids"]}))
"""


def loaded(folder: Path, base: Path | None) -> tuple[torch.Tensor, list[int]]:
    command = [sys.executable, "-I", "-c", LOAD, str(folder), str(base or "")]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    return torch.tensor(said["logits"]), said["ids"]


@pytest.mark.parametrize(
    ("way", "form"), [("full", "trained"), ("lora", "trained"), ("lora", "merged"), ("shared lora", "merged")]
)
def test_an_exported_agent_is_the_trained_one(base: Path, tmp_path: Path, way: str, form: str) -> None:
    team = _stirred(base, **WAYS[way])
    holds = export_team(team, AGENTS, tmp_path / "team", form, base)  # type: ignore[arg-type]
    adapter = way == "lora" and form == "trained"
    assert holds == dict.fromkeys(AGENTS, ADAPTER if adapter else FULL)
    below = tmp_path / "team" / "base" if adapter else None
    assert (tmp_path / "team" / "base").exists() == adapter
    logits, ids = loaded(tmp_path / "team" / "main", below)
    torch.testing.assert_close(logits, _logits(team, "main"), rtol=1e-4, atol=1e-4)
    assert ids == team.policy_of("main").tokenizer("aux: items")["input_ids"]
    assert not list((tmp_path / "team").rglob("*.bin")), "no pickle"


def test_a_folder_that_is_there_is_left_alone(base: Path, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="exists already"):
        export_team(_stirred(base), AGENTS, tmp_path)
