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


AUDIT = f"""
import sys
import flows.reward_function
from pipeline_lib.assembly.reward_functions import audit_reward
exact = lambda completions, answer, **_: [float(text == right) for text, right in zip(completions, answer)]
rows = [{{"prompt": f"{{n}} + {{n}}", "answer": str(2 * n)}} for n in range(8)]
print(audit_reward(exact, rows, metric="equals:answer", solution="answer").status)
print([one for one in {HEAVY} if one in sys.modules])
"""


def test_an_audit_of_a_reward_function_without_a_model_imports_none() -> None:
    done = subprocess.run([sys.executable, "-c", AUDIT], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["PASS", "[]"]
