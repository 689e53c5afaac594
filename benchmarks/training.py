"""Seconds per update and learning curves beside public trainers, in one run.

    python -m benchmarks.training [--seeds 0 1 2] [--add] [--updates 40] [--base models/base --problems data/problems]
    python -m benchmarks.training --environment writing --updates 8 --seeds 0     # a table of its own, no figure

The peers are CoMLRL's `MAGRPOTrainer` (two agents) and TRL's `GRPOTrainer` (one agent), in an environment of their own
(benchmarks/make_peers_environment.sh).  All train the embedded default's base policy on the same problems: 16 problems
x 8 actions per agent and update, temperature 1, at most `rollouts.max_new_tokens` (64) tokens, learning rate 1e-3, all
weights, float32, one thread; rewards come from the same sandbox.  The team beside CoMLRL has two agents, the single
agent beside TRL one, so each pair samples equally many actions of the same kind.

Contestants run one after the other, for every seed.  The clock is process CPU seconds from the call of ``train``;
giving rewards is counted for nobody.  Every contestant is held to exact
float32 products: on processors with matrix units torch's faster mode rounds to bfloat16, and nobody uses it there.
"Same return" is a mean training reward of 1.6 (of 2.0) over three updates.  `benchmarks.training_sizes` has larger
models.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import torch

from pipeline_lib import storage
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.policies.computing import cpu_numerics
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import Params, load_params
from pipeline_lib.settings.compose import compose
from pipeline_lib.training.trainer import train

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
OUTPUT = Path("benchmarks/results/training")
FIGURE = Path("docs/figures/training.svg")
PROBLEMS, GROUP, RATE = 16, 8, 1e-3
RETURN, WINDOW = 1.6, 3
EARLY = 6

#: name: (kind of team, peer); a peer's pair is ours of the same team.
CONTESTANTS = {
    "Symposium, team": ("pair", None),
    "CoMLRL 1.4.3 MAGRPO": ("pair", "comlrl"),
    "Symposium, single agent": ("single", None),
    "TRL 1.16 GRPO": ("single", "trl"),
}
OURS = {kind: name for name, (kind, peer) in CONTESTANTS.items() if peer is None}
Rows = list[dict[str, float]]


def main() -> None:
    """Measure, and write table and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--add", action="store_true", help="keep what other seeds gave before")
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--problems", type=Path)
    parser.add_argument("--environment", help="a preset of conf/environment, in place of the default")
    parsed = parser.parse_args()
    if not PEERS.exists():
        raise SystemExit("the peers are not installed; run benchmarks/make_peers_environment.sh")
    torch.set_num_threads(1)
    preset = parsed.environment
    params = compose({"environment": preset}, Path("conf")) if preset else load_params(Path("params.yaml"))
    output = OUTPUT.with_name(f"{OUTPUT.name}-{preset}") if preset else OUTPUT
    runs: dict[str, dict[str, Rows]] = {name: {} for name in CONTESTANTS}
    if parsed.add:
        runs = storage.read_json(output.with_suffix(".json"))["runs"]
    with tempfile.TemporaryDirectory() as temporary:
        problems, base = parsed.problems or Path(temporary, "problems"), parsed.base or Path(temporary, "base")
        if parsed.problems is None:
            prepare(params.environment.kind, params.problems, problems)
        if parsed.base is None:
            build_base(params.policy, problems, base)
        for seed in parsed.seeds:
            todo = random.Random(seed).sample(load_split(problems, "train"), PROBLEMS * parsed.updates)
            for name, (kind, peer) in CONTESTANTS.items():
                section = params.environment.model_copy(update={"team": kind})
                with contextlib.closing(make_environment(section, params.sandbox)) as environment:
                    environment.step([environment.start(todo[0])], [[""] * len(environment.agents(todo[0]))])  # starts
                    rows = run(params, base, environment, todo, seed, parsed.updates, peer)
                    runs[name][str(seed)] = rows
                last = rows[-1]
                print(f"{name}, seed {seed}: {last['cpu']:.1f} CPU s, last reward {last['reward']:.2f}", flush=True)
    with cpu_numerics():
        precision = torch.get_float32_matmul_precision()
    report = {"updates": parsed.updates, "precision": precision, "runs": runs}
    if not preset:
        figure(report)
    text = short_table(report, preset) if preset else table(report)
    storage.write_json(output.with_suffix(".json"), report)
    storage.write_text(output.with_suffix(".md"), text)
    print(text)


