"""Prepare a model for updates: forward passes that repeat exactly, in bounded memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from pipeline_lib.memory import KEPT_PRODUCTS, SMALL_MODEL, GivesBack
from pipeline_lib.policies.kept_products import KeptProducts


def without_dropout(model: nn.Module) -> None:
    """Make forward passes deterministic: no dropout, and training mode only where gradient checkpointing needs it.

    Actions are sampled without dropout and noise, so their log-probabilities must be computed without them.
    """
    module: Any
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):  # for functions, as OPT's `dropout`
                setattr(module, name, 0.0)
        module.training = bool(getattr(module, "gradient_checkpointing", False))


def is_large_here(model: nn.Module) -> bool:
    """Return whether a large model computes on the CPU."""
    parameters = list(model.parameters())
    return parameters[0].device.type == "cpu" and sum(p.numel() for p in parameters) > SMALL_MODEL


def bound_memory(model: Any) -> None:
    """Let a large model on the CPU keep no more of an update than there is room for.

    Under gradient checkpointing it keeps some products (`KeptProducts`), and between its layers it gives freed memory
    back (`GivesBack`).
    """
    if not is_large_here(model):
        return
    if getattr(model, "is_gradient_checkpointing", False):
        kept = KeptProducts(KEPT_PRODUCTS)
        model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": kept.contexts})
    gives_back = GivesBack()

    def before(*_: Any) -> None:
        if torch.is_grad_enabled():  # not while actions are sampled
            gives_back()

    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.register_forward_pre_hook(before)
