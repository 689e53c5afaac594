"""Measurements of the machine for the log: arithmetic of the update and peaks of memory."""

from __future__ import annotations

import resource
import sys

import psutil
import torch
from torch import nn


def flops_per_token(model: nn.Module) -> float:
    """Return the floating-point operations per trained token, without attention.

    Per weight: two in the forward pass, two for the gradient of the input, and two for the gradient of the weight if it
    is trained.  The second forward pass of gradient checkpointing is not counted.  An input embedding is a look-up, so
    it counts only if it is also the output layer.
    """
    embedding = getattr(model, "get_input_embeddings", lambda: None)()
    head = getattr(model, "get_output_embeddings", lambda: None)()
    looked_up = getattr(embedding, "weight", None)
    if looked_up is getattr(head, "weight", None):
        looked_up = None
    total = 0.0
    for parameter in model.parameters():
        if parameter is looked_up or parameter.dim() < 2:
            continue
        total += (6 if parameter.requires_grad else 4) * parameter.numel()
    return total


def memory_peaks() -> dict[str, float]:
    """Return the peak memory of this process in MiB, resident and on the GPU if there is one, and what it holds now."""
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {
        "memory/resident_mb": resident / (2**20 if sys.platform == "darwin" else 2**10),
        "memory/now_mb": psutil.Process().memory_info().rss / 2**20,
    }
    if torch.cuda.is_available():
        found["memory/gpu_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return found
