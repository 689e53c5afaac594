"""Tokens per second of the transformers engine beside transformers' own ways to sample, in one run.

    OMP_NUM_THREADS=1 python -m benchmarks.rollouts [--rounds 5] [--base models/base --problems data/problems]

All sample the same actions in kind: the embedded default's policies, one group of 8 for each of 32 problems and both
agents, temperature 1, at most 64 tokens, one thread.  The contenders take turns, round by round, and the clock counts
this process's CPU seconds, so load from elsewhere falls on all alike; figures are medians over rounds, and it is the
ratios that mean something.  Each contender runs at the matrix-product precision that suits it best, as long as it is
float32 in effect: where torch's faster mode rounds to bfloat16 (processors with matrix units), nobody uses it.

The limit is the time the matrix products of a token take by themselves, 256 rows at a time, at the same precision; it
is measured in every round, beside the engine.
"Delivered" counts tokens of actions; "computed" those that went through the model one by one: actions of a group share
the computation of equal beginnings, which is exact.  The second part of the table samples at temperature 0.3: groups as
alike as they become later in training.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from pipeline_lib import storage
from pipeline_lib.policies.computing import cpu_numerics
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.policy import Team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts import Counters, Request, Sampling
from pipeline_lib.rollouts.decoder import FusedDecoder
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.settings import load_params

OUTPUT = Path("benchmarks/results/rollouts")
AGENTS = ("helper", "main")
GROUP, PROBLEMS, LONGEST = 8, 32, 64
FEW = 4  # prompts for the contenders that take seconds a round
Run = Callable[[Team, list[Request], Sampling], int]
with cpu_numerics():
    EXACT = torch.get_float32_matmul_precision()  # "medium" where that is accurate, else "highest"


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--problems", type=Path)
    parsed = parser.parse_args()
    torch.set_num_threads(1)
    team, observations = load(parsed.base, parsed.problems)
    requests = [
        Request(agent, team.policy_of(agent).encode(texts[agent]), GROUP, seed)
        for seed, texts in enumerate(observations)
        for agent in AGENTS
    ]
    report: dict[str, Any] = {
        "rounds": parsed.rounds,
        "precision": EXACT,
        "error": error(team, requests),
    }
    report["early"] = contest(team, requests, Sampling(1.0, max_new_tokens=LONGEST), parsed.rounds, CONTENDERS)
    fewer = {name: CONTENDERS[name] for name in ("engine", "generate, batched")}
    report["late"] = contest(team, requests, Sampling(0.3, max_new_tokens=LONGEST), parsed.rounds, fewer)
    storage.write_json(OUTPUT.with_suffix(".json"), report)
    storage.write_text(OUTPUT.with_suffix(".md"), table(report))
    print(table(report))


def load(base: Path | None, problems: Path | None) -> tuple[Team, list[dict[str, str]]]:
    """Return the embedded team and observations of the training problems; both are made if not given."""
    params = load_params(Path("params.yaml"))
    with tempfile.TemporaryDirectory() as temporary:
        if problems is None:
            problems = Path(temporary) / "problems"
            prepare(params.environment.kind, params.problems, problems)
        if base is None:
            base = Path(temporary) / "base"
            build_base(params.policy, problems, base)
        team = load_team(params.policy, base, AGENTS)
        return team, [problem.observations for problem in load_split(problems, "train")[:PROBLEMS]]


def engine(team: Team, requests: list[Request], sampling: Sampling, fast: bool = True) -> tuple[int, Counters]:
    """Return tokens delivered by the engine, and its counters."""
    key = (id(team), fast)
    if key not in _ENGINES:
        _ENGINES[key] = TransformersEngine(fast=fast)
        _ENGINES[key].load(team.policies)
    made = _ENGINES[key]
    made.counters = Counters()
    made.generate(requests, sampling)
    return made.counters.generated_tokens, made.counters


_ENGINES: dict[tuple[int, bool], TransformersEngine] = {}


def batched(team: Team, requests: list[Request], sampling: Sampling) -> int:
    """Return tokens of ``generate`` with all prompts of an agent in one batch, padded on the left."""
    total = 0
    for agent in AGENTS:
        policy = team.policy_of(agent)
        ids, mask = left_padded([request.prompt for request in requests if request.policy == agent])
        total += generated(policy.model, ids, mask, sampling, policy.end_ids)
    return total


def left_padded(prompts: list[tuple[int, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids of prompts, padded on the left to ``[prompts, longest]``, and which of them count."""
    longest = max(map(len, prompts))
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids, mask


def one_prompt(team: Team, requests: list[Request], sampling: Sampling) -> int:
    """Return tokens of ``generate`` with one prompt (and its group) at a time."""
    total = 0
    for request in requests[: 2 * FEW]:
        policy = team.policy_of(request.policy)
        ids = torch.tensor([request.prompt])
        total += generated(policy.model, ids, torch.ones_like(ids), sampling, policy.end_ids)
    return total


def generated(model: Any, ids: torch.Tensor, mask: torch.Tensor, sampling: Sampling, ends: tuple[int, ...]) -> int:
    """Return tokens up to the end token, those after it being padding."""
    settings: dict[str, Any] = {"do_sample": True, "top_k": 0, "temperature": sampling.temperature}
    settings |= {"max_new_tokens": sampling.max_new_tokens, "num_return_sequences": GROUP, "pad_token_id": 0}
    with torch.inference_mode():
        rows = model.generate(input_ids=ids, attention_mask=mask, **settings)[:, ids.shape[1] :].tolist()
    return sum(next((at + 1 for at, token in enumerate(row) if token in ends), len(row)) for row in rows)


