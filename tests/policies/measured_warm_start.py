"""A short warm start in a process of its own: reads the settings, and prints the most bytes that it held.

The embedded model learns from problems as its settings say.  Of SmolLM2 the weights are random, since bytes do not
depend on them: nothing is fetched.
"""

import importlib
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from transformers import LlamaConfig, LlamaForCausalLM

import pipeline_lib.assembly.training  # noqa: F401  (what a stage loads)
from pipeline_lib.policies.adapted_linear import attach
from pipeline_lib.policies.imitation import imitate
from pipeline_lib.policies.model_config import NAMED
from pipeline_lib.policies.policy import Policy
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.settings import Params
from tasks.services.preloaded import LIBRARIES

PROMPT = 180
for _name in LIBRARIES:  # what a stage loads, too
    importlib.import_module(_name)


def measured(params: Params, state: Path) -> None:
    """Imitate random examples of full length."""
    policy: Any = params.policy
    base = LlamaForCausalLM(LlamaConfig(**NAMED[policy.models[0]].config, attn_implementation="sdpa"))
    model: Any = attach(base, policy.adapter, "base", 0)  # type: ignore[arg-type]
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    no_tokenizer: Any = None  # there is no text here
    rng = np.random.default_rng(0)
    length = PROMPT + params.rollouts.max_new_tokens
    examples = [
        (rng.integers(4, model.config.vocab_size, length).tolist(), PROMPT)
        for _ in range(policy.warm_start.steps * policy.warm_start.batch)
    ]
    imitate(Policy("base", model, no_tokenizer), examples, policy.warm_start, 0, state)


def measured_embedded(params: Params, folder: Path) -> None:
    """Make the base of the embedded model, of problems that no sandbox checks."""
    prepare(params.environment.kind, params.problems, folder / "problems")
    build_base(params.policy, folder / "problems", folder / "base")


if __name__ == "__main__":
    given = Params.model_validate_json(sys.stdin.read())
    with tempfile.TemporaryDirectory() as made:
        (measured_embedded if given.policy.kind == "embedded" else measured)(given, Path(made))
    # Not `ru_maxrss`, which begins with what the process held that started this one.
    held = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert held is not None
    print(int(held[1]) << 10)
