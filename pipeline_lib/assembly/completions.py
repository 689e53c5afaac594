"""Completions of a pretrained model that nobody has trained, for prompts of a user."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pipeline_lib.policies.computing import right_threads
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.rollouts import Request, Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings.policy import NoAdapter, PretrainedPolicy
from pipeline_lib.settings.rollouts import TransformersRollouts

_AGENT = "model"


def sample_model(model: str, prompts: Sequence[str], group_size: int, longest: int, seed: int = 0) -> list[list[str]]:
    """Return ``group_size`` completions of each prompt, at temperature 1, of at most ``longest`` tokens.

    Args:
        model: what ``policy.models`` takes: a name such as ``smollm2-135m``, an id on the hub, a folder, a GGUF file.
        prompts: what a user says to the model; its chat template is applied.
        group_size: at least 1.
        longest: tokens, at least 1.
        seed: of the random draws.

    Raises:
        PolicyError: the model cannot be loaded.
    """
    settings = PretrainedPolicy(kind="pretrained", models=(model,), dtype="auto", adapter=NoAdapter())
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        base = Path(folder, "base")
        build_base(settings, Path(folder), base)  # without a warm start it needs no problems
        team = load_team(settings, base, (_AGENT,))
        running.enter_context(right_threads(team))
        engine = running.enter_context(contextlib.closing(make_engine(TransformersRollouts(), settings)))
        engine.load(team.policies)
        policy = team.policy_of(_AGENT)
        requests = [
            Request(_AGENT, policy.encode(prompt), group_size, seed * 1_000_003 + number)
            for number, prompt in enumerate(prompts)
        ]
        groups = engine.generate(requests, Sampling(max_new_tokens=longest))
        return [[policy.decode(action.ids) for action in group] for group in groups]
