"""The frozen weights of a Llama-family model with joined matrices, of which the trained models then hold views.

So decoding and training need no copy of the base.  Adapters (LoRA, arXiv 2106.09685) stay apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pipeline_lib.rollouts.decoder_weights import Layer, Shape, Weights

if TYPE_CHECKING:
    from torch import Tensor, nn

#: The matrices of a layer: field of `Layer`, and the modules whose weights it joins.
MATRICES = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


@dataclass(frozen=True, slots=True)
class Adapter:
    """One module's adapter: ``reduce`` is ``[rank, in]``, ``expand`` ``[out, rank]``."""

    reduce: nn.Parameter
    expand: nn.Parameter
    scale: float


def adapters_of(plain: Any) -> dict[tuple[int, str], Adapter]:
    """Return a model's adapters by number of the layer and path of the module."""
    found = {}
    for number, layer in enumerate(plain.model.layers):
        for path in (path for paths in MATRICES.values() for path in paths):
            module: Any = layer.get_submodule(path)
            for name in getattr(module, "active_adapters", ()):
                found[number, path] = Adapter(
                    module.lora_A[name].weight, module.lora_B[name].weight, module.scaling[name]
                )
    return found


def linear(layer: Any, path: str) -> Any:
    """Return the linear layer at a path, without its adapter."""
    module = layer.get_submodule(path)
    return getattr(module, "base_layer", module)


def base_weights(plain: Any) -> Weights:
    """Return the base's weights as the model has them; its matrices become parts of the joined ones."""
    shape = Shape.of(plain.config)

    def heads_norm(layer: Any) -> Tensor | None:
        if not hasattr(layer.self_attn, "q_norm"):
            return None
        query, key = layer.self_attn.q_norm.weight, layer.self_attn.k_norm.weight
        return torch.stack([query.detach()] * shape.heads + [key.detach()] * shape.kv_heads)

    def lay_out(layer: Any) -> Layer:
        joined: dict[str, Any] = {}
        for matrix, paths in MATRICES.items():
            modules = [linear(layer, path) for path in paths]
            joined[matrix] = _join([module.weight for module in modules])
            biases = [module.bias for module in modules]
            joined[f"{matrix}_bias"] = None if biases[0] is None else _join(biases)
        return Layer(
            attention_norm=layer.input_layernorm.weight.detach(),
            heads_norm=heads_norm(layer),
            mlp_norm=layer.post_attention_layernorm.weight.detach(),
            **joined,
        )

    return Weights(
        embedding=plain.get_input_embeddings().weight.detach(),
        layers=tuple(lay_out(layer) for layer in plain.model.layers),
        norm=plain.model.norm.weight.detach(),
        head=plain.get_output_embeddings().weight.detach(),
    )


def _join(parts: Sequence[Any]) -> Tensor:
    """Return parameters one below the other as one tensor, of which they are views from now on."""
    storage, start, place = parts[0].untyped_storage().data_ptr(), parts[0].storage_offset(), 0
    joined = True
    for part in parts:
        joined &= part.untyped_storage().data_ptr() == storage and part.storage_offset() == start + place
        place += part.numel()
    if joined:  # before
        rows = sum(map(len, parts))
        return parts[0].detach().as_strided((rows, *parts[0].shape[1:]), parts[0].stride(), start)
    whole = torch.cat([part.detach() for part in parts])
    for part, piece in zip(parts, whole.split([len(part) for part in parts]), strict=True):
        part.data = piece
    return whole
