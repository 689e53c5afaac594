"""LoRA adapters (arXiv 2106.09685) through peft, and a layer with one as one operation of the update.

Every policy has its own model object with one adapter in it, so adapters need not be switched before a forward pass;
the frozen weights below are the same tensors in memory for all policies with the same base.  Adapters are float32 for
any type of the base.

peft computes ``W x + b``, casts ``x`` to float32 for the adapter, and multiplies and adds in the width of the output:
half a dozen tensors of that width for each layer, kept for the backward pass or computed again.  Here the adapter's
share is added inside the matrix products, in the type of the base, and only ``x`` and ``A x`` are kept.  Under gradient
checkpointing what was kept of the first computation (`kept_products`) is not computed again.
"""

from __future__ import annotations

import copy
import logging
import weakref
from typing import TYPE_CHECKING, Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd
from transformers.pytorch_utils import Conv1D

from pipeline_lib.policies.kept_products import recorded, replayed
from pipeline_lib.policies.lora import ADAPTER
from pipeline_lib.policies.policy import PolicyError
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel

    from pipeline_lib.settings.policy import LoraAdapter

logger = logging.getLogger(__name__)

#: Models of which the log says what gets no adapters.
_told: weakref.WeakSet[nn.Module] = weakref.WeakSet()


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


def attach(base: PreTrainedModel, settings: LoraAdapter, name: str, seed: int) -> PeftModel:
    """Return a model with a new adapter on ``base``, whose weights are shared and frozen, not copied.

    Args:
        base: a plain model; its parameters are frozen, and it is not changed otherwise.
        settings: rank, scale and targets.
        name: the policy's name; with ``seed`` it determines the adapter's first weights.
        seed: training seed.

    Raises:
        PolicyError: a target is not a linear layer of the model, or its weights are tied to the embedding: merging an
            adapter into these would change the embedding, which training does not; or peft cannot adapt one.
    """
    targets = _targets(base, settings)
    alpha: Any = settings.alpha  # peft declares an int and computes with any number
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=alpha,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in base.modules()),
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(digest(["adapter", name, seed])[:15], 16))
        try:
            model = get_peft_model(_twin(base), config, adapter_name=ADAPTER)
        except ValueError as error:  # peft knows layers of some models (Mamba) that it cannot adapt
            raise PolicyError(
                f"policy.adapter.targets: {error}; name other layers, or set policy.adapter.kind=none"
            ) from error
    assert isinstance(model, PeftModel)
    # peft chooses the class of an adapted layer itself; weights and names stay those that it made.
    for module in model.modules():
        if type(module) is Linear and isinstance(module.get_base_layer(), nn.Linear):
            module.__class__ = AdaptedLinear
    return model


def _targets(base: PreTrainedModel, settings: LoraAdapter) -> list[str]:
    """Return the last parts of the names of the layers that get an adapter."""
    embedding, head = base.get_input_embeddings().weight, base.get_output_embeddings()
    linear = {
        path.rpartition(".")[2]: module is head
        for path, module in base.named_modules()
        if isinstance(module, nn.Linear | Conv1D)
        and module.weight is not embedding
        and not type(module).__name__.endswith("Router")  # of Llama 4 and Phi-3.5-MoE: it returns several tensors
    }
    if settings.targets == "all-linear":
        if found := [name for name, is_head in linear.items() if not is_head]:
            _tell_what_gets_none(base, found)
            return found
        raise PolicyError(
            f"policy.adapter: {type(base).__name__} has no linear layers for adapters; set policy.adapter.kind=none"
        )
    if unknown := [target for target in settings.targets if target not in linear]:
        raise PolicyError(
            f"policy.adapter.targets: {type(base).__name__} has no linear layer {unknown[0]!r} of its own; "
            f"it has {', '.join(sorted(linear))}"
        )
    return list(settings.targets)


def _tell_what_gets_none(base: PreTrainedModel, targets: Sequence[str]) -> None:
    """Warn once of weights that are stacks of matrices, such as those of experts: adapters are for linear layers."""
    stacks = [
        f"{path}.{name}"
        for path, module in base.named_modules()
        for name, weight in module.named_parameters(recurse=False)
        if weight.dim() == 3 and len(weight) > 1 and not isinstance(module, _ConvNd)
    ]
    if stacks and base not in _told:
        _told.add(base)
        logger.warning(
            "%s: %s and the like are no linear layers and get no adapters, so they are not trained; adapters go to %s",
            base.name_or_path or type(base).__name__, stacks[0], ", ".join(targets),
        )  # fmt: skip


def _twin(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of the module tree that holds the very same parameters and buffers."""
    shared = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})
