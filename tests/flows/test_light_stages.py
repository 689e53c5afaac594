"""Stages that never look at weights load no model library: torch and transformers alone take longer than their work."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "tokenizers", "peft")
LIGHT = ("identity", "prepare", "preregister", "select", "verdict", "report", "looks", "plan", "compare")
PROGRAM = f"""
import importlib, sys
for name in {LIGHT}:
    importlib.import_module(f"flows.{{name}}")
    print(name, [one for one in {HEAVY} if one in sys.modules])
"""


def test_stages_without_a_model_import_no_library_for_models() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{name} []" for name in LIGHT]
