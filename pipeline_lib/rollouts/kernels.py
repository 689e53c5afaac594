"""The operations of a decoder layer, in torch's fastest exact form for the device.

`PlainKernels` runs everywhere.  `LeanKernels` is for fp32 on the CPU, where a step of a small model is bound by the
number of operations: norms take three (their weights are multiplied into the next matrix), and residuals are added
inside the matrix product.  On Intel's processors MKL computes products, since small ones take half the time of oneDNN;
on others oneDNN does, since MKL is up to twice as slow.  Direct calls of oneDNN do not change torch's process-wide
matmul precision, which training sets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from pipeline_lib.processor import on_intel

if TYPE_CHECKING:
    from torch import Tensor


#: Maximum sequence length (tokens) for `plain_attention` on the CPU.
PLAIN_TOKENS = 256


class Kernels(ABC):
    """Operations on ``[tokens, features]``.

    ``fold`` and ``by_column`` are arguments of `decoder_weights.fuse`; ``compiles``: each new number of rows costs the
    time of a step or two.
    """

    fold: bool
    by_column = False
    compiles = False

    @abstractmethod
    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return ``x @ weight.T + bias``."""

    @abstractmethod
    def linear_add(self, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor) -> Tensor:
        """Return ``residual + x @ weight.T + bias``."""

    @abstractmethod
    def normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Divide by the root mean square of the last dimension (arXiv 1910.07467) and multiply by ``weight``.

        ``weight`` is ``[features]``, ``[heads, features]`` for ``x`` ``[tokens, heads, features]``, or None for ones.
        """


class PlainKernels(Kernels):
    """Kernels for any device and dtype."""

    fold = False

    def __init__(self, eps: float) -> None:
        self._eps = eps
        self._floor = torch.tensor(eps)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(x, weight, bias)

    def linear_add(self, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor) -> Tensor:
        return residual + functional.linear(x, weight, bias)

    def normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        if x.device.type == "cpu":  # torch's own has several times as many operations there
            numbers = x.float()
            length = torch.linalg.vector_norm(numbers, dim=-1, keepdim=True)
            normed = numbers * torch.addcmul(self._floor, length, length, value=1 / x.shape[-1]).rsqrt_()
            return (normed if weight is None else normed.mul_(weight)).to(x.dtype)
        if weight is None or weight.dim() == 1:
            return functional.rms_norm(x, x.shape[-1:], weight, self._eps)
        return functional.rms_norm(x, x.shape[-1:], None, self._eps) * weight


class LeanKernels(Kernels):
    """Kernels for fp32 on the CPU, with the BLAS that torch calls by default.

    With n numbers, x / sqrt(mean(x^2) + eps) = sqrt(n) * x / hypot(|x|, sqrt(n eps)); the root of n is part of the
    weights.  Matrices are stored in column-major order, so that MKL need not copy them for few rows.
    """

    fold = True
    by_column = True

    def __init__(self, eps: float, widths: tuple[int, ...]) -> None:
        self._floor = {width: torch.tensor((width * eps) ** 0.5) for width in widths}

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())

    def linear_add(self, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor) -> Tensor:
        return torch.addmm(residual if bias is None else residual + bias, x, weight.t())

    def normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Divide by the root of the sum of squares (floored) and multiply by ``weight``."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        normed = x / torch.hypot(length, self._floor[x.shape[-1]])
        return normed if weight is None else normed * weight


class OneDnnKernels(LeanKernels):
    """The same with matrix products of oneDNN."""

    by_column = False
    compiles = True

    def __init__(self, eps: float, widths: tuple[int, ...]) -> None:
        super().__init__(eps, widths)
        self._product = torch.ops.mkldnn._linear_pointwise

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        product: Tensor = self._product(x, weight, bias, "none", [], "")
        return product

    def linear_add(self, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor) -> Tensor:
        total: Tensor = self._product.binary(x, residual, weight, bias, "add")
        return total


def kernels_for(device: torch.device, dtype: torch.dtype, eps: float, widths: tuple[int, ...]) -> Kernels:
    """Return the fastest kernels; ``widths`` are the sizes of the dimensions that are normalised."""
    if device.type != "cpu" or dtype != torch.float32:
        return PlainKernels(eps)
    if torch.backends.mkldnn.is_available() and not (torch.backends.mkl.is_available() and on_intel()):
        return OneDnnKernels(eps, widths)
    return LeanKernels(eps, widths)


class BaseKernels(PlainKernels):
    """Kernels for fp32 on the CPU with weights as a trained model has them; products are oneDNN's."""

    def __init__(self, eps: float) -> None:
        super().__init__(eps)
        self._product = torch.ops.mkldnn._linear_pointwise

    linear = OneDnnKernels.linear
    linear_add = OneDnnKernels.linear_add