def run(
    params: Params,
    base: Path,
    environment: Any,
    problems: Sequence[Any],
    seed: int,
    updates: int,
    peer: str | None,
    rate: float = RATE,
) -> Rows:
    """Return CPU and wall seconds since the start and the mean reward, per update, of this project or of a peer."""
    if peer is None:
        return own_run(params, base, environment, problems, seed, updates, rate)
    return peer_run(params, base, environment, problems, seed, updates, peer, rate)


def own_run(
    params: Params, base: Path, environment: Any, problems: Sequence[Any], seed: int, updates: int, rate: float
) -> Rows:
    """Return the figures of this project."""
    changes = {"steps": updates, "problems_per_step": PROBLEMS, "group_size": GROUP, "learning_rate": rate}
    settings = params.train.model_copy(update={**changes, "checkpoint_every": updates})
    team = load_team(params.policy, base, environment.agents(problems[0]))
    rows: Rows = []
    judge, cpu_judging, wall_judging = environment.step, 0.0, 0.0

    def step(*given: Any) -> Any:
        nonlocal cpu_judging, wall_judging
        cpu, wall = time.process_time(), time.perf_counter()
        outcomes = judge(*given)
        cpu_judging += time.process_time() - cpu
        wall_judging += time.perf_counter() - wall
        return outcomes

    def on_step(step: int, metrics: dict[str, float]) -> None:
        rows.append(
            {
                "cpu": time.process_time() - cpu_start - cpu_judging,
                "wall": time.perf_counter() - wall_start - wall_judging,
                "reward": metrics["reward/mean"],
                "generation": metrics["time/generation_s"],
                "update": metrics["time/update_s"],
            }
        )

    environment.step = step
    with tempfile.TemporaryDirectory() as scratch, contextlib.closing(make_engine(params.rollouts)) as engine:
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        train(
            settings=settings,
            sampling=Sampling(max_new_tokens=params.rollouts.max_new_tokens),
            environment=environment,
            team=team,
            engine=engine,
            problems=problems,
            seed=seed,
            scratch=Path(scratch),
            on_step=on_step,
        )
    return rows


def peer_run(
    params: Params,
    base: Path,
    environment: Any,
    problems: Sequence[Any],
    seed: int,
    updates: int,
    peer: str,
    rate: float,
) -> Rows:
    """Return the figures of a peer, whose joint actions are judged here."""
    agents = environment.agents(problems[0])
    team = load_team(params.policy, base, agents)
    starts = [environment.start(problem) for problem in problems]
    prompts = [[environment.observe(state, agent) for agent in range(len(agents))] for state in starts]
    ids = [[team.policy_of(agent).encode(text) for agent, text in zip(agents, texts, strict=True)] for texts in prompts]
    task: dict[str, Any] = {
        "prompts": prompts,
        "ids": ids,
        "problems": PROBLEMS,
        "group": GROUP,
        "longest": params.rollouts.max_new_tokens,
    }
    task |= {"updates": updates, "learning_rate": rate, "seed": seed, "base": str(base)}

    def judge(numbers: list[int], joint_actions: list[list[str]]) -> list[float | None]:
        outcomes = environment.step([starts[number] for number in numbers], joint_actions)
        return [outcome.reward for outcome in outcomes]

    return ask_peer(peer, task, 1, judge)


