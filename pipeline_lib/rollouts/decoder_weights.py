"""Weights of a Llama-family model (Llama, Qwen2, Qwen3), laid out for decoding.

Query, key and value weights form one matrix, gate and up another.  The rows of the query and key weights are reordered
so that the two numbers that a rotary embedding rotates together are adjacent; inner products of queries and keys do not
change.  For fp32 on the CPU, the weight of a norm is multiplied into the next matrix, exact up to rounding of the last
bit.  `unsupported` returns why a model cannot be laid out like this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

ARCHITECTURES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model: ``heads`` query heads share ``kv_heads`` key/value heads of ``head_size`` numbers."""

    width: int
    depth: int
    heads: int
    kv_heads: int
    head_size: int
    context: int
    vocabulary: int
    eps: float
    tied: bool

    @classmethod
    def of(cls, config: Any) -> Shape:
        """Read the sizes from a transformers configuration."""
        heads = int(config.num_attention_heads)
        return cls(
            width=int(config.hidden_size),
            depth=int(config.num_hidden_layers),
            heads=heads,
            kv_heads=int(config.num_key_value_heads),
            head_size=int(getattr(config, "head_dim", None) or config.hidden_size // heads),
            context=int(config.max_position_embeddings),
            vocabulary=int(config.vocab_size),
            eps=float(config.rms_norm_eps),
            tied=bool(config.tie_word_embeddings),
        )


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer; matrices are ``[out, in]`` as in torch.nn.Linear.

    ``qkv`` holds the rows of all query heads, then key heads, then value heads.  ``heads_norm`` is ``[query + key
    heads, head size]``, None if the architecture does not normalise queries and keys.  The other norms are ``[width]``,
    None if they have been multiplied into the next matrix.
    """

    attention_norm: Tensor | None
    qkv: Tensor
    qkv_bias: Tensor | None
    heads_norm: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    mlp_norm: Tensor | None
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights; ``head`` is ``[vocabulary, width]``."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor | None
    head: Tensor


def unsupported(model: PreTrainedModel) -> str | None:
    """Return why a plain (adapter-free) model cannot be laid out here, or None if it can."""
    config: Any = model.config
    if config.model_type not in ARCHITECTURES or type(model).__name__.lower() != f"{config.model_type}forcausallm":
        return f"architecture {type(model).__name__}"
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
        return "sliding-window attention"
    if config.hidden_act != "silu":
        return f"activation {config.hidden_act}"
    rotary: Any = model.get_submodule("model.rotary_emb")
    if getattr(rotary, "rope_type", "default") not in ("default", "linear", "llama3", "yarn"):
        return f"rotary embedding {rotary.rope_type}"
    if 2 * len(rotary.inv_freq) != Shape.of(config).head_size:
        return "partial rotary embedding"
    if any(p.dtype not in (torch.float32, torch.bfloat16, torch.float16) for p in model.parameters()):
        return "quantised weights"
    return None


def rotations(model: PreTrainedModel, device: torch.device) -> Tensor:
    """Return the rotations of every position as ``[context, head size / 2]`` complex64, attention scaling included."""
    rotary: Any = model.get_submodule("model.rotary_emb")
    positions = torch.arange(Shape.of(model.config).context, dtype=torch.float32)
    angles = torch.outer(positions, rotary.inv_freq.float().cpu())
    return torch.polar(torch.full_like(angles, float(rotary.attention_scaling)), angles).to(device)


def fuse(
    state: Mapping[str, Tensor],
    shape: Shape,
    device: torch.device,
    dtype: torch.dtype,
    fold: bool,
    by_column: bool,
    into: Weights | None,
) -> Weights:
    """Lay out a plain model's ``state_dict``; the result shares no memory with it.

    Args:
        state: weights under the names of transformers' Llama family.
        shape: sizes of the model.
        device: device of the copy.
        dtype: its dtype.
        fold: multiply the weights of norms, and the square root of their width, into the next matrix (see
            `kernels.LeanKernels`).
        by_column: store matrices in column-major order.
        into: earlier result to overwrite in place, layer by layer (addresses stay the same), or None.
    """

    def get(name: str) -> Tensor:
        return state[name].detach().to(device, dtype, copy=True)

    def optional(name: str) -> Tensor | None:
        return get(name) if name in state else None

    def pair(rows: Tensor) -> Tensor:
        split = rows.view(-1, 2, shape.head_size // 2, *rows.shape[1:])
        return split.transpose(1, 2).reshape(rows.shape)

    def behind(norm: str, matrix: Tensor) -> tuple[Tensor | None, Tensor]:
        weight = get(norm)
        return (None, laid(matrix * (weight * shape.width**0.5))) if fold else (weight, laid(matrix))

    def laid(matrix: Tensor) -> Tensor:
        return matrix.t().contiguous().t() if by_column else matrix

    def layer(at: str) -> Layer:
        attention, mlp = at + "self_attn.", at + "mlp."

        def qkv(kind: str) -> Tensor:
            query, key, value = (get(f"{attention}{part}_proj.{kind}") for part in "qkv")
            return torch.cat([pair(query), pair(key), value])

        def gate_up(kind: str) -> Tensor:
            return torch.cat([get(f"{mlp}{part}_proj.{kind}") for part in ("gate", "up")])

        heads_norm = None
        if attention + "q_norm.weight" in state:
            query, key = (pair(get(f"{attention}{part}_norm.weight")) for part in "qk")
            heads_norm = torch.stack([query] * shape.heads + [key] * shape.kv_heads)
            heads_norm = heads_norm * shape.head_size**0.5 if fold else heads_norm
        attention_norm, qkv_weight = behind(at + "input_layernorm.weight", qkv("weight"))
        mlp_norm, gate_up_weight = behind(at + "post_attention_layernorm.weight", gate_up("weight"))
        return Layer(
            attention_norm=attention_norm,
            qkv=qkv_weight,
            qkv_bias=qkv("bias") if attention + "q_proj.bias" in state else None,
            heads_norm=heads_norm,
            out=laid(get(attention + "o_proj.weight")),
            out_bias=optional(attention + "o_proj.bias"),
            mlp_norm=mlp_norm,
            gate_up=gate_up_weight,
            gate_up_bias=gate_up("bias") if mlp + "gate_proj.bias" in state else None,
            down=laid(get(mlp + "down_proj.weight")),
            down_bias=optional(mlp + "down_proj.bias"),
        )

    embedding = _overwrite(get("model.embed_tokens.weight"), into and into.embedding)
    norm, head = behind("model.norm.weight", embedding if shape.tied else get("lm_head.weight"))
    layers = []
    for number in range(shape.depth):
        new, old = layer(f"model.layers.{number}."), into and into.layers[number]
        settled = {f.name: _overwrite(getattr(new, f.name), getattr(old, f.name, None)) for f in fields(Layer)}
        layers.append(Layer(**settled))
    own_head = embedding if head is embedding else _overwrite(head, into and into.head)
    return Weights(embedding, tuple(layers), _overwrite(norm, into and into.norm), own_head)


def _overwrite(new: Any, old: Any) -> Any:
    """Return ``old`` overwritten with ``new``, or ``new`` if ``old`` is None."""
    return new if old is None else old.copy_(new)
