"""``policy``: the language models of the team."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline_lib.settings.base import FileName, Machine, Section


class NoAdapter(Section):
    """All parameters are trained."""

    kind: Literal["none"] = "none"


class LoraAdapter(Section):
    """Low-rank adapters (arXiv 2106.09685) are trained in fp32; the base stays as it is."""

    kind: Literal["lora"] = "lora"
    rank: int = Field(16, ge=1, description="rank of the update")
    alpha: float = Field(32.0, gt=0, description="scale; the update is multiplied by alpha / rank")
    targets: tuple[str, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        min_length=1,
        description="names of the linear layers that carry an adapter",
    )


Adapter = Annotated[NoAdapter | LoraAdapter, Field(discriminator="kind")]


class WarmStart(Section):
    """Supervised training of the embedded model on demonstrations of mixed style with planted mistakes."""

    steps: int = Field(600, ge=1, description="optimiser steps")
    batch: int = Field(32, ge=1, description="demonstrations per step")
    learning_rate: float = Field(3e-3, gt=0, lt=1, description="peak learning rate (AdamW)")
    mistakes: float = Field(0.2, ge=0, lt=1, description="share of demonstrations with a planted mistake")


class EmbeddedPolicy(Section):
    """A tiny Qwen3-architecture model and tokenizer, built from nothing; runs anywhere in seconds."""

    kind: Literal["embedded"] = "embedded"
    seed: int = Field(0, ge=0, description="seed of weights and warm start")
    parameters: Literal["separate", "shared"] = Field(
        "separate", description="one set of weights per agent, or one for all"
    )
    hidden_size: int = Field(128, ge=16, description="width")
    layers: int = Field(2, ge=1, description="number of transformer layers")
    heads: int = Field(4, ge=1, description="attention heads")
    kv_heads: int = Field(2, ge=1, description="key/value heads")
    mlp_size: int = Field(320, ge=16, description="width of the feed-forward layer")
    vocabulary: int = Field(512, ge=280, le=4096, description="size of the byte-level BPE vocabulary")
    context: int = Field(1024, ge=64, description="most tokens of prompt and action together")
    initializer_range: float = Field(
        0.02, gt=0, le=1, description="standard deviation of the weights before the warm start"
    )
    adapter: Adapter = NoAdapter()
    warm_start: WarmStart = WarmStart()

    @model_validator(mode="after")
    def _heads_fit(self) -> EmbeddedPolicy:
        if self.hidden_size % self.heads or self.heads % self.kv_heads:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) must be a multiple of heads ({self.heads}), "
                f"and heads a multiple of kv_heads ({self.kv_heads})"
            )
        return self


class PretrainedPolicy(Section):
    """Any causal language model that transformers loads, by hub id or path."""

    kind: Literal["pretrained"] = "pretrained"
    models: tuple[FileName, ...] = Field(
        min_length=1, description="hub id or path; one for all agents, or one per agent"
    )
    revision: str = Field("main", description="hub revision (branch, tag or commit)")
    parameters: Literal["separate", "shared"] = Field(
        "separate", description="one set of weights per agent, or one for all"
    )
    dtype: Literal["float32", "bfloat16"] = Field("bfloat16", description="compute type; trained weights stay fp32")
    attention: Literal["eager", "sdpa", "flash_attention_2"] = Field("sdpa", description="attention implementation")
    chat: Literal["auto", "never"] = Field("auto", description="use the tokenizer's chat template where it has one")
    stop_strings: tuple[str, ...] = Field((), description="texts that end an action, for base models")
    gradient_checkpointing: Machine[bool] = Field(
        True, description="recompute activations in the update to save memory"
    )
    adapter: Adapter = LoraAdapter()


Policy = Annotated[EmbeddedPolicy | PretrainedPolicy, Field(discriminator="kind")]