class PackedKernels(PlainKernels):
    """Kernels for bfloat16 on the CPU whose weights may be packed for oneDNN (`packed`)."""

    def __init__(self, eps: float) -> None:
        super().__init__(eps)
        self._product = torch.ops.mkldnn._linear_pointwise

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not weight.is_mkldnn:
            return super().linear(x, weight, bias)
        product: Tensor = self._product(x, weight, bias, "none", [], "")
        return product

    def linear_add(self, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor) -> Tensor:
        if not weight.is_mkldnn:
            return super().linear_add(x, weight, bias, residual)
        total: Tensor = self._product.binary(x, residual, weight, bias, "add")
        return total


def packed(weight: Tensor) -> Tensor:
    """Return a copy of a matrix in the order in which oneDNN reads it, for `PackedKernels`.

    Otherwise every product packs it again.  A product of few rows takes a quarter less time so, one with the output
    layer half.
    """
    found: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return found


def base_kernels(device: torch.device, dtype: torch.dtype, eps: float) -> Kernels:
    """Return the fastest kernels for weights that a trained model also uses."""
    if device.type == "cpu" and dtype == torch.float32 and torch.backends.mkldnn.is_available() and not on_intel():
        return BaseKernels(eps)
    if device.type == "cpu" and dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return PackedKernels(eps)
    return PlainKernels(eps)


def rotate(pairs: Tensor, rotations: Tensor, out: Tensor) -> None:
    """Apply rotary position embeddings (arXiv 2104.09864) to neighbouring pairs of the last dimension.

    Args:
        pairs: ``[tokens, heads, head size]`` real.
        rotations: ``[tokens, 1, head size / 2]`` complex64.
        out: result, shaped like ``pairs`` (may be ``pairs`` itself).
    """
    if pairs.dtype == torch.float32:
        shape = (*pairs.shape[:-1], -1, 2)
        torch.mul(
            torch.view_as_complex(pairs.view(shape)), rotations, out=torch.view_as_complex(out.unflatten(-1, (-1, 2)))
        )
    else:
        rotated = torch.view_as_complex(pairs.float().unflatten(-1, (-1, 2))) * rotations
        out.copy_(torch.view_as_real(rotated).flatten(-2))


def halves(rotations: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines, and sines with their signs, of `rotate_halves` for the rotations of `rotate`."""
    cosines, sines = rotations.real, rotations.imag
    return torch.cat([cosines, cosines], -1), torch.cat([-sines, sines], -1)


def rotate_halves(heads: Tensor, cosines: Tensor, sines: Tensor, out: Tensor) -> None:
    """Apply rotary position embeddings to number i and number i + size / 2 of the last dimension (Llama's layout).

    Args:
        heads: ``[tokens, heads, head size]``.
        cosines, sines: ``[tokens, 1, head size]`` float32, see `halves`.
        out: result, shaped like ``heads`` (may be ``heads`` itself).
    """
    numbers = heads.float()
    turned = numbers * cosines
    out.copy_(turned.addcmul_(numbers.roll(heads.shape[-1] // 2, -1), sines))


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Compute causal attention.

    For short sequences on the CPU `plain_attention` is faster than torch's fused kernel (several times faster if fast
    matrix products are enabled).

    Args:
        query: ``[sequences, heads, tokens, head size]``.
        key: ``[sequences, kv heads, tokens, head size]``.
        value: like ``key``.

    Returns:
        Like ``query``.
    """
    tokens = query.shape[2]
    if query.device.type != "cpu" or tokens > PLAIN_TOKENS:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    return plain_attention(query, key, value, torch.ones(tokens, tokens, dtype=torch.bool).triu_(1))


def plain_attention(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
    """Compute attention without a fused kernel.

    Args:
        query, key, value: see `causal_attention`.
        hidden: ``[tokens, tokens]`` bool, whether a token (row) must not attend to another (column).
    """
    tokens, size = query.shape[2:]
    kv_heads, share = key.shape[1], query.shape[1] // key.shape[1]
    rows = (
        query.unflatten(1, (kv_heads, share)).flatten(2, 3).flatten(0, 1)
    )  # [sequences * kv heads, share * tokens, size]
    scores = torch.bmm(rows, key.flatten(0, 1).transpose(1, 2)).mul_(size**-0.5)
    scores.masked_fill_(hidden.repeat(share, 1), float("-inf"))
    mixed = torch.bmm(scores.softmax(-1, dtype=torch.float32).to(value.dtype), value.flatten(0, 1))
    return mixed.view(-1, kv_heads, share, tokens, size).flatten(1, 2)
