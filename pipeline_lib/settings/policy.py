"""``policy``: the language models of the team."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from pipeline_lib.settings.base import FileName, Machine, Section


class NoAdapter(Section):
    """All parameters are trained."""

    kind: Literal["none"] = "none"


class LoraAdapter(Section):
    """Low-rank adapters (arXiv 2106.09685) are trained in fp32; the base is not changed."""

    kind: Literal["lora"] = "lora"
    rank: int = Field(16, ge=1, description="rank of the update")
    alpha: float = Field(32.0, gt=0, description="scale; the update is multiplied by alpha / rank")
    targets: Annotated[tuple[str, ...], Field(min_length=1)] | Literal["all-linear"] = Field(
        "all-linear", description="names of the linear layers with an adapter; all-linear: all but the head"
    )


Adapter = Annotated[NoAdapter | LoraAdapter, Field(discriminator="kind")]


class WarmStart(Section):
    """Supervised training on the environment's demonstrations, which have mixed style and planted mistakes."""

    steps: int = Field(600, ge=1, description="optimiser steps")
    batch: int = Field(32, ge=1, description="demonstrations per step")
    learning_rate: float = Field(3e-3, gt=0, lt=1, description="peak learning rate (AdamW)")
    mistakes: float = Field(0.2, ge=0, lt=1, description="share of demonstrations with a planted mistake")
    later_turns: float = Field(
        0.5,
        ge=0,
        lt=1,
        description=(
            "share of demonstrations that show a later turn, with own code and feedback, or a tool; no effect if the "
            "environment has one turn and no tool, or demonstrates neither"
        ),
    )


class PretrainedWarmStart(WarmStart):
    """Supervised training of a pretrained model, of all weights or through ``policy.adapter``."""

    seed: int = Field(0, ge=0, description="seed of the demonstrations, their order, and the adapter's first weights")
    steps: int = Field(100, ge=1, description="optimiser steps")
    batch: int = Field(8, ge=1, description="demonstrations per step")
    learning_rate: float = Field(5e-4, gt=0, lt=1, description="peak learning rate (AdamW); all weights need less")


class Server(Section):
    """A model behind a server with an OpenAI-compatible API; it plays and is never trained."""

    url: str = Field(min_length=1, description="where the API begins, for example http://127.0.0.1:8000/v1")
    model: str = Field(min_length=1, description="the model's name on the server")
    api: Literal["chat", "completions"] = Field("chat", description="messages, or plain text")
    key_variable: str = Field("", description="environment variable that holds the key; empty for none")


class AgentPolicy(Section):
    """How one agent differs from the rest of the team; other settings are those of ``policy``."""

    trained: bool = Field(True, description="false: a frozen teammate, which stays as the base is")
    server: Server | None = Field(None, description="a model on a server plays this agent; it is not trained")
    adapter: Adapter | None = Field(None, description="in place of policy.adapter")
    learning_rate: float | None = Field(None, gt=0, lt=1, description="in place of train.learning_rate, the peak")
    temperature: float | None = Field(None, gt=0, le=5, description="in place of rollouts.temperature")

    @model_validator(mode="after")
    def _frozen_has_nothing_to_train(self) -> Self:
        given = {name for name in type(self).model_fields if getattr(self, name) is not None}
        if self.server is not None and (own := given - {"server", "trained", "temperature"}):
            raise ValueError(f"{min(own)} is about weights, and those of this agent are on a server; leave it out")
        if not self.trained and (own := given & {"adapter", "learning_rate"}):
            raise ValueError(f"{min(own)} is for an agent that is trained; leave it out, or set trained: true")
        return self


