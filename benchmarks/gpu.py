"""Rollouts and updates of real architectures on one GPU, with random weights; nothing is downloaded.

    PYTHONPATH=. python benchmarks/gpu.py                  # all models below, some minutes each
    PYTHONPATH=. python benchmarks/gpu.py --model qwen3-1.7b --adapter none
    PYTHONPATH=. python benchmarks/gpu.py --tiny           # small shapes on the CPU: does the script run?

It needs torch, transformers, peft and scipy (with numpy and safetensors, which these bring) and this repository, not
installed.  Two agents with LoRA adapters on one base (or, with ``--adapter none``, one agent with all its weights in
float32), G = 8 actions for each of 8 problems and both agents: 128 sequences of 256 new tokens a step.  Random weights
never end an action and hardly ever repeat a token, so nothing is shared between actions but the prompt: the worst case.

Reported: tokens per second of the engine (with and without CUDA graphs) and of transformers' ``generate`` (all prompts
in one batch; one prompt at a time, which is how the public MAGRPO trainer samples); seconds to take new weights;
seconds of an update; peak memory; the share of the memory bandwidth (as a copy reaches it) that decoding uses, and the
share of the matrix-product rate (as a large product reaches it) that the update uses.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from pipeline_lib.policies.adapted_linear import attach
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.rollouts.engine import Action, Counters, Request, Sampling
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.training.batch import WeightedAction, build, normaliser
from pipeline_lib.training.learners import make_learners
from pipeline_lib.training.update import update_policy

COMMON = {"vocab_size": 151936, "hidden_size": 2048, "num_attention_heads": 16, "tie_word_embeddings": True}
MODELS: dict[str, dict[str, Any]] = {
    "qwen2.5-coder-0.5b": COMMON
    | {"model_type": "qwen2", "num_hidden_layers": 24, "num_key_value_heads": 2, "intermediate_size": 4864}
    | {"hidden_size": 896, "num_attention_heads": 14, "max_position_embeddings": 32768}
    | {"rope_theta": 1e6, "rms_norm_eps": 1e-6},
    "qwen2.5-coder-3b": COMMON
    | {"model_type": "qwen2", "num_hidden_layers": 36, "num_key_value_heads": 2, "intermediate_size": 11008}
    | {"max_position_embeddings": 32768, "rope_theta": 1e6, "rms_norm_eps": 1e-6},
    "qwen3-1.7b": COMMON
    | {"model_type": "qwen3", "num_hidden_layers": 28, "num_key_value_heads": 8, "intermediate_size": 6144}
    | {"head_dim": 128, "max_position_embeddings": 40960, "rope_theta": 1e6, "rms_norm_eps": 1e-6},
}
TINY = {"vocab_size": 512, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
TINY |= {"num_hidden_layers": 2, "intermediate_size": 96, "head_dim": 16, "max_position_embeddings": 512}
AGENTS = ("helper", "main")
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Numbers:
    """A tokenizer for models without a language: ids are their own text."""

    eos_token_id = None
    chat_template = None

    def decode(self, ids: list[int], **_: Any) -> str:
        """Return the ids, separated by spaces."""
        return " ".join(map(str, ids))


def main() -> None:
    """Measure each model and print, and write, the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=sorted(MODELS), help="default: all")
    parser.add_argument("--adapter", choices=("lora", "none"), default="lora")
    parser.add_argument("--problems", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=200, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=256, help="tokens of an action")
    parser.add_argument("--micro", type=int, default=16384, help="tokens of a micro-batch in the update")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/gpu"))
    options = parser.parse_args()
    if options.tiny:
        options.problems, options.prompt, options.new, options.micro, options.repeats = 2, 12, 8, 512, 1
    elif not torch.cuda.is_available():
        raise SystemExit("no GPU here; --tiny tries the script on the CPU")
    device = torch.device("cpu" if options.tiny else "cuda")
    report: dict[str, Any] = {"device": name_of(device), "torch": torch.__version__, "settings": vars(options).copy()}
    report["settings"]["output"] = str(options.output)
    report |= {"bandwidth": bandwidth(device), "products": products(device)}
    report["models"] = {}
    for name in options.model or sorted(MODELS):
        report["models"][name] = measure(name, options, device, report)
        print(json.dumps({name: report["models"][name]}, indent=1), flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    options.output.with_suffix(".md").write_text(table(report))
    print(table(report))


def measure(name: str, options: argparse.Namespace, device: torch.device, limits: dict[str, Any]) -> dict[str, Any]:
    """Return all figures of one architecture."""
    team = make_team(name, options, device)
    rng = np.random.default_rng(0)
    vocabulary = next(iter(team.policies.values())).model.config.vocab_size
    requests = [
        Request(agent, tuple(rng.integers(1, vocabulary - 1, options.prompt).tolist()), options.group, problem)
        for problem in range(options.problems)
        for agent in team.policies
    ]
    sampling = Sampling(max_new_tokens=options.new)
    found: dict[str, Any] = {"parameters": size(team)}
    for label, graphs in (("engine", True), ("engine_without_graphs", False)):
        if graphs or device.type == "cuda":
            found[label] = rollouts(team, requests, sampling, options, graphs)
    found["engine"]["share_of_bandwidth"] = (
        bytes_read(team, options) / limits["bandwidth"] / found["engine"]["seconds"] if device.type == "cuda" else None
    )
    found["generate_batched"] = generate(team, requests, options, len(requests))
    found["generate_one_prompt"] = generate(team, requests[: 2 * len(team.policies)], options, 1)
    found["update"] = update(team, requests, sampling, options, limits["products"])
    del team
    gc.collect()
    return found


def make_team(name: str, options: argparse.Namespace, device: torch.device) -> Team:
    """Return two agents with adapters on one base, or one agent with all its weights."""
    shape = MODELS[name] | (TINY if options.tiny else {})
    config = AutoConfig.for_model(**shape, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    torch.manual_seed(0)
    with device:
        dtype = torch.bfloat16 if options.adapter == "lora" else torch.float32
        model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    model.generation_config.eos_token_id = None
    tokenizer: Any = Numbers()
    policies = {}
    for agent in AGENTS if options.adapter == "lora" else AGENTS[:1]:
        own = model
        if options.adapter == "lora":
            settings: Any = SimpleNamespace(rank=16, alpha=32.0, targets=TARGETS)
            own = attach(model, settings, agent, 0)
        own.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        own.enable_input_require_grads()
        policies[agent] = Policy(agent, own, tokenizer)
    return Team(policies, {agent: agent for agent in policies})


def rollouts(
    team: Team, requests: list[Request], sampling: Sampling, options: argparse.Namespace, graphs: bool
) -> dict[str, Any]:
    """Return the engine's figures."""
    start_peak()
    engine = TransformersEngine(rows=256, dtype=torch.bfloat16, graphs=graphs)
    engine.load(team.policies)
    engine.generate(requests, sampling)  # captures graphs
    seconds = []
    for _ in range(options.repeats):
        engine.counters = Counters()
        seconds.append(timed(lambda: engine.generate(requests, sampling)))
    sync = timed(lambda: take_weights(engine, team))
    tokens = engine.counters.generated_tokens
    found: dict[str, Any] = {"tokens": tokens, "seconds": min(seconds), "tokens_per_second": tokens / min(seconds)}
    found |= {"seconds_to_take_weights": sync, "peak_gib": peak()}
    engine.close()
    gc.collect()
    return found


def generate(team: Team, requests: list[Request], options: argparse.Namespace, together: int) -> dict[str, Any]:
    """Return figures of transformers' ``generate``, ``together`` prompts of an agent at a time."""
    new, seconds, tokens = min(options.new, 64), 0.0, 0
    for agent, policy in team.policies.items():
        model: Any = policy.model
        model.eval()
        prompts = [request.prompt for request in requests if request.policy == agent]
        for start in range(0, len(prompts), together):
            ids = torch.tensor(prompts[start : start + together], device=model.device)
            settings: dict[str, Any] = {"do_sample": True, "top_k": 0, "num_return_sequences": options.group}
            settings |= {"max_new_tokens": new, "min_new_tokens": new, "pad_token_id": 0, "use_cache": True}

            def sample(model: Any = model, ids: Any = ids, settings: Any = settings) -> None:
                with torch.inference_mode(), torch.autocast(ids.device.type, torch.bfloat16):
                    model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **settings)

            seconds += timed(sample)
            tokens += len(ids) * options.group * new
    return {"tokens_per_second": tokens / seconds, "new_tokens": new}


def update(
    team: Team, requests: list[Request], sampling: Sampling, options: argparse.Namespace, products: float
) -> dict[str, Any]:
    """Return figures of one update of all agents on made-up actions with made-up advantages."""
    loss = {"normalisation": "batch_tokens", "epochs": 1, "clip": 0.0, "kl": 0.0, "entropy": 0.0}
    loss |= {"importance_cap": 2.0, "importance_threshold": 1e9, "mask_truncated": False}
    settings: Any = SimpleNamespace(
        **{"steps": 10, "learning_rate": 1e-5, "warmup_steps": 0, "schedule": "constant", "weight_decay": 0.0},
        **{"betas": (0.9, 0.98), "gradient_clip": 1.0, "micro_batch_tokens": options.micro, "weights": "replicated"},
        loss=SimpleNamespace(**loss),
    )
    start_peak()
    learners = make_learners(settings, sampling, team, None, torch.bfloat16)
    rng = np.random.default_rng(1)
    batches = []
    for learner in learners:
        vocabulary = learner.policy.model.config.vocab_size
        rows = []
        for request in requests:
            if request.policy == learner.policy.name:
                for _ in range(request.n):
                    ids = tuple(rng.integers(1, vocabulary - 1, options.new).tolist())
                    action = Action(ids, (0.0,) * len(ids), "", "length")
                    rows.append(WeightedAction(request.prompt, action.ids, action.logprobs, float(rng.normal()), 1.0))
        batches.append(build(rows, normaliser(rows, "batch_tokens"), settings.loss))
    reports: list[Any] = []

    def step() -> None:
        reports.clear()
        for learner, batch in zip(learners, batches, strict=True):
            reports.append(update_policy(learner, batch, settings.loss, 1e-5, lambda: None))

    step()
    seconds = min(timed(step) for _ in range(options.repeats))
    tokens = sum(report.tokens for report in reports)
    # forward 2, again for checkpointing 2, backward 2 for activations and 2 more for weights that are trained
    per_parameter = 6 if options.adapter == "lora" else 8
    share = per_parameter * size(team) * tokens / seconds / products if torch.cuda.is_available() else None
    trained = sum(len(batch.behaviour) for batch in batches)
    return {
        "seconds": seconds,
        "model_tokens": tokens,
        "trained_tokens_per_second": trained / seconds,
        "share_of_products": share,
        "peak_gib": peak(),
    }


def size(team: Team) -> int:
    """Return the number of parameters of the base."""
    model: Any = next(iter(team.policies.values())).model
    return sum(p.numel() for name, p in model.named_parameters() if "lora_" not in name)


def bytes_read(team: Team, options: argparse.Namespace) -> float:
    """Return the bytes that decoding has to read at least: weights once a step, and keys and values of every row."""
    config: Any = next(iter(team.policies.values())).model.config
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_token = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * head_size
    rows = options.problems * options.group
    per_step = 2 * size(team) + rows * (options.prompt + options.new / 2) * per_token
    return float(per_step * options.new * len(team.policies))


def bandwidth(device: torch.device) -> float:
    """Return bytes per second that a copy reads and writes."""
    block = torch.zeros(2**30 if device.type == "cuda" else 2**24, dtype=torch.uint8, device=device)
    other = torch.empty_like(block)
    return 2 * len(block) / min(timed(lambda: other.copy_(block)) for _ in range(5))


def products(device: torch.device) -> float:
    """Return floating-point operations per second of a large product in bfloat16."""
    side = 8192 if device.type == "cuda" else 512
    left = torch.randn(side, side, device=device).bfloat16()
    right = torch.randn(side, side, device=device).bfloat16()
    return 2 * side**3 / min(timed(lambda: left @ right) for _ in range(5))


def take_weights(engine: TransformersEngine, team: Team) -> None:
    """Copy the present weights of all agents into the engine."""
    for policy in team.policies.values():
        engine.update(policy)


def timed(call: Callable[[], Any]) -> float:
    """Return the wall seconds of a call, the GPU's work included."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def start_peak() -> None:
    """Forget the memory peak so far."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak() -> float | None:
    """Return the largest memory in use since `start_peak`, in GiB."""
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else None


def name_of(device: torch.device) -> str:
    """Return the device's name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def table(report: dict[str, Any]) -> str:
    """Return the figures as Markdown."""

    def show(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    lines = [
        f"# {report['device']}, torch {report['torch']}",
        "",
        f"Copy {report['bandwidth'] / 1e9:,.0f} GB/s, products {report['products'] / 1e12:,.1f} TFLOP/s.",
    ]
    for name, found in report["models"].items():
        engine, step = found["engine"], found["update"]
        rows = {
            "engine, tokens/s": show(engine["tokens_per_second"], ",.0f"),
            "engine, share of the bandwidth": show(engine["share_of_bandwidth"], ".0%"),
            "engine, peak GiB": show(engine["peak_gib"], ".1f"),
            "engine, seconds to take new weights": show(engine["seconds_to_take_weights"], ".2f"),
            "generate, batched, tokens/s": show(found["generate_batched"]["tokens_per_second"], ",.0f"),
            "generate, one prompt at a time, tokens/s": show(found["generate_one_prompt"]["tokens_per_second"], ",.0f"),
            "update, seconds": show(step["seconds"], ".2f"),
            "update, share of the products": show(step["share_of_products"], ".0%"),
            "update, peak GiB": show(step["peak_gib"], ".1f"),
        }
        if plain := found.get("engine_without_graphs"):
            rows["engine without CUDA graphs, tokens/s"] = show(plain["tokens_per_second"], ",.0f")
        lines += ["", f"## {name} ({found['parameters'] / 1e9:.2f} billion parameters)", "", "| | |", "|---|---:|"]
        lines += [f"| {label} | {value} |" for label, value in rows.items()]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