def ask_peer(peer: str, task: dict[str, Any], threads: int, judge: Callable[[list[int], list[list[str]]], Any]) -> Rows:
    """Let a peer train in a process of its own, and return its rows.

    Args:
        peer: ``comlrl`` or ``trl``.
        task: what `benchmarks.peers` reads.
        threads: of its products.
        judge: from numbers of problems and joint actions to rewards.
    """
    own, theirs = socket.socketpair()
    with tempfile.TemporaryDirectory() as folder, Connection(own.detach()) as connection:
        command = [str(PEERS), "-P", "-W", "ignore", str(ROOT / "benchmarks" / "peers.py"), peer, str(theirs.fileno())]
        settings = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"}
        with (
            Path(folder, "log").open("w+") as log,
            subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=settings, stdout=log, stderr=subprocess.STDOUT
            ) as process,
        ):
            theirs.close()
            try:
                connection.send(task | {"folder": folder, "threads": threads})
                while True:
                    message = connection.recv()
                    if isinstance(message, list):
                        return message
                    connection.send(judge(*message))
            except (EOFError, OSError):
                process.wait()
                raise SystemExit(f"{peer} failed:\n{Path(folder, 'log').read_text()[-4000:]}") from None


def per_update(rows: Rows, first: int, last: int) -> float:
    """Return CPU seconds per update from one update to another (numbered from 1, both included)."""
    before = rows[first - 2]["cpu"] if first > 1 else 0.0
    return (rows[last - 1]["cpu"] - before) / (last - first + 1)


def reached(rows: Rows) -> tuple[int, float] | None:
    """Return after how many updates and CPU seconds the mean reward of `WINDOW` updates reached `RETURN`."""
    for at in range(WINDOW, len(rows) + 1):
        if mean(rows[at - WINDOW : at]) >= RETURN:
            return at, rows[at - 1]["cpu"]
    return None


def table(report: dict[str, Any]) -> str:
    """Return the figures as Markdown: speed, and updates and seconds to the same return."""
    updates = report["updates"]
    few = min(EARLY, updates)
    runs = {name: list(found.values()) for name, found in report["runs"].items()}
    whole = {name: median(per_update(rows, 1, updates) for rows in found) for name, found in runs.items()}
    lines = ["# Training", *speed(report)]
    across = (whole["TRL 1.16 GRPO"] / (PROBLEMS * GROUP)) / (whole["Symposium, team"] / (2 * PROBLEMS * GROUP))
    lines += [
        "",
        f"Per action, our team of two is {across:.1f} times as fast as TRL's single agent.",
        "",
        f"| | reward, first {few} | reward, last {few} | mean reward | updates to {RETURN} | CPU s to {RETURN} |",
        "|---|---:|---:|---:|---|---|",
    ]
    for name, found in runs.items():
        first = median(mean(rows[:few]) for rows in found)
        last = median(mean(rows[-few:]) for rows in found)
        marks = [reached(rows) for rows in found]
        steps = ", ".join(str(mark[0]) if mark else f"> {updates}" for mark in marks)
        seconds = ", ".join(
            f"{mark[1]:.1f}" if mark else f"> {rows[-1]['cpu']:.0f}" for mark, rows in zip(marks, found, strict=True)
        )
        average = median(mean(rows) for rows in found)
        lines.append(f"| {name} | {first:.2f} | {last:.2f} | {average:.2f} | {steps} | {seconds} |")
    lines += ["", to_return(runs), "", f"![learning curves](../../{FIGURE})", ""]
    return "\n".join(lines)


def short_table(report: dict[str, Any], preset: str) -> str:
    """Return the speed of training in another environment as Markdown."""
    return "\n".join([f"# Training, `environment={preset}`", *speed(report), ""])


