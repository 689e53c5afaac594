"""A policy as a plain model: without its adapter's wrapper, and with the adapter merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline_lib.policies.lora import merged_state

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline_lib.policies.policy import Policy


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
