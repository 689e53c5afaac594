"""Setup of vLLM engines: groups of policies that share one, arguments, devices, and files of weights."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from pipeline_lib.policies.lora import base_fingerprint, plain_model, plain_state
from pipeline_lib.rollouts.engine import EngineError
from pipeline_lib.rollouts.vllm_hosts import Host, InsideHost, ServerHost, WorkerHost

if TYPE_CHECKING:
    from pipeline_lib.policies.policy import Policy
    from pipeline_lib.settings.rollouts import VllmRollouts

#: Adapter ranks for which vLLM has kernels.
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)

#: vLLM pads vocabularies to multiples of this many tokens.
VOCABULARY_UNIT = 64


def engine_groups(policies: Mapping[str, Policy]) -> list[tuple[list[str], bool]]:
    """Return groups of policies that share an engine: their names, and whether they are adapters on one base."""
    adapted: dict[str, list[str]] = {}
    alone: list[tuple[list[str], bool]] = []
    for name, policy in policies.items():
        if hasattr(policy.model, "peft_config"):
            adapted.setdefault(base_fingerprint(policy), []).append(name)
        else:
            alone.append(([name], False))
    return [(names, True) for names in adapted.values()] + alone


def weights_type(section: VllmRollouts, policy: Policy) -> torch.dtype:
    """Return the type of a policy's weights in vLLM."""
    found: torch.dtype = plain_model(policy).get_input_embeddings().weight.dtype
    return found if section.dtype == "auto" else getattr(torch, section.dtype)


def arguments(
    section: VllmRollouts, policies: list[Policy], adapters: bool, engines: int, model: Path
) -> dict[str, Any]:
    """Return the arguments of ``vllm.LLM``.

    Args:
        section: settings.
        policies: the policies of the engine.
        adapters: whether they are adapters on one base.
        engines: number of engines that share the memory.
        model: folder of the model.
    """
    found: dict[str, Any] = {
        "model": str(model),
        "runner": "generate",
        "dtype": str(weights_type(section, policies[0])).removeprefix("torch."),
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",  # a model's own defaults (top-p, repetition penalty) must not interfere
        "enable_prefix_caching": True,
        "enforce_eager": section.eager,
        "max_num_seqs": section.rows,
        "tensor_parallel_size": section.tensor_parallel,
        "gpu_memory_utilization": section.memory / engines,
        "enable_sleep_mode": section.sleep,
        "trust_remote_code": False,
    }
    if adapters:
        models: list[Any] = [policy.model for policy in policies]
        rank = max(int(config.r) for model_ in models for config in model_.peft_config.values())
        if rank > RANKS[-1]:
            raise EngineError(f"policy.adapter.rank: vLLM serves ranks up to {RANKS[-1]}, not {rank}")
        found |= {"enable_lora": True, "max_lora_rank": next(r for r in RANKS if r >= rank)}
        found |= {"max_loras": len(policies), "max_cpu_loras": 2 * len(policies)}
    return found


def check_divides(section: VllmRollouts, policy: Policy) -> None:
    """Check that the policy's model can be divided among the ranks of ``tensor_parallel``.

    Raises:
        EngineError: it cannot; the message names the sizes that are not divisible.
    """
    ranks, config = section.tensor_parallel, plain_model(policy).config.get_text_config()
    wrong = []
    for name in ("num_attention_heads", "intermediate_size"):
        if (size := getattr(config, name, None)) and size % ranks:
            wrong.append(f"{name} {size}")
    # vLLM copies key/value heads if there are fewer heads than ranks
    if (heads := getattr(config, "num_key_value_heads", None)) and heads % ranks and ranks % heads:
        wrong.append(f"num_key_value_heads {heads}")
    padded = -(-config.vocab_size // VOCABULARY_UNIT) * VOCABULARY_UNIT
    if padded % ranks:
        wrong.append(f"vocab_size {config.vocab_size} (padded to {padded})")
    if wrong:
        raise EngineError(
            f"rollouts.tensor_parallel: policy {policy.name} cannot be divided by {ranks}: {', '.join(wrong)}; choose "
            f"a number that divides them all, or 1 with more replicas"
        )


def gpus_of(section: VllmRollouts, replica: int, visible: Sequence[str]) -> list[str]:
    """Return the GPUs of a replica; empty if it may use all visible ones.

    Args:
        section: settings.
        replica: number of the replica.
        visible: GPUs of this process, by their names in ``CUDA_VISIBLE_DEVICES``; empty without GPUs.

    Raises:
        EngineError: there are too few.
    """
    names = [str(device) for device in section.devices] or list(visible)
    wanted = section.tensor_parallel * section.replicas
    if not section.devices and (section.replicas == 1 or not names):
        return []
    if len(names) < wanted:
        raise EngineError(
            f"rollouts.replicas: {section.replicas} replicas on {section.tensor_parallel} GPUs each need {wanted}, and "
            f"{len(names)} can be seen"
        )
    return names[replica * section.tensor_parallel : (replica + 1) * section.tensor_parallel]


def _visible_gpus() -> list[str]:
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    count = torch.cuda.device_count()
    return [name.strip() for name in named.split(",")][:count] if named else [str(i) for i in range(count)]


def make_host(section: VllmRollouts, engine: int, replica: int, folder: Path) -> Host:
    """Return the host of an engine, which is not started yet.

    Args:
        section: settings.
        engine: number of the engine.
        replica: number of the replica.
        folder: folder for the transfer of its weights.
    """
    if section.process == "inside":
        return InsideHost()
    if section.process == "server":
        if engine >= len(section.urls):
            raise EngineError(
                f"rollouts.urls: {len(section.urls)} servers for {engine + 1} or more engines; policies with weights "
                f"of their own (not adapters on one base) need a server each"
            )
        return ServerHost(section.urls[engine], section.concurrency, section.timeout)
    environment = {}
    if gpus := gpus_of(section, replica, _visible_gpus()):
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if section.cpu_cache_gib:
        environment["VLLM_CPU_KVCACHE_SPACE"] = str(section.cpu_cache_gib)
    return WorkerHost(section.python, environment, folder)


def exchange_folder(section: VllmRollouts) -> Path:
    """Return a new folder for the transfer of weights: in ``rollouts.exchange``, else in memory if possible."""
    memory = Path("/dev/shm")
    place = Path(section.exchange) if section.exchange else memory if memory.is_dir() else None
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="symposium-weights-", dir=place)).resolve()


def save_model(folder: Path, policy: Policy, adapters: bool, dtype: torch.dtype) -> None:
    """Write the model for vLLM: configuration, tokenizer, and weights (without adapters)."""
    plain = plain_model(policy)
    config = copy.deepcopy(plain.config)
    config.architectures = [type(plain).__name__]  # vLLM needs it, and models that were never saved lack it
    config.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    state = plain.state_dict() if adapters else plain_state(policy)
    base = {key.replace(".base_layer.", "."): value for key, value in state.items() if ".lora_" not in key}
    save_weights(folder, base, dtype)


def save_weights(folder: Path, state: Mapping[str, Any], dtype: torch.dtype) -> None:
    """Write weights as safetensors.

    Tied weights are written under both names: otherwise vLLM 0.32 on the CPU silently keeps its old packed copy of the
    output layer, and log-probabilities are wrong by nats.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {key: value.detach().to("cpu", dtype, copy=True).contiguous() for key, value in state.items()}
    if "lm_head.weight" not in tensors and "model.embed_tokens.weight" in tensors:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