def speed(report: dict[str, Any]) -> list[str]:
    """Return the table of seconds per update, as lines."""
    updates = report["updates"]
    few = min(EARLY, updates)
    runs = {name: list(found.values()) for name, found in report["runs"].items()}
    seeds = len(next(iter(runs.values())))
    whole = {name: median(per_update(rows, 1, updates) for rows in found) for name, found in runs.items()}
    lines = [
        "",
        f"{updates} updates of {PROBLEMS} problems x {GROUP} actions an agent, one thread (medians; seeds: {seeds}).",
        f"`benchmarks/training.py` says what is measured. Float32 products: `{report['precision']}` for all.",
        "",
        f"| | CPU s per update | first {few} | last {few} | wall s per update | actions/CPU s | ours faster by |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in runs.items():
        kind, peer = CONTESTANTS[name]
        actions = PROBLEMS * GROUP * (2 if kind == "pair" else 1)
        early = median(per_update(rows, 1, few) for rows in found)
        late = median(per_update(rows, updates - few + 1, updates) for rows in found)
        wall = median(rows[-1]["wall"] / updates for rows in found)
        faster = median(
            theirs[-1]["cpu"] / ours[-1]["cpu"] for theirs, ours in zip(found, runs[OURS[kind]], strict=True)
        )
        ratio = f"{faster:.1f} x" if peer else ""
        lines.append(
            f"| {name} | {whole[name]:.3f} | {early:.3f} | {late:.3f} | {wall:.3f} | {actions / whole[name]:,.0f} | "
            f"{ratio} |"
        )
    return lines


def to_return(runs: dict[str, list[Rows]]) -> str:
    """Say how much sooner ours reaches the return than each peer (at least, where the peer never did)."""
    parts = []
    for name, (kind, peer) in CONTESTANTS.items():
        if peer is None:
            continue
        marks = [
            (reached(theirs), theirs[-1]["cpu"], reached(ours))
            for theirs, ours in zip(runs[name], runs[OURS[kind]], strict=True)
        ]
        ratios = [(theirs[1] if theirs else end) / ours[1] for theirs, end, ours in marks if ours]
        least = "at least " if any(theirs is None for theirs, _, _ in marks) else ""
        if len(ratios) == len(marks):
            parts.append(f"{OURS[kind]} reaches {RETURN} {least}{median(ratios):.0f} times sooner than {name}.")
        else:
            parts.append(
                f"{OURS[kind]} did not reach {RETURN} with every seed, so {name} has nothing to be compared with."
            )
    return " ".join(parts)


def mean(rows: Rows) -> float:
    """Return the mean reward of some updates."""
    return sum(row["reward"] for row in rows) / len(rows)


def figure(report: dict[str, Any]) -> None:
    """Draw mean reward by update and by CPU seconds."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "symposium", "svg.fonttype": "none", "font.size": 9})
    chart, axes = plt.subplots(1, 2, figsize=(7.2, 3.0), sharey=True, layout="constrained")
    colours = {"Symposium, team": "#0b5394", "CoMLRL 1.4.3 MAGRPO": "#b4443c"}
    colours |= {"Symposium, single agent": "#6fa8dc", "TRL 1.16 GRPO": "#e0a030"}
    for name, found in report["runs"].items():
        for number, rows in enumerate(found.values()):
            rewards, style = [row["reward"] for row in rows], {"color": colours[name], "linewidth": 1.1}
            axes[0].plot(range(1, len(rows) + 1), rewards, label=name if number == 0 else None, **style)
            axes[1].plot([row["cpu"] for row in rows], rewards, **style)
    axes[1].set_xscale("log")
    axes[0].set_xlabel("update")
    axes[1].set_xlabel("CPU seconds")
    axes[0].set_ylabel("mean training reward (of 2)")
    axes[0].legend(frameon=False, fontsize=8)
    for axis in axes:
        axis.axhline(RETURN, color="#555555", linewidth=0.8, linestyle=":")
        axis.spines[["top", "right"]].set_visible(False)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    chart.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
