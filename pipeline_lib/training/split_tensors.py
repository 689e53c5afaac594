"""Tensors that may be sharded over processes (FSDP2's DTensor)."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import distribute_tensor


def full(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole tensor of one that may be sharded; every process must call it."""
    together: Any = getattr(tensor, "full_tensor", None)
    return together() if together is not None else tensor


def like(whole: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """Return ``whole`` on the device and with the sharding of ``example``; every process passes the same values."""
    sharded: Any = example
    if not hasattr(sharded, "placements"):
        return whole.to(example.device)
    return distribute_tensor(whole.to(example.device), sharded.device_mesh, sharded.placements)
