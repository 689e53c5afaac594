"""LoRA adapters (arXiv 2106.09685) through peft: attach, share the base, merge into a copy.

Every policy has its own model object with one adapter in it, so adapters need not be switched before a forward pass;
the frozen weights below are the same tensors in memory for all policies with the same base.  Adapters are float32 for
any type of the base.  Merging never changes the trained model: in-place merging and unmerging drifts in bfloat16.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from pipeline_lib.policies.adapted_linear import AdaptedLinear
from pipeline_lib.policies.policy import Policy, PolicyError
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from pipeline_lib.settings.policy import LoraAdapter


ADAPTER = "default"
_FINGERPRINT_VALUES = 512


def attach(base: PreTrainedModel, settings: LoraAdapter, name: str, seed: int) -> PeftModel:
    """Return a model with a new adapter on ``base``, whose weights are shared and frozen, not copied.

    Args:
        base: a plain model; its parameters are frozen, and it is not changed otherwise.
        settings: rank, scale and targets.
        name: the policy's name; with ``seed`` it determines the adapter's first weights.
        seed: training seed.

    Raises:
        PolicyError: a target is not a linear layer of the model, or its weights are tied to the embedding: merging an
            adapter into these would change the embedding, which training does not; or peft cannot adapt one.
    """
    targets = _targets(base, settings)
    alpha: Any = settings.alpha  # peft declares an int and computes with any number
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=alpha,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in base.modules()),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(digest(["adapter", name, seed])[:15], 16))
        try:
            model = get_peft_model(_twin(base), config, adapter_name=ADAPTER)
        except ValueError as error:  # peft knows layers of some models (Mamba) that it cannot adapt
            raise PolicyError(
                f"policy.adapter.targets: {error}; name other layers, or set policy.adapter.kind=none"
            ) from error
    assert isinstance(model, PeftModel)
    # peft chooses the class of an adapted layer itself; weights and names stay those that it made.
    for module in model.modules():
        if type(module) is Linear and isinstance(module.get_base_layer(), nn.Linear):
            module.__class__ = AdaptedLinear
    return model


def _targets(base: PreTrainedModel, settings: LoraAdapter) -> list[str]:
    """Return the last parts of the names of the layers that get an adapter."""
    embedding, head = base.get_input_embeddings().weight, base.get_output_embeddings()
    linear = {
        path.rpartition(".")[2]: module is head
        for path, module in base.named_modules()
        if isinstance(module, nn.Linear | Conv1D)
        and module.weight is not embedding
        and not type(module).__name__.endswith("Router")  # of Llama 4 and Phi-3.5-MoE: it returns several tensors
    }
    if settings.targets == "all-linear":
        if found := [name for name, is_head in linear.items() if not is_head]:
            return found
        raise PolicyError(
            f"policy.adapter: {type(base).__name__} has no linear layers for adapters; set policy.adapter.kind=none"
        )
    if unknown := [target for target in settings.targets if target not in linear]:
        raise PolicyError(
            f"policy.adapter.targets: {type(base).__name__} has no linear layer {unknown[0]!r} of its own; "
            f"it has {', '.join(sorted(linear))}"
        )
    return list(settings.targets)


def is_adapted(policy: Policy) -> bool:
    """Return whether the policy has an adapter."""
    return isinstance(policy.model, PeftModel)


def merged_state(policy: Policy) -> dict[str, Tensor]:
    """Return full weights under the plain model's names, an adapter added out of place.

    Weights without an adapter are the model's own tensors: copy them before changing anything.  Sums are computed in
    float32 and rounded once to the base's dtype.
    """
    model: Any = policy.model
    if not is_adapted(policy):
        return dict(model.state_dict())
    plain = model.get_base_model()
    state: dict[str, Tensor] = {
        key.replace(".base_layer.", "."): value for key, value in plain.state_dict().items() if ".lora_" not in key
    }
    with torch.no_grad():
        for path, module in plain.named_modules():
            if isinstance(module, Linear):
                weight = state[f"{path}.weight"]
                delta = module.get_delta_weight(ADAPTER)  # [out, in]
                state[f"{path}.weight"] = (weight.float() + delta.float()).to(weight.dtype)
    return state


def base_fingerprint(policy: Policy) -> str:
    """Return a digest of the base of an adapter, the same in float32 and bfloat16.

    It covers every weight's name and shape and about 512 evenly spaced values of each, so it is fast for large models;
    it does not distinguish bases that differ only in other values.
    """
    model: Any = policy.model
    plain = model.get_base_model() if is_adapted(policy) else model
    sha = hashlib.sha256()
    for key, value in sorted(plain.state_dict().items()):
        if ".lora_" in key:
            continue
        flat = value.detach().reshape(-1)
        values = flat[:: max(1, flat.numel() // _FINGERPRINT_VALUES)].to(torch.bfloat16)
        sha.update(f"{key.replace('.base_layer.', '.')} {list(value.shape)}".encode())
        sha.update(values.view(torch.int16).cpu().numpy().tobytes())
    return sha.hexdigest()


def _twin(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of the module tree that holds the very same parameters and buffers."""
    shared = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def plain_model(policy: Policy) -> Any:
    """Return the policy's model without its adapter wrapper."""
    model: Any = policy.model
    return model.get_base_model() if hasattr(model, "peft_config") else model


def plain_state(policy: Policy) -> Mapping[str, Tensor]:
    """Return the weights of the plain model, adapters merged out of place (the policy's own stay untouched)."""
    model: Any = policy.model
    if not hasattr(model, "peft_config"):
        state: Mapping[str, Tensor] = model.state_dict()
        return state
    return merged_state(policy)
