"""Tokens per second with a pretrained model on the CPU: our decoder, vLLM, and transformers' `generate`, in one run.

    python -m benchmarks.rollouts_pretrained [--model smollm2-135m | NAME.gguf] [--dtype bfloat16] [--rounds 3]

All sample 64 actions of at most 128 tokens: 8 prompts of HumanEval in the model's chat template, two agents with an
adapter each (LoRA, rank 16) on one base, 4 actions per prompt, temperature 1, all cores.  `generate` samples for one
agent after the other, each through peft, with all its prompts in one batch.  Every contender is a process of its own
that loads the team; then its rounds, of which the fastest counts, since others may use the machine.  Memory is the most
that the process and its children held.  The gap is the largest difference, in nats, between the log-probabilities that
an engine returns and those of the trainer's model in float32 for the same tokens.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.rollouts import left_padded
from benchmarks.training import ROOT
from benchmarks.training_pretrained import settings, start
from pipeline_lib import storage
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.policy import Team
from pipeline_lib.rollouts import Request, Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings.rollouts import TransformersRollouts, VllmRollouts

OUTPUT = Path("benchmarks/results/rollouts_pretrained")
PROBLEMS, GROUP, LONGEST, CHECKED = 8, 4, 128, 8
CONTENDERS = {
    "transformers": "our decoder (`rollouts.kind: transformers`)",
    "vllm": "vLLM 0.32 for CPUs (`rollouts.kind: vllm`)",
    "generate": "transformers' `generate`",
}


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="what policy.models takes")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)  # in a process of its own
    parsed = parser.parse_args()
    if parsed.contender:
        with tempfile.TemporaryDirectory() as temporary:
            found = measure(parsed.model, parsed.dtype, parsed.contender, parsed.rounds, Path(temporary))
        print(json.dumps(found))
        return
    measured: dict[str, Any] = {"model": Path(parsed.model).name, "dtype": parsed.dtype, "runs": {}}
    for name in CONTENDERS:
        command = [sys.executable, "-m", "benchmarks.rollouts_pretrained", "--contender", name]
        command += ["--model", parsed.model, "--dtype", parsed.dtype, "--rounds", str(parsed.rounds)]
        printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        measured["runs"][name] = json.loads(printed.splitlines()[-1])
        print(name, measured["runs"][name], flush=True)
    name = f"{OUTPUT.name}-{Path(parsed.model).stem.lower()}"
    storage.write_json(OUTPUT.with_name(f"{name}.json"), measured)
    storage.write_text(OUTPUT.with_name(f"{name}.md"), table(measured))
    print(table(measured))


def measure(model: str, dtype: str, contender: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Return seconds and tokens of the fastest round, the most memory held, and the gap of the log-probabilities."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    params = settings(model, dtype, "pair")
    environment, problems = start(params, folder, PROBLEMS // 4)
    agents = environment.agents(problems[0])
    team = load_team(params.policy, folder / "base", agents)
    stir(team)
    requests = [
        Request(agent, team.policy_of(agent).encode(environment.observe(environment.start(problem), at)), GROUP, number)
        for number, problem in enumerate(problems)
        for at, agent in enumerate(agents)
    ]
    environment.close()
    sampling = Sampling(max_new_tokens=LONGEST)
    if contender == "generate":
        samples = [timed(lambda: generate(team, requests)) for _ in range(rounds)]
        seconds, tokens = min((each, sum(counts)) for each, counts in samples)
        return {"seconds": seconds, "tokens": tokens, "memory": held()}
    own = contender == "transformers"
    section = TransformersRollouts() if own else VllmRollouts(dtype=dtype, cpu_cache_gib=1)
    with contextlib.closing(make_engine(section)) as engine:
        began = time.perf_counter()
        engine.load(team.policies)
        loading = time.perf_counter() - began
        samples = [timed(lambda: engine.generate(requests, sampling)) for _ in range(rounds)]
        actions = samples[-1][1]
        seconds, tokens = min((each, sum(len(a.ids) for group in found for a in group)) for each, found in samples)
        memory = held()
    worst = gap(team, requests, actions)
    return {"seconds": seconds, "tokens": tokens, "memory": memory, "loading": loading, "gap": worst}


def stir(team: Team) -> None:
    """Give every adapter an effect, as after some updates."""
    for number, policy in enumerate(team.policies.values()):
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for _, parameter in policy.trainable():
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call and its result."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def generate(team: Team, requests: list[Request]) -> list[int]:
    """Return the tokens of every action that `generate` samples."""
    counts = []
    for name, policy in team.policies.items():
        ids, mask = left_padded([request.prompt for request in requests if request.policy == name])
        model: Any = policy.model
        model.eval()  # in training mode, gradient checkpointing switches the cache off
        with torch.inference_mode():
            rows = model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                top_k=0,
                top_p=1.0,
                temperature=1.0,
                max_new_tokens=LONGEST,
                num_return_sequences=GROUP,
                pad_token_id=0,
            )[:, ids.shape[1] :].tolist()
        ends = set(policy.end_ids)
        counts += [next((at + 1 for at, token in enumerate(row) if token in ends), len(row)) for row in rows]
    return counts


@torch.inference_mode()
def gap(team: Team, requests: list[Request], actions: list[Any]) -> float:
    """Return the largest difference of the engine's log-probabilities to the trainer's model in float32."""
    worst = 0.0
    for request, group in list(zip(requests, actions, strict=True))[:CHECKED]:
        model: Any = team.policy_of(request.policy).model.float()
        action = group[0]
        ids = torch.tensor([[*request.prompt, *action.ids]])
        logits = model(ids).logits[0, len(request.prompt) - 1 : -1].float()
        exact = logits.log_softmax(-1).gather(-1, torch.tensor(action.ids)[:, None])[:, 0]
        worst = max(worst, float((exact - torch.tensor(action.logprobs)).abs().max()))
    return worst


def held() -> int:
    """Return the most bytes that this process and its children held."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    total = 0
    for process in processes:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    return total


def table(measured: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    runs = measured["runs"]
    first = runs["transformers"]["tokens"] / runs["transformers"]["seconds"]
    lines = [
        f"# Sampling with a pretrained model: {Path(measured['model']).stem}, {measured['dtype']}",
        "",
        "64 actions of at most 128 tokens; `benchmarks/rollouts_pretrained.py` says what is measured.",
        "",
        "| | seconds | tokens/s | our decoder is faster by | most memory, GB | starts in, s | gap, nats |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, run in runs.items():
        rate = run["tokens"] / run["seconds"]
        more = [f"{run['loading']:.1f}", f"{run['gap']:.1e}"] if "gap" in run else ["", ""]
        cells = [f"{run['seconds']:.1f}", f"{rate:.0f}", f"{first / rate:.1f} x", f"{run['memory'] / 1e9:.2f}", *more]
        lines.append(f"| {CONTENDERS[name]} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
