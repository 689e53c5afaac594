"""How matrix products are computed on the CPU during training.

`pipeline_lib.policies.threads` says how many threads.  For small models, faster float32 products
(``torch.set_float32_matmul_precision("medium")``) are used if a measurement shows that they keep float32 accuracy;
processors with matrix units may round to bfloat16 there, which would cause a mismatch between engine and trainer.

Large models do without: oneDNN then compiles a kernel for each new shape of a product and keeps it, and lengths and
numbers of rows are hardly ever the same twice, so a process would grow by some 30 MB with each update.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from pipeline_lib.policies.embedded import single_core_numerics

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
