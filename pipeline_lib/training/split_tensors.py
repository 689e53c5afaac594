"""Tensors that may be split over processes (FSDP2's DTensor), without importing what splits them."""

from __future__ import annotations

from typing import Any

import torch


def full(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole of a tensor that may be split; every process has to call it."""
    together: Any = getattr(tensor, "full_tensor", None)
    return together() if together is not None else tensor


def like(whole: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor where ``example`` is and split as it is; every process calls it with the same values."""
    placements: Any = getattr(example, "placements", None)
    if placements is None:
        return whole.to(example.device)
    from torch.distributed.tensor import distribute_tensor

    mesh: Any = example.device_mesh  # type: ignore[attr-defined]
    return distribute_tensor(whole.to(example.device), mesh, placements)
