"""A short warm start in a process of its own: reads the settings, and prints the most bytes that it held.

Weights are random, since bytes do not depend on them: nothing is fetched.
"""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from transformers import LlamaConfig, LlamaForCausalLM

import pipeline_lib.assembly.training  # noqa: F401  (what a stage loads)
from pipeline_lib.policies.adapted_linear import attach
from pipeline_lib.policies.imitation import imitate
from pipeline_lib.policies.model_config import NAMED
from pipeline_lib.policies.policy import Policy
from pipeline_lib.settings import Params
from tests.training.measured_update import PROMPT


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


if __name__ == "__main__":
    measured(Params.model_validate_json(sys.stdin.read()), Path("/nonexistent"))
    # Not `ru_maxrss`, which begins with what the process held that started this one.
    held = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert held is not None
    print(int(held[1]) << 10)
