"""Loads a team: the embedded base or any causal language model, with or without adapters.

It answers for what later modules take for granted: trained weights are float32, tokenizer and model fit together,
there is a way for an action to end, and agents that do not share weights really have their own.  Code from a model's
repository is never run.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pipeline_lib.policies.base import check_base
from pipeline_lib.policies.embedded import ATTENTION
from pipeline_lib.policies.policy import Policy, PolicyError, Team
from pipeline_lib.policies.pretrained import check_fit, load_model, load_tokenizer, recorded_revision

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from pipeline_lib.settings.policy import Policy as PolicySettings

SHARED = "team"


def load_team(
    settings: PolicySettings,
    base: Path,
    agents: Sequence[str],
    device: torch.device | str | None = None,
    seed: int = 0,
) -> Team:
    """Return the team before training.

    Args:
        settings: the ``policy`` section.
        base: folder that `build_base` wrote.
        agents: names of the agents, for example ``("helper", "main")``.
        device: where the weights go; by default a pretrained model goes to the first GPU if there is one, and the
            embedded model stays on the CPU.
        seed: fixes the first weights of adapters.

    Returns:
        One policy per agent, or one named ``team`` with ``parameters: shared``.  Without adapter every weight is
        float32 and trainable; with LoRA the base has the compute dtype and is one copy in memory per model path.

    Raises:
        PolicyError: a model or tokenizer cannot be loaded, they do not fit together, or the base is not the one
            that the settings describe.
    """
    facts = check_base(settings, base)
    names = (SHARED,) if settings.parameters == "shared" else tuple(agents)
    paths = _model_paths(settings, base, names)
    if device is None:
        device = "cuda" if settings.kind == "pretrained" and torch.cuda.is_available() else "cpu"
    loaded = {path: _load(settings, path, device, facts) for path in dict.fromkeys(paths)}
    policies: dict[str, Policy] = {}
    for number, (name, path) in enumerate(zip(names, paths, strict=True)):
        model, tokenizer = loaded[path]
        if settings.adapter.kind == "lora":
            from pipeline_lib.policies.lora import attach

            own: Any = attach(model, settings.adapter, name, seed)
        else:
            own = copy.deepcopy(model) if path in paths[:number] else model
        if settings.kind == "pretrained" and settings.gradient_checkpointing:
            own.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        policies[name] = Policy(
            name=name,
            model=own,
            tokenizer=tokenizer,
            chat=settings.kind == "pretrained" and settings.chat == "auto" and tokenizer.chat_template is not None,
            stop_strings=settings.stop_strings if settings.kind == "pretrained" else (),
        )
        if not policies[name].end_ids and not policies[name].stop_strings:
            raise PolicyError(f"{path}: the model has no end token, so no action would end; set policy.stop_strings")
    return Team(policies, {} if settings.parameters == "shared" else {name: name for name in names})


def _model_paths(settings: PolicySettings, base: Path, names: Sequence[str]) -> list[str]:
    """Return the model behind each policy."""
    if settings.kind == "embedded":
        return [str(base)] * len(names)
    if len(settings.models) == 1:
        return [settings.models[0]] * len(names)
    if len(settings.models) != len(names):
        raise PolicyError(
            f"policy.models: {len(settings.models)} models for {len(names)} policies ({', '.join(names)}); "
            "give one model, or one per policy in this order"
        )
    return list(settings.models)


def _load(
    settings: PolicySettings, path: str, device: torch.device | str, facts: Mapping[str, Any]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if settings.kind == "embedded":
        revision, attention, dtype = "main", ATTENTION, torch.float32
    else:
        revision, attention = recorded_revision(path, facts), settings.attention
        # weights that are trained stay float32: an update of bfloat16 weights is mostly rounded away
        frozen = settings.adapter.kind == "lora"
        dtype = getattr(torch, settings.dtype) if frozen else torch.float32
    model, tokenizer = load_model(path, revision, dtype, attention), load_tokenizer(path, revision)
    check_fit(path, model, tokenizer)
    moved: Any = model
    return moved.to(device), tokenizer
