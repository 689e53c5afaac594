"""Seconds per update beside public trainers at several sizes of the model, in one run.

    python -m benchmarks.training_sizes [--updates 4] [--sizes 0.4 3 24]

What makes a small model's training slow is overhead, what makes a large one's slow is arithmetic that nobody can avoid:
so the ratio at the embedded default's size must not be taken for that of every model.  Contestants, peers and clock are
those of `benchmarks.training`; the base of every size is warm-started for `WARM_UP` steps, so that it ends its actions,
and trained with so small a learning rate that it stays the same.  The first update, in which things start, is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.training import CONTESTANTS, OURS, PEERS, PROBLEMS, Rows, per_update, run
from pipeline_lib import storage
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.settings import Params, load_params
from pipeline_lib.settings.policy import EmbeddedPolicy

OUTPUT = Path("benchmarks/results/training_sizes")
WARM_UP, RATE = 60, 1e-6

#: Millions of parameters, about, and the shape of a model that has so many.
SIZES: dict[str, dict[str, int]] = {
    "0.4": {},
    "3": {"hidden_size": 256, "layers": 4, "mlp_size": 640},
    "24": {"hidden_size": 512, "layers": 8, "heads": 8, "kv_heads": 4, "mlp_size": 1408},
}


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parsed = parser.parse_args()
    if parsed.updates < 2:
        parser.error("--updates must be 2 or more, for the first update is left out")
    if not PEERS.exists():
        raise SystemExit("the peers are not installed; run benchmarks/make_peers_environment.sh")
    torch.set_num_threads(1)
    params = load_params(Path("params.yaml"))
    assert isinstance(params.policy, EmbeddedPolicy)  # sizes are those of the embedded model
    report: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        problems = Path(temporary, "problems")
        prepare(params.environment.kind, params.problems, problems)
        todo = random.Random(0).sample(load_split(problems, "train"), PROBLEMS * parsed.updates)
        for size in parsed.sizes:
            shape = {**SIZES[size], "warm_start": params.policy.warm_start.model_copy(update={"steps": WARM_UP})}
            sized = params.model_copy(update={"policy": params.policy.model_copy(update=shape)})
            base = Path(temporary, size)
            build_base(sized.policy, problems, base)
            report.append(measure(sized, base, todo, parsed.updates))
            print(report[-1], flush=True)
    storage.write_json(OUTPUT.with_suffix(".json"), {"updates": parsed.updates, "sizes": report})
    storage.write_text(OUTPUT.with_suffix(".md"), table(report, parsed.updates))
    print(table(report, parsed.updates))


def measure(params: Params, base: Path, problems: Sequence[Any], updates: int) -> dict[str, Any]:
    """Return parameters of an agent, and of every contestant the CPU seconds of each update but the first."""
    agent = load_team(params.policy, base, ("helper",)).policy_of("helper")
    found: dict[str, Any] = {"parameters": sum(p.numel() for p in agent.model.parameters()), "seconds": {}}
    for name, (kind, peer) in CONTESTANTS.items():
        section = params.environment.model_copy(update={"team": kind})
        with contextlib.closing(make_environment(section, params.sandbox)) as environment:
            environment.step([environment.start(problems[0])], [[""] * len(environment.agents(problems[0]))])  # starts
            rows: Rows = run(params, base, environment, problems, 0, updates, peer, RATE)
        found["seconds"][name] = [per_update(rows, at, at) for at in range(2, updates + 1)]
    return found


def table(report: Sequence[dict[str, Any]], updates: int) -> str:
    """Return the figures as Markdown."""
    lines = [
        "# Training, by size of the model",
        "",
        f"Median CPU seconds per update of {updates - 1}, one thread; `benchmarks/training_sizes.py` says what is "
        "measured.",
        "",
        "| parameters an agent | " + " | ".join(CONTESTANTS) + " | team: ours faster by | single: ours faster by |",
        "|---:|" + "---:|" * (len(CONTESTANTS) + 2),
    ]
    for row in report:
        seconds = {name: median(values) for name, values in row["seconds"].items()}
        ratios = [seconds[name] / seconds[OURS[kind]] for name, (kind, peer) in CONTESTANTS.items() if peer]
        cells = [f"{row['parameters'] / 1e6:.1f} million", *(f"{value:.2f}" for value in seconds.values())]
        lines.append("| " + " | ".join([*cells, *(f"{ratio:.1f} x" for ratio in ratios)]) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
