"""The sizes of a model, from its config.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from pipeline_lib.policies.model_config import CONFIG, load_config
from pipeline_lib.policies.policy import PolicyError, section_of

if TYPE_CHECKING:
    from pipeline_lib.settings.policy import Policy as PolicySettings
    from pipeline_lib.settings.policy import PretrainedPolicy

#: Architectures whose sizes are computed here; of others, transformers makes a model without memory for its weights.
FAMILY = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a model."""

    parameters: int  #: P; tied weights count once
    depth: int  #: layers
    heads: int  #: query heads of each layer
    width: int  #: numbers in a hidden state of a token
    inner: int  #: numbers in the feed-forward layer of a token
    query: int  #: numbers in all query heads of a token
    kv: int  #: numbers in all key heads of a token
    vocabulary: int  #: number of token ids
    context: int  #: most tokens of prompt and action together
    #: ``(in, out)`` of every linear layer below the head, by the last part of its name.
    linear: Mapping[str, Sequence[tuple[int, int]]]
    fused: bool = True  #: the fast decoder takes this architecture
    whole_logits: bool = False  #: the head cannot be applied to single positions


def sizes_of(config: Mapping[str, Any]) -> Sizes:
    """Return the sizes of a model from the content of its config.json; no weights are loaded or allocated.

    Raises:
        ValueError, KeyError: transformers knows no such model.
    """
    return _of_family(config) if config["model_type"] in FAMILY else _of_any(config)


def embedded_sizes(section: Any) -> Sizes:
    """Return the sizes of the embedded model of a ``policy`` section (`pipeline_lib.policies.embedded`)."""
    return _of_family(
        {
            "model_type": "qwen3",
            "hidden_size": section.hidden_size,
            "intermediate_size": section.mlp_size,
            "num_hidden_layers": section.layers,
            "num_attention_heads": section.heads,
            "num_key_value_heads": section.kv_heads,
            "vocab_size": section.vocabulary,
            "max_position_embeddings": section.context,
            "head_dim": section.hidden_size // section.heads,
            "tie_word_embeddings": True,
        }
    )


def _of_family(config: Mapping[str, Any]) -> Sizes:
    kind, width, inner = config["model_type"], int(config["hidden_size"]), int(config["intermediate_size"])
    heads, depth = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
    size = int(config.get("head_dim") or width // heads)
    query, kv = heads * size, int(config.get("num_key_value_heads") or heads) * size
    attention = {"q_proj": (width, query), "k_proj": (width, kv), "v_proj": (width, kv), "o_proj": (query, width)}
    mlp = {"gate_proj": (width, inner), "up_proj": (width, inner), "down_proj": (inner, width)}
    layer = sum(rows * columns for rows, columns in (attention | mlp).values()) + 2 * width
    if kind == "qwen2":
        layer += query + 2 * kv
    elif config.get("attention_bias"):
        layer += query + 2 * kv + width
    layer += 2 * size * (kind == "qwen3") + (2 * inner + width) * bool(config.get("mlp_bias"))
    vocabulary = int(config["vocab_size"])
    tables = 1 if config.get("tie_word_embeddings") else 2
    return Sizes(
        parameters=tables * vocabulary * width + depth * layer + width,
        depth=depth,
        heads=heads,
        width=width,
        inner=inner,
        query=query,
        kv=kv,
        vocabulary=vocabulary,
        context=int(config.get("max_position_embeddings") or 2**31),
        linear={name: [shape] * depth for name, shape in (attention | mlp).items()},
    )


def _of_any(config: Mapping[str, Any]) -> Sizes:
    # It loads torch and transformers, for seconds; the usual architectures do without.
    from pipeline_lib.policies.pretrained import linear_layers, without_weights

    model = without_weights(config)
    text = model.config.get_text_config()
    width = int(text.hidden_size)
    heads = int(getattr(text, "num_attention_heads", None) or 1)
    size = int(getattr(text, "head_dim", None) or width // heads)
    return Sizes(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        depth=int(text.num_hidden_layers),
        heads=heads,
        width=width,
        inner=int(getattr(text, "intermediate_size", None) or 4 * width),
        query=heads * size,
        kv=int(getattr(text, "num_key_value_heads", None) or heads) * size,
        vocabulary=int(text.vocab_size),
        context=int(getattr(text, "max_position_embeddings", None) or 2**31),
        linear=linear_layers(model),
        fused=False,
        whole_logits=bool(getattr(text, "final_logit_softcapping", None) or getattr(text, "logit_scale", None)),
    )


def models_of(policy: PretrainedPolicy, names: Sequence[str]) -> list[str]:
    """Return the model behind each policy; one agent in place of a team of several models has the largest.

    Raises:
        PolicyError: there are more or fewer models than policies, or a configuration cannot be had.
    """
    models = list(policy.models)
    if len(models) == 1:
        return models * len(names)
    if len(names) == 1 and policy.parameters == "separate":
        return [max(models, key=lambda path: sizes_of(load_config(path, policy.revision, True) or {}).parameters)]
    if len(models) != len(names):
        raise PolicyError(
            f"policy.models: {len(models)} models for {len(names)} policies ({', '.join(names)}); give one model, or "
            "one per policy in this order"
        )
    return models


def known_sizes(policy: PolicySettings, names: Sequence[str], fetch: bool = False) -> dict[str, Sizes] | None:
    """Return the sizes of each policy's model; None where a configuration is not at hand.

    Args:
        policy: the section.
        names: of the policies.
        fetch: ask the hub for a configuration that is not at hand.

    Raises:
        PolicyError: there is no such file, it is not that of a causal language model, or, with ``fetch``, there is no
            such model.
    """
    if policy.kind == "embedded":
        return {name: embedded_sizes(section_of(policy, name)) for name in names}
    models = models_of(policy, names)
    found: dict[str, Sizes] = {}
    for path in dict.fromkeys(models):
        config = load_config(path, policy.revision, fetch)
        if config is None:
            return None
        try:
            sizes = sizes_of(config)
        except Exception as error:  # whatever transformers raises at a configuration that nobody has checked
            reason = (str(error).strip().splitlines() or [""])[0][:300]
            raise PolicyError(
                f"policy.models: {path}: its {CONFIG} describes no causal language model that transformers "
                f"{metadata.version('transformers')} knows ({type(error).__name__}: {reason})"
            ) from error
        found |= {name: sizes for name, own in zip(names, models, strict=True) if own == path}
    return found
