"""Peak memory of an update: it follows ``train.micro_batch_tokens``, not group size times length.

    python -m benchmarks.memory

One update of the embedded model's architecture on one prompt with G actions of T random tokens (nothing is shared but
the prompt: the worst case), for growing G x T and for growing budgets.  The peak is what the process holds at most
during the update beyond what it held before (Linux; resident memory, freed blocks given back at once).  The dotted
line has a budget that everything fits into, one pass over the whole group.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Qwen3ForCausalLM

from pipeline_lib import storage
from pipeline_lib.policies.embedded import ATTENTION, make_config
from pipeline_lib.policies.policy import Policy, Team
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.settings import load_params
from pipeline_lib.training.batch import PolicyBatch, WeightedAction, build, normaliser
from pipeline_lib.training.learners import make_learners
from pipeline_lib.training.update import Learner, update_policy

OUTPUT = Path("benchmarks/results/memory")
FIGURE = Path("docs/figures/memory.svg")
PROMPT, GROUPS, LENGTHS = 32, (4, 8, 16, 32, 64), (64, 256)
BUDGETS = (512, 1024, 2048)
EVERYTHING = 10**9
WHOLE_AT_MOST = 4096  # tokens a pass: attention of larger ones would take gigabytes
#: Without these glibc keeps freed blocks, and the next peak would hide in them.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}


def main() -> None:
    """Measure, and write table and figure."""
    if any(os.environ.get(name) != value for name, value in MALLOC.items()):
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.memory"], os.environ | MALLOC)
    torch.set_num_threads(1)
    learner = make_learner()
    peak(learner, batch_of(4, 64), 512)  # warms up
    report = []
    for length in LENGTHS:
        for group in GROUPS:
            batch = batch_of(group, length)
            for budget in (*BUDGETS, EVERYTHING):
                if budget == EVERYTHING and PROMPT + group * length > WHOLE_AT_MOST:
                    continue
                megabytes = peak(learner, batch, budget)
                report.append({"group": group, "length": length, "budget": budget, "mb": round(megabytes, 1)})
                print(report[-1], flush=True)
    storage.write_json(OUTPUT.with_suffix(".json"), report)
    storage.write_text(OUTPUT.with_suffix(".md"), table(report))
    figure(report)
    print(table(report))


def make_learner() -> Learner:
    """Return a random model of the embedded default's shape, ready to be trained."""
    params = load_params(Path("params.yaml"))
    policy: Any = params.policy
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(make_config(policy, policy.vocabulary))
    model.set_attn_implementation(ATTENTION)
    no_tokenizer: Any = None  # there is no text here
    team = Team({"team": Policy("team", model, no_tokenizer)}, {})
    return make_learners(params.train, Sampling(), team, None, None)[0]


def batch_of(group: int, length: int) -> PolicyBatch:
    """Return one group of random actions."""
    rng = np.random.default_rng(group * length)
    prompt = tuple(rng.integers(4, 500, PROMPT).tolist())
    rows = [
        WeightedAction(prompt, tuple(rng.integers(4, 500, length).tolist()), (-6.0,) * length, advantage, 1.0)
        for advantage in rng.standard_normal(group).tolist()
    ]
    settings = load_params(Path("params.yaml")).train.loss
    return build(rows, normaliser(rows, settings.normalisation), settings)


def peak(learner: Learner, batch: PolicyBatch, budget: int) -> float:
    """Return by how many MiB resident memory rises at most during an update."""
    learner.budget = budget
    settings = load_params(Path("params.yaml")).train.loss
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = resident("VmRSS")
    update_policy(learner, batch, settings, 1e-4, lambda: None)
    return resident("VmHWM") - before


def resident(name: str) -> float:
    """Return resident memory of this process in MiB, now (VmRSS) or at most (VmHWM)."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found, f"/proc/self/status has no {name}"
    return int(found[1]) / 1024


def name_of(budget: int) -> str:
    """Return a budget's name in table and figure."""
    return "one pass" if budget == EVERYTHING else f"{budget:,}"


def table(report: list[dict[str, Any]]) -> str:
    """Return the figures as Markdown."""
    lines = [
        "# Peak memory of an update",
        "",
        "MiB beyond weights and optimiser, by `train.micro_batch_tokens`; see `benchmarks/memory.py`.",
        "",
        "| G | tokens per action | G x tokens | " + " | ".join(name_of(b) for b in (*BUDGETS, EVERYTHING)) + " |",
        "|---:|---:|---:|" + "---:|" * (len(BUDGETS) + 1),
    ]
    found = {(row["group"], row["length"], row["budget"]): row["mb"] for row in report}
    for length in LENGTHS:
        for group in GROUPS:
            values = [found.get((group, length, budget)) for budget in (*BUDGETS, EVERYTHING)]
            cells = " | ".join("" if value is None else f"{value:,.0f}" for value in values)
            lines.append(f"| {group} | {length} | {group * length:,} | {cells} |")
    lines += ["", "![peak of the update by group size times length](../../docs/figures/memory.svg)"]
    return "\n".join(lines) + "\n"


def figure(report: list[dict[str, Any]]) -> None:
    """Draw peaks by group size times length, a line per budget."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "symposium", "svg.fonttype": "none", "font.size": 9})
    chart, axes = plt.subplots(1, len(LENGTHS), figsize=(7.2, 3.0), sharey=True, layout="constrained")
    shades = dict(zip(BUDGETS, ("#9fc5e8", "#3d85c6", "#0b3d66"), strict=True)) | {EVERYTHING: "#b4443c"}
    for axis, length in zip(axes, LENGTHS, strict=True):
        for budget, colour in shades.items():
            rows = [row for row in report if row["length"] == length and row["budget"] == budget]
            style = ":" if budget == EVERYTHING else "-"
            at = [row["group"] * length for row in rows]
            axis.plot(at, [row["mb"] for row in rows], style, marker="o", markersize=3, color=colour,
                      label=name_of(budget))  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_title(f"{length} tokens per action", loc="left", fontsize=9)
        axis.set_xlabel("group size x tokens per action")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("peak of the update, MiB")
    axes[0].legend(frameon=False, fontsize=8, title="micro_batch_tokens", title_fontsize=8)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    chart.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
