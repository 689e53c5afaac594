"""A linear layer with a LoRA adapter as one operation of the update.

peft computes ``W x + b``, casts ``x`` to float32 for the adapter, and multiplies and adds in the width of the output:
half a dozen tensors of that width for each layer, kept for the backward pass or computed again.  Here the adapter's
share is added inside the matrix products, in the type of the base, and only ``x`` and ``A x`` are kept; under gradient
checkpointing the result is, as far as there is room (`kept_products`).
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor
from torch.nn import functional

from pipeline_lib.policies.kept_products import recorded, replayed


class AdaptedLinear(Linear):
    """peft's linear layer with the same weights, names and results (up to rounding), and a faster forward pass."""

    def forward(self, x: Tensor, *given: Any, **more: Any) -> Tensor:
        """Return ``W x + b + scale B A x``, ``[..., out]``, for ``[..., in]``, in the type of ``W``."""
        base: Any = self.get_base_layer()
        if self.disable_adapters or self.merged or base.weight.requires_grad or len(self.active_adapters) != 1:
            result: Tensor = super().forward(x, *given, **more)
            return result
        name = self.active_adapters[0]
        weights = self.lora_A[name].weight, self.lora_B[name].weight
        result = _Adapted.apply(x, base.weight, base.bias, *weights, self.scaling[name])
        # Not a view made inside of the function: some models (Falcon) add to a layer's output in place.
        return result.view(*x.shape[:-1], -1)


class _Adapted(torch.autograd.Function):
    """``W x + b + scale B A x`` with a frozen ``W`` and ``b``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, reduce: Tensor, expand: Tensor, scale: float
    ) -> Tensor:
        """Return ``[tokens, out]``; ``reduce`` (A) is ``[rank, in]``, ``expand`` (B) ``[out, rank]``."""
        with torch.autocast(x.device.type, enabled=False):
            flat = x.reshape(-1, x.shape[-1]).to(weight.dtype)
            if (kept := replayed()) is not None:
                out, low = kept
            else:
                low = flat @ reduce.to(weight.dtype).t()  # [tokens, rank]
                out = functional.linear(flat, weight, bias).addmm_(low, expand.to(weight.dtype).t(), alpha=scale)
                recorded((out, low))
        ctx.save_for_backward(flat, low, weight, reduce, expand)
        ctx.scale, ctx.shape, ctx.kind = scale, x.shape, x.dtype
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of ``x`` and of the adapter."""
        flat, low, weight, reduce, expand = ctx.saved_tensors
        with torch.autocast(gradient.device.type, enabled=False):
            given = gradient.to(weight.dtype)
            through = (given @ expand.to(weight.dtype)).mul_(ctx.scale)  # [tokens, rank]
            of_input = None
            if ctx.needs_input_grad[0]:
                of_input = (given @ weight).addmm_(through, reduce.to(weight.dtype)).to(ctx.kind)
                of_input = of_input.view(ctx.shape)
            of_reduce = (through.t() @ flat).to(reduce.dtype)
            of_expand = (given.t() @ low).mul_(ctx.scale).to(expand.dtype)
        return of_input, None, None, of_reduce, of_expand, None
