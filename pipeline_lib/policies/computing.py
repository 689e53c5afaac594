"""How a model computes on the CPU: how many threads, which products of matrices, and in which type.

Small models use one thread: with two, their products are not faster on an idle machine and five to twenty times slower
on a busy one.  Larger models use all cores that the process may use.  The rule depends on the model alone, so a run
that continues uses as many as before; another number changes sums by rounding.

In training, small models use faster float32 products (``torch.set_float32_matmul_precision("medium")``) if a
measurement shows that they keep float32 accuracy; processors with matrix units may round to bfloat16 there, which would
cause a mismatch between engine and trainer.  Large models do without: oneDNN then compiles a kernel for each new shape
of a product and keeps it, and lengths and numbers of rows are hardly ever the same twice, so a process would grow by
some 30 MB with each update.

Where ``policy.dtype`` is ``auto``, which of float32 and bfloat16 is faster depends on the processor: with matrix units
or AVX-512's products of bfloat16 the latter, without them it is many times slower.  So the products of the model's
shapes are timed when the base is made, and the choice is recorded with it: every stage after that computes in this
type, on whatever machine it runs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from pipeline_lib.memory import SMALL_MODEL
from pipeline_lib.policies.embedded import single_core_numerics

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Team
    from pipeline_lib.policies.sizes import Sizes
    from pipeline_lib.settings.policy import PretrainedPolicy


def is_large(team: Team) -> bool:
    """Return whether a model of the team has more than `SMALL_MODEL` parameters."""
    sizes = (sum(p.numel() for _, p in policy.model.named_parameters()) for policy in team.policies.values())
    return max(sizes, default=0) > SMALL_MODEL


def threads_for(team: Team) -> int:
    """Return the number of threads for the largest model of a team."""
    return len(os.sched_getaffinity(0)) if is_large(team) else 1


@contextlib.contextmanager
def right_threads(team: Team) -> Iterator[None]:
    """Let torch use the right number of threads for a team in a ``with`` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads_for(team))
    try:
        yield
    finally:
        torch.set_num_threads(before)


#: Greatest relative error (to the largest entry) of a product that still counts as float32.
FLOAT32_ERROR = 1e-5


@contextlib.contextmanager
def cpu_numerics(threads: int = 1, large: bool = False) -> Iterator[None]:
    """Use so many threads and the float32 products for a small or ``large`` model, and restore both afterwards."""
    with single_core_numerics():
        torch.set_num_threads(threads)
        if large or product_error() > FLOAT32_ERROR:
            torch.set_float32_matmul_precision("highest")
        yield


def product_error() -> float:
    """Return the error of a 256 x 256 product at the present precision, relative to its largest entry."""
    values = torch.linspace(-1, 1, 256 * 256).reshape(256, 256).sin()
    exact = values.double() @ values.double().T
    return float(((values @ values.T).double() - exact).abs().max() / exact.abs().max())


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
