"""Load a team: the embedded base or any causal language model, with or without adapters.

Trained weights are float32, tokenizer and model fit together, every policy has an end token or stop strings, and agents
that do not share weights have copies of their own.  Code from a model's repository is never run.
"""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from transformers import PreTrainedModel

from pipeline_lib.memory import give_back_memory
from pipeline_lib.policies.adapted_linear import attach
from pipeline_lib.policies.base import base_folder, check_base
from pipeline_lib.policies.computing import compute_type
from pipeline_lib.policies.embedded import ATTENTION
from pipeline_lib.policies.policy import Policy, PolicyError, Team, check_agents, is_frozen, remote_policy, section_of
from pipeline_lib.policies.pretrained import (
    check_fit,
    in_chat_template,
    load_model,
    load_tokenizer,
    recorded_revision,
)
from pipeline_lib.policies.sizes import models_of
from pipeline_lib.settings.policy import AgentPolicy
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pipeline_lib.settings.policy import Policy as PolicySettings

SHARED = "team"

#: Frozen bases that are in memory, by what they were loaded from: the next team on the same base uses them too.
_bases: weakref.WeakValueDictionary[tuple[str, ...], PreTrainedModel] = weakref.WeakValueDictionary()


def load_team(
    settings: PolicySettings,
    base: Path,
    agents: Sequence[str],
    seed: int = 0,
    bases: bool = False,
) -> Team:
    """Return the team before training: pretrained models on the first GPU if there is one, embedded ones on the CPU.

    Args:
        settings: the ``policy`` section.
        base: folder that `build_base` wrote.
        agents: names of the agents, for example ``("helper", "main")``.
        seed: seed of the first weights of adapters, which have no effect before training (arXiv 2106.09685).
        bases: also load what each policy began as (`Team.bases`), for a critic: one frozen copy per model path, with
            the compute dtype; frozen weights that are in memory already are used.

    Returns:
        One policy per agent, or one named ``team`` with ``parameters: shared``.  Without adapter every weight is
        float32 and trainable; with LoRA the base has the compute dtype and is one copy in memory per model path.
        Frozen agents share one copy per path, without trainable weights.

    Raises:
        PolicyError: a model or tokenizer cannot be loaded, they do not fit together, the base was made from other
            settings, or the settings name an unknown agent.
    """
    facts = check_base(settings, base)
    check_agents(settings, agents)
    names = (SHARED,) if settings.parameters == "shared" else tuple(agents)
    served = {name: own.server for name in names if (own := settings.agents.get(name)) and own.server}
    here = [name for name in names if name not in served]
    paths = dict(zip(here, _model_paths(settings, base, here), strict=True))
    device = "cuda" if settings.kind == "pretrained" and torch.cuda.is_available() else "cpu"
    load = functools.cache(functools.partial(_load, settings, device=device, facts=facts))
    whole: set[str] = set()
    policies: dict[str, Policy] = {}
    begun: dict[str, Policy] = {}
    for name in names:
        if name in served:
            policies[name] = remote_policy(name, served[name].model, served[name])
            continue
        path, own, adapter = paths[name], settings.agents.get(name, AgentPolicy()), section_of(settings, name).adapter
        in_full = adapter.kind == "none" and not is_frozen(own)
        loaded, tokenizer = load(path, in_full)
        model = loaded
        if in_full:
            model = copy.deepcopy(model) if path in whole else model
            whole.add(path)
        elif is_frozen(own):
            model.requires_grad_(False)
        elif adapter.kind == "lora":
            model = cast("PreTrainedModel", attach(model, adapter, name, seed))
        if settings.kind == "pretrained" and settings.gradient_checkpointing and not is_frozen(own):
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        policies[name] = Policy(
            name=name,
            model=model,
            tokenizer=tokenizer,
            chat=in_chat_template(settings, tokenizer),
            stop_strings=settings.stop_strings if settings.kind == "pretrained" else (),
            learning_rate=own.learning_rate,
            below=None if in_full else loaded,
        )
        if bases:
            same = next((begun[other] for other in begun if paths[other] == path), None)
            frozen = load(path, False)[0].requires_grad_(False)
            begun[name] = same or replace(policies[name], name=f"base of {name}", model=frozen, learning_rate=None)
        if not policies[name].end_ids and not policies[name].stop_strings:
            raise PolicyError(f"{path}: the model has no end token, so no action would end; set policy.stop_strings")
    return Team(policies, {} if settings.parameters == "shared" else {name: name for name in names}, begun)


def _model_paths(settings: PolicySettings, base: Path, names: Sequence[str]) -> list[str]:
    """Return the model behind each policy."""
    if settings.warm_start is not None:
        return [str(base_folder(settings, base, name)) for name in names]
    assert settings.kind == "pretrained"
    return models_of(settings, names)


def _load(
    settings: PolicySettings, path: str, in_full: bool, *, device: torch.device | str, facts: Mapping[str, Any]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if settings.kind == "embedded":
        revision, attention, dtype = "main", ATTENTION, torch.float32
    else:
        revision = "main" if settings.warm_start is not None else recorded_revision(path, facts)
        attention = settings.attention
        # weights that are trained stay float32: an update of bfloat16 weights is mostly rounded away
        dtype = torch.float32 if in_full else compute_type(settings, facts)
    tokenizer = load_tokenizer(path, revision)
    key = (path, revision, attention, str(dtype), str(device), digest(facts))
    shared = settings.kind == "pretrained" and not in_full
    if shared and (known := _bases.get(key)) is not None:
        return known, tokenizer
    model: Any = load_model(path, revision, dtype, attention)
    check_fit(path, model, tokenizer)
    model = model.to(device)
    if shared:
        for parameter in model.parameters():
            # Out of the mapped file, which stays in memory as a whole while any part of it is used.
            parameter.data = parameter.data.clone()
        give_back_memory()
        _bases[key] = model
    return model, tokenizer
