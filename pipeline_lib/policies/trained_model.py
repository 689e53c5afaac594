"""Prepare a model for updates: forward passes that repeat exactly, in bounded memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from pipeline_lib.memory import SMALL_MODEL, GivesBack


def without_dropout(model: nn.Module) -> None:
    """Make forward passes deterministic: no dropout, whether or not gradient checkpointing needs training mode.

    Actions are sampled without dropout, so their log-probabilities must be computed without it.
    """
    module: Any
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0
    model.train(bool(getattr(model, "is_gradient_checkpointing", False)))


def give_back_between_layers(model: nn.Module) -> None:
    """Let a large model on the CPU give freed memory back between the layers of an update (`GivesBack`)."""
    parameters = list(model.parameters())
    if parameters[0].device.type != "cpu" or sum(p.numel() for p in parameters) <= SMALL_MODEL:
        return
    gives_back = GivesBack()

    def before(*_: Any) -> None:
        if torch.is_grad_enabled():  # not while actions are sampled
            gives_back()

    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.register_forward_pre_hook(before)
