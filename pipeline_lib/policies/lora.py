"""The weights of a policy as a plain model: below its LoRA adapter (arXiv 2106.09685), or merged with it.

Merging never changes the trained model: in-place merging and unmerging drifts in bfloat16.  Does not import peft, which
the environment of vLLM lacks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline_lib.policies.policy import Policy


ADAPTER = "default"
_FINGERPRINT_VALUES = 512


def is_adapted(policy: Policy) -> bool:
    """Return whether the policy has an adapter."""
    return hasattr(policy.model, "get_base_model")  # of peft


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
            if hasattr(module, "get_delta_weight"):  # a layer of peft
                weight = state[f"{path}.weight"]
                delta = module.get_delta_weight(ADAPTER)  # [out, in]
                state[f"{path}.weight"] = (weight.float() + delta.float()).to(weight.dtype)
    return state


def base_fingerprint(policy: Policy) -> str:
    """Return a digest of the base of an adapter, the same in float32 and bfloat16.

    It covers every weight's name and shape and about 512 evenly spaced values of each, so it is fast for large models;
    it does not distinguish bases that differ only in other values.
    """
    sha = hashlib.sha256()
    for key, value in sorted(plain_model(policy).state_dict().items()):
        if ".lora_" in key:
            continue
        flat = value.detach().reshape(-1)
        values = flat[:: max(1, flat.numel() // _FINGERPRINT_VALUES)].to(torch.bfloat16)
        sha.update(f"{key.replace('.base_layer.', '.')} {list(value.shape)}".encode())
        sha.update(values.view(torch.int16).cpu().numpy().tobytes())
    return sha.hexdigest()


def plain_model(policy: Policy) -> Any:
    """Return the policy's model without its adapter wrapper."""
    model: Any = policy.model
    return model.get_base_model() if is_adapted(policy) else model


def plain_state(policy: Policy) -> Mapping[str, Tensor]:
    """Return the weights of the plain model, adapters merged out of place (the policy's own stay untouched)."""
    state: Mapping[str, Tensor] = merged_state(policy) if is_adapted(policy) else policy.model.state_dict()
    return state
