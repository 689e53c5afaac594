"""The type in which a pretrained model computes, where ``policy.dtype`` is ``auto``.

Which of float32 and bfloat16 is faster depends on the processor: with matrix units or AVX-512's products of bfloat16
the latter, without them it is many times slower.  So the products of the model's shapes are timed when the base is
made, and the choice is recorded with it: every stage after that computes in this type, on whatever machine it runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pipeline_lib.policies.sizes import Sizes
    from pipeline_lib.settings.policy import PretrainedPolicy

#: Rows of the timed products: of a step of sampling, and of a stretch of an update.
ROWS = (32, 512)
#: bfloat16 must take at most this share of float32's time, since it computes less exactly.
WORTH = 0.8


def compute_type(settings: PretrainedPolicy, facts: Mapping[str, Any]) -> torch.dtype:
    """Return the type of frozen weights and of forward passes; ``facts`` is the content of ``base.json``."""
    chosen: torch.dtype = getattr(torch, facts["dtype"] if settings.dtype == "auto" else settings.dtype)
    return chosen


def faster_type(sizes: Sizes) -> str:
    """Time the products of one layer, and return ``bfloat16`` if they are certainly faster in it, else ``float32``.

    On a GPU it is ``bfloat16`` where the hardware knows it.
    """
    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    before = torch.get_num_threads()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    try:
        return "bfloat16" if _seconds(sizes, torch.bfloat16) < WORTH * _seconds(sizes, torch.float32) else "float32"
    finally:
        torch.set_num_threads(before)


@torch.inference_mode()
def _seconds(sizes: Sizes, dtype: torch.dtype) -> float:
    """Return the shortest of three timings, after one that does not count."""
    weights = [torch.randn(shapes[0], dtype=dtype) for shapes in sizes.linear.values() if shapes]
    inputs = [(torch.randn(rows, len(weight), dtype=dtype), weight) for rows in ROWS for weight in weights]
    found = []
    for _ in range(4):
        began = time.perf_counter()
        for rows, weight in inputs:
            rows @ weight
        found.append(time.perf_counter() - began)
    return min(found[1:])