def continuous(team: Team, requests: list[Request], sampling: Sampling) -> int:
    """Return tokens of transformers' continuous batching (``generate_batch``)."""
    total = 0
    for agent in AGENTS:
        policy = team.policy_of(agent)
        prompts = [list(request.prompt) for request in requests if request.policy == agent][:FEW]
        settings = GenerationConfig(
            max_new_tokens=sampling.max_new_tokens,
            do_sample=True,
            temperature=sampling.temperature,
            top_k=0,
            eos_token_id=list(policy.end_ids),
            pad_token_id=0,
        )
        model: Any = policy.model
        memory = ContinuousBatchingConfig(max_memory_percent=0.05)
        found = model.generate_batch(prompts * GROUP, generation_config=settings, continuous_batching_config=memory)
        total += sum(len(output.generated_tokens) for output in found.values())
    return total


CONTENDERS: dict[str, tuple[str, Run]] = {
    "engine": (EXACT, lambda team, requests, sampling: engine(team, requests, sampling)[0]),
    "engine, general path": (EXACT, lambda team, requests, sampling: engine(team, requests, sampling, fast=False)[0]),
    "generate, batched": ("highest", batched),
    "generate, one prompt at a time": ("highest", one_prompt),
    "generate, continuous batching": ("highest", continuous),
}


def contest(
    team: Team, requests: list[Request], sampling: Sampling, rounds: int, contenders: dict[str, tuple[str, Run]]
) -> dict[str, Any]:
    """Return medians over rounds of tokens per CPU second, and of each round's ratio of the engine to the others."""
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    limits: list[float] = []
    for round_ in range(rounds + 1):  # the first warms up
        if round_:
            limits.append(limit(team))
        for name, (precision, run) in contenders.items():
            if name.endswith("continuous batching") and round_ > 2:
                continue  # takes long, and two figures tell enough
            torch.set_float32_matmul_precision(precision)
            fresh = [replace(request, seed=request.seed + 1000 * round_) for request in requests]
            torch.manual_seed(round_)
            started = time.process_time()
            tokens = run(team, fresh, sampling)
            if round_:
                speeds[name].append(tokens / (time.process_time() - started))
    torch.set_float32_matmul_precision(EXACT)
    delivered, counters = engine(team, requests, sampling)
    ratios = {
        name: median(ours / theirs for ours, theirs in zip(speeds["engine"], found, strict=False))
        for name, found in speeds.items()
    }
    return {
        "tokens_per_second": {name: median(found) for name, found in speeds.items()},
        "ratio_of_engine": ratios,
        "limit": median(limits),
        "share_of_limit": median(ours / most for ours, most in zip(speeds["engine"], limits, strict=True)),
        "computed_share": counters.computed_tokens / delivered,
        "mean_length": delivered / counters.actions,
    }


def limit(team: Team) -> float:
    """Return tokens per second if a token cost its matrix products and nothing else."""
    model = FusedDecoder(team.policy_of("main").model, torch.float32)
    model.refresh(team.policy_of("main").model.state_dict())
    weights = model._weights
    assert weights is not None
    matrices = [m for layer in weights.layers for m in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    pairs = [(torch.randn(256, matrix.shape[1]), matrix) for matrix in [*matrices, weights.head]]
    best = 0.0
    with torch.inference_mode():
        for precision in {"highest", EXACT}:
            torch.set_float32_matmul_precision(precision)
            for _ in range(30):
                started = time.process_time()
                for _ in range(10):
                    for x, matrix in pairs:
                        torch.nn.functional.linear(x, matrix)
                best = max(best, 2560 / (time.process_time() - started))
    return best


def error(team: Team, requests: list[Request]) -> float:
    """Return the largest difference between the engine's log-probabilities and a teacher-forced pass in float32."""
    torch.set_float32_matmul_precision(EXACT)
    made = TransformersEngine()
    made.load(team.policies)
    found = made.generate(requests[:16], Sampling(max_new_tokens=LONGEST))
    torch.set_float32_matmul_precision("highest")
    worst = 0.0
    for request, actions in zip(requests, found, strict=False):
        for action in actions:
            with torch.no_grad():
                model: Any = team.policy_of(request.policy).model
                logits = model(torch.tensor([request.prompt + action.ids])).logits[0, len(request.prompt) - 1 : -1]
            exact = logits.float().log_softmax(-1).gather(1, torch.tensor(action.ids)[:, None])[:, 0]
            worst = max(worst, float((exact - torch.tensor(action.logprobs)).abs().max()))
    return worst


def table(report: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = [
        "# Rollouts",
        "",
        "Tokens per CPU second on one thread; see `benchmarks/rollouts.py` for what is measured.",
        f"Fastest float32 products that are accurate on this processor: `{report['precision']}`.",
    ]
    for part, title in (("early", "At the start of training"), ("late", "Groups as alike as late in training")):
        found = report[part]
        share = found["share_of_limit"]
        lines += ["", f"## {title}", "", "| | tokens/s | engine is faster by |", "|---|---:|---:|"]
        lines += [
            f"| {name} | {speed:,.0f} | {found['ratio_of_engine'][name]:.1f} x |"
            for name, speed in found["tokens_per_second"].items()
        ]
        lines += [
            "",
            f"Matrix-product limit {found['limit']:,.0f} tokens/s; the engine delivers {share:.0%} of it and computes "
            f"{share * found['computed_share']:.0%} (equal beginnings in a group are computed once: "
            f"{found['computed_share']:.0%} of the tokens). Mean length {found['mean_length']:.1f} tokens.",
        ]
    lines += ["", f"Largest error of a log-probability: {report['error']:.1e} nats.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
