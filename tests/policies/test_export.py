"""Exported agents are loaded by transformers and peft alone, and answer as the trained ones do."""

import json
import subprocess
import sys
from pathlib import Path

import torch

from tasks.use.exporting import ADAPTER, FULL, export_team
from tests.policies.test_store import AGENTS, WAYS, _logits, _stirred

# Runs isolated from the project: no path of it, no module of it.
LOAD = """
import json, sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
for folder, base in zip(sys.argv[1::2], sys.argv[2::2]):
    if base:
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder)
    else:
        model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = model(torch.tensor([[5, 40, 41]])).logits
    print("FOUND" + json.dumps({"logits": logits.tolist(), "ids": tokenizer("aux: items")["input_ids"]}))
assert not [name for name in sys.modules if name.startswith(("pipeline_lib", "tasks", "flows", "symposium"))]
"""
EXPORTED = (("full", "trained"), ("lora", "trained"), ("lora", "merged"), ("shared lora", "merged"))


def test_an_exported_agent_is_the_trained_one(base: Path, tmp_path: Path) -> None:
    arguments, expected = [], []
    for way, form in EXPORTED:
        team, folder = _stirred(base, **WAYS[way]), tmp_path / f"{way} {form}"
        holds = export_team(team, AGENTS, folder, form, base)  # type: ignore[arg-type]
        adapter = way == "lora" and form == "trained"
        assert holds == dict.fromkeys(AGENTS, ADAPTER if adapter else FULL)
        assert (folder / "base").exists() == adapter
        assert not list(folder.rglob("*.bin")), "no pickle"
        arguments += [str(folder / "main"), str(folder / "base") if adapter else ""]
        expected.append((_logits(team, "main"), team.policy_of("main").tokenizer("aux: items")["input_ids"]))
    command = [sys.executable, "-I", "-c", LOAD, *arguments]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line.removeprefix("FOUND")) for line in done.stdout.splitlines() if line.startswith("FOUND")]
    for (way, _), said, (logits, ids) in zip(EXPORTED, found, expected, strict=True):
        torch.testing.assert_close(
            torch.tensor(said["logits"]), logits, rtol=1e-4, atol=1e-4, msg=lambda text, way=way: f"{way}: {text}"
        )
        assert said["ids"] == ids
