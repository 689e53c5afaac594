"""``rollouts``: how actions are sampled, and by which engine."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline_lib.settings.base import Machine, Section


class _Rollouts(Section):
    """Protocol, and the distribution that actions are sampled from; training uses its log-probabilities."""

    protocol: Literal["decentralised", "sequential_pipeline", "one_round_discussion"] = Field(
        "decentralised",
        description=(
            "how the team acts in training, sweep and test: decentralised: each agent by itself; "
            "sequential_pipeline: each reads the agents before it; one_round_discussion: all write, read, write again"
        ),
    )

    temperature: float = Field(1.0, gt=0, le=5, description="divides the logits")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus mass; 1 keeps the full support")
    top_k: int = Field(0, ge=0, description="number of most likely tokens that are kept; 0 keeps all")
    max_new_tokens: int = Field(64, ge=1, description="largest number of tokens per action, including the end token")


class TransformersRollouts(_Rollouts):
    """Batched decoding in this process with a static key/value cache; runs on CPU and GPU."""

    kind: Literal["transformers"] = "transformers"
    rows: Machine[Annotated[int, Field(ge=1)] | Literal["auto"]] = Field(
        "auto",
        description=(
            "largest number of actions that are sampled at the same time, each with its place in the cache; auto: 256, "
            "or as many as fit into half of the free memory"
        ),
    )
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="type of the rollout copies' weights; auto keeps each policy's own"
    )
    cuda_graphs: Machine[bool] = Field(
        True, description="on a GPU, decode with captured graphs if a check succeeds, otherwise with plain steps"
    )


class VllmRollouts(_Rollouts):
    """vLLM, in a process, an environment and on GPUs of its own, in this process, or behind a server."""

    kind: Literal["vllm"] = "vllm"
    process: Machine[Literal["own", "inside", "server"]] = Field(
        "own",
        description="own: a separate process with the interpreter below; inside: this process; server: running servers",
    )
    python: Machine[str] = Field(
        ".venv-vllm/bin/python", description="own: interpreter with vLLM; empty for the current one"
    )
    urls: Machine[tuple[str, ...]] = Field(
        (), description="server: one `vllm serve` per engine, for example http://gpu7:8000"
    )
    rows: Machine[int] = Field(256, ge=1, description="actions that are sampled at the same time")
    dtype: Literal["auto", "float32", "bfloat16"] = Field("auto", description="type of the weights in vLLM")
    eager: Machine[bool] = Field(False, description="without compilation and CUDA graphs: starts faster, runs slower")
    memory: Machine[float] = Field(0.45, gt=0, lt=1, description="share of a GPU's memory for all engines together")
    cpu_cache_gib: Machine[int] = Field(
        1, ge=0, description="own, on a CPU: GiB of key/value cache; 0 leaves it to vLLM"
    )
    sleep: Machine[bool] = Field(False, description="free the GPU's memory between calls, so that a trainer can use it")
    tensor_parallel: Machine[int] = Field(
        1, ge=1, description="GPUs, or groups of cores, that share one copy of the weights"
    )
    replicas: Machine[int] = Field(1, ge=1, description="own: engines that share the requests (data parallel)")
    devices: Machine[tuple[int, ...]] = Field(
        (), description="own: GPUs for the engines, in order; empty: the first ones of the machine"
    )
    exchange: Machine[str] = Field(
        "", description="folder for the transfer of weights, visible to both sides; empty for memory"
    )
    concurrency: Machine[int] = Field(64, ge=1, description="server: requests at the same time")
    timeout: Machine[float] = Field(600, gt=0, description="server: time limit of a request in seconds")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.process == "server") != bool(self.urls):
            raise ValueError("process: server needs urls; for other values of process leave urls empty")
        if self.devices and len(self.devices) < self.tensor_parallel * self.replicas:
            raise ValueError(
                f"{len(self.devices)} devices are too few for {self.replicas} replicas with {self.tensor_parallel} each"
            )
        if len(set(self.devices)) < len(self.devices):
            raise ValueError("devices: a GPU is named twice; engines that start at the same time cannot share one")
        if self.replicas > 1 and self.process != "own":
            raise ValueError("replicas above 1 need process: own; a server has its own option for data parallelism")
        if self.tensor_parallel > 1 and self.process == "server":
            raise ValueError("tensor_parallel is for engines started here; a server has its own option")
        return self


Rollouts = Annotated[TransformersRollouts | VllmRollouts, Field(discriminator="kind")]