class EmbeddedAgent(AgentPolicy):
    """An agent with an embedded model of its own shape, which gets a warm start of its own."""

    seed: int | None = Field(None, ge=0, description="in place of policy.seed")
    hidden_size: int | None = Field(None, ge=16, description="in place of policy.hidden_size")
    layers: int | None = Field(None, ge=1, description="in place of policy.layers")
    heads: int | None = Field(None, ge=1, description="in place of policy.heads")
    kv_heads: int | None = Field(None, ge=1, description="in place of policy.kv_heads")
    mlp_size: int | None = Field(None, ge=16, description="in place of policy.mlp_size")
    vocabulary: int | None = Field(None, ge=280, le=4096, description="in place of policy.vocabulary")
    warm_start: WarmStart | None = Field(None, description="in place of policy.warm_start")


def _refuse_shared(parameters: str, agents: Mapping[str, AgentPolicy]) -> None:
    if parameters == "shared" and agents:
        raise ValueError(
            f"agents.{next(iter(agents))}: all agents use the same weights with parameters: shared; set it to separate"
        )


class EmbeddedPolicy(Section):
    """A tiny model with the architecture of Qwen3 and its tokenizer, built from nothing; runs anywhere in seconds."""

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
    context: int = Field(1024, ge=64, description="largest number of tokens of prompt and action together")
    initializer_range: float = Field(
        0.02, gt=0, le=1, description="standard deviation of the weights before the warm start"
    )
    adapter: Adapter = NoAdapter()
    warm_start: WarmStart = WarmStart()
    agents: Mapping[str, EmbeddedAgent] = Field({}, description="by agent, what differs: shape, training, sampling")

    @model_validator(mode="after")
    def _agents_fit(self) -> Self:
        _refuse_shared(self.parameters, self.agents)
        shared = self.model_dump(exclude={"agents"})
        for name, agent in self.agents.items():
            own = agent.model_dump(exclude_none=True, include=set(shared))
            try:
                EmbeddedPolicy.model_validate(shared | own)
            except ValidationError as error:
                reasons = "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())
                raise ValueError(f"agents.{name}: {reasons}") from None
        return self

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.hidden_size % self.heads or self.heads % self.kv_heads:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) must be a multiple of heads ({self.heads}), "
                f"and heads a multiple of kv_heads ({self.kv_heads})"
            )
        return self


class PretrainedPolicy(Section):
    """Any causal language model that transformers can load, by hub id, folder, GGUF file or name."""

    kind: Literal["pretrained"] = "pretrained"
    models: tuple[FileName, ...] = Field(
        min_length=1,
        description=(
            "hub id, folder, GGUF file, or a name that `symposium models` lists; one for all agents, or one per agent"
        ),
    )
    revision: str = Field("main", description="hub revision (branch, tag or commit)")
    parameters: Literal["separate", "shared"] = Field(
        "separate", description="one set of weights per agent, or one for all"
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "bfloat16",
        description="compute type; trained weights stay fp32; auto: the faster one where the base is made",
    )
    attention: Literal["auto", "eager", "sdpa", "flash_attention_2"] = Field(
        "auto", description="attention implementation; auto: sdpa where the model has all of it, else eager"
    )
    chat: Literal["auto", "never"] = Field("auto", description="use the tokenizer's chat template if it has one")
    stop_strings: tuple[str, ...] = Field((), description="texts that end an action, for base models")
    gradient_checkpointing: Machine[bool] = Field(
        True, description="recompute activations in the update to save memory"
    )
    adapter: Adapter = LoraAdapter()
    warm_start: PretrainedWarmStart | None = Field(
        None, description="a first training on the environment's demonstrations, all agents' in one; null for none"
    )
    agents: Mapping[str, AgentPolicy] = Field({}, description="by agent, what differs: adapter, training, sampling")

    @model_validator(mode="after")
    def _one_model_to_begin_with(self) -> Self:
        if self.warm_start is not None and len(set(self.models)) > 1:
            raise ValueError(
                f"warm_start trains one model for all agents, and models names {len(set(self.models))}; name one, or "
                "set warm_start to null"
            )
        return self

    @model_validator(mode="after")
    def _separate_weights(self) -> Self:
        _refuse_shared(self.parameters, self.agents)
        return self


Policy = Annotated[EmbeddedPolicy | PretrainedPolicy, Field(discriminator="kind")]
