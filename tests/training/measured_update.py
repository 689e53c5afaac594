"""One update in a process of its own: reads the settings, and prints the most bytes that it held.

Weights are random, since bytes do not depend on them: nothing is fetched, and every action has its full length.
"""

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3ForCausalLM

import pipeline_lib.assembly.training  # noqa: F401  (what a stage loads)
from pipeline_lib.policies.adapted_linear import attach
from pipeline_lib.policies.computing import cpu_numerics, is_large
from pipeline_lib.policies.embedded import ATTENTION
from pipeline_lib.policies.embedded import make_config as embedded_config
from pipeline_lib.policies.model_config import NAMED
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.settings import Params
from pipeline_lib.training.batch import WeightedAction, build, normaliser
from pipeline_lib.training.learners import make_learners
from pipeline_lib.training.update import update_policy
from tasks.services.preloaded import LIBRARIES

PROMPT = 180
for _name in LIBRARIES:  # what a stage loads, too
    importlib.import_module(_name)


def measured(params: Params) -> None:
    """Take one update of a team that shares its weights, after the engine has taken its own."""
    policy, settings, new = params.policy, params.train, params.rollouts.max_new_tokens
    model: Any
    if policy.kind == "embedded":
        model = Qwen3ForCausalLM(embedded_config(policy, policy.vocabulary))
        model.set_attn_implementation(ATTENTION)
    else:
        base = LlamaForCausalLM(LlamaConfig(**NAMED[policy.models[0]].config, attn_implementation="sdpa"))
        model = attach(base, policy.adapter, "team", 0)  # type: ignore[arg-type]
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    no_tokenizer: Any = None  # there is no text here
    team = Team({"team": Policy("team", model, no_tokenizer)}, {})
    rng = np.random.default_rng(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(rng.integers(4, model.config.vocab_size, count).tolist())

    rows = [
        WeightedAction(prompt, ids(new), (-6.0,) * new, advantage, 1.0)
        for prompt in (ids(PROMPT) for _ in range(settings.problems_per_step))
        for advantage in rng.standard_normal(settings.group_size).tolist()
    ]
    engine = TransformersEngine()
    with cpu_numerics(1, is_large(team)):
        (learner,) = make_learners(settings, Sampling(), team, None, None)
        engine.load(team.sampled())
        batch = build(rows, normaliser(rows, settings.loss.normalisation), settings.loss)
        update_policy(learner, batch, settings.loss, settings.learning_rate, lambda: None)


if __name__ == "__main__":
    measured(Params.model_validate_json(sys.stdin.read()))
    # Not `ru_maxrss`, which begins with what the process held that started this one.
    held = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert held is not None
    print(int(held[1]) << 10)
