"""How teams of two, three and four agents learn to write a program together.

``python -m benchmarks.modules`` makes a base for each number of modules (the presets of ``environment=modules``),
trains teams from it, and plays each team on held-out problems before and after.  Finished runs are kept in
``benchmarks/results/modules.json``, and shown in ``benchmarks/results/modules.md`` and ``docs/figures/modules.svg``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.play import Player
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import load_params
from pipeline_lib.settings.params import Params
from pipeline_lib.training.trainer import train

RESULTS = Path("benchmarks/results/modules.json")
FIGURE = Path("docs/figures/modules.svg")
SHOWN = ("system_passed", "units_passed", "parts_needed")
#: Episodes on each held-out problem, and the seed of their draws.
SAMPLES, SEED = 4, 2000
COLOURS = {"2": "#6fa8dc", "3": "#0b5394", "4": "#b4443c"}


def settings(modules: int, folder: Path) -> Params:
    """Return the settings of the preset with another number of modules."""
    path = folder / "params.yaml"
    path.write_text(
        f"environment: modules\nproblems: {{kind: module_graphs, modules: {modules}, levels: [1], "
        "sizes: {train: 1024, validation: 64, test: 128}}\n"
    )
    return load_params(path, Path("conf"))


def measure(modules: int, seeds: Sequence[int], folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each seed: held-out metrics before and after training, seconds, and the metrics of updates."""
    params = settings(modules, folder)
    prepare(params.environment.kind, params.problems, folder / "problems")
    began = time.perf_counter()
    build_base(params.policy, folder / "problems", folder / "base")
    warm = time.perf_counter() - began
    test = load_split(folder / "problems", "test")
    sampling = Sampling(max_new_tokens=params.rollouts.max_new_tokens)
    for seed in seeds:
        curve: list[dict[str, float]] = []
        with contextlib.closing(make_environment(params.environment, params.sandbox)) as environment:
            team = load_team(params.policy, folder / "base", environment.agents(test[0]))

            def played(environment: Any = environment, team: Any = team) -> dict[str, float]:
                with contextlib.closing(make_engine(params.rollouts)) as engine:
                    engine.load(team.policies)
                    records = evaluate_team(Player(environment, team, engine, sampling), test, SAMPLES, SEED)
                return {name: mean(record.metrics[name] for record in records) for name in SHOWN}

            def on_step(step: int, metrics: Mapping[str, float], curve: Any = curve) -> None:
                curve.append({name: round(metrics[f"metrics/{name}"], 4) for name in SHOWN})

            before = played()
            began = time.perf_counter()
            with contextlib.closing(make_engine(params.rollouts)) as engine:
                train(
                    settings=params.train,
                    sampling=sampling,
                    environment=environment,
                    team=team,
                    engine=engine,
                    problems=load_split(folder / "problems", "train"),
                    seed=seed,
                    scratch=folder / f"run-{seed}",
                    on_step=on_step,
                )
            trained = time.perf_counter() - began
            row = {"modules": modules, "seed": seed, "before": before, "after": played(), "curve": curve}
        yield {**row, "warm_start_s": round(warm), "training_s": round(trained)}


def keep(row: Mapping[str, Any]) -> None:
    """Add a row to the results, in place of an older one of the same run."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = [other for other in known if (other["modules"], other["seed"]) != (row["modules"], row["seed"])]
    RESULTS.write_text(json.dumps(sorted([*rows, row], key=lambda one: (one["modules"], one["seed"]))) + "\n")


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table as Markdown."""
    lines = [
        "# Modules: two, three and four agents",
        "",
        "Written by `python -m benchmarks.modules`; what it means: [docs/modules.md](../../docs/modules.md). Shares of",
        f"128 held-out problems of level 1, {SAMPLES} episodes each, before and after training.",
        "",
        "| modules | seed | system tests, base | trained | unit tests, base | trained | agents needed | training, s |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        shares = [row[when][name] for name in SHOWN for when in ("before", "after")]
        cells = " | ".join(f"{100 * share:.1f} %" for share in [*shares[:4], shares[5]])
        lines.append(f"| {row['modules']} | {row['seed']} | {cells} | {row['training_s']} |")
    return "\n".join(lines) + "\n"


def figure(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw system tests, unit tests and the agents needed over updates, a line for each run."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "symposium", "svg.fonttype": "none", "font.size": 9})
    titles = ("system tests passed", "unit tests passed", "agents that the program needs")
    chart, axes = plt.subplots(1, 3, figsize=(9.5, 3), sharey=True, layout="constrained")
    for axis, name, title in zip(axes, SHOWN, titles, strict=True):
        known: set[int] = set()
        for row in rows:
            values = [step[name] for step in row["curve"]]
            smooth = [mean(values[max(0, n - 4) : n + 1]) for n in range(len(values))]
            label = "" if row["modules"] in known else f"{row['modules']} modules"
            axis.plot(range(1, len(values) + 1), smooth, color=COLOURS[str(row["modules"])], label=label)
            known.add(row["modules"])
        axis.set(title=title, xlabel="updates", ylim=(0, 1))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("share (mean of five updates)")
    axes[2].legend(frameon=False, loc="lower right")
    chart.savefig(path, metadata={"Date": None})


def main() -> int:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=int, nargs="*", default=[2, 3, 4], help="numbers of modules; none: only draw")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    for modules in options.modules:
        with tempfile.TemporaryDirectory() as folder:
            for row in measure(modules, options.seeds, Path(folder)):
                print({name: value for name, value in row.items() if name != "curve"}, flush=True)
                keep(row)
    rows = json.loads(RESULTS.read_text())
    RESULTS.with_suffix(".md").write_text(page(rows))
    figure(rows, FIGURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
