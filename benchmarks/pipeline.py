"""What the last `make pipeline` of this project cost, and what the orchestration around it costs.

    python -m benchmarks.pipeline

Seconds per stage, tokens and episodes per second are those of the run that lies here (they are as noisy as the
machine was).  "Around it" is all of a stage that is not the body of its flow: DVC's start, hashing and lock file, the
start of the process, Prefect's flow run, MLflow's last records.  Two overheads are measured now: what logging an update
to MLflow and to the progress display costs the training loop, as a share of the update's own time; and what a cached
Prefect task costs beyond the computation in it, as a share of the work of the stages that consist of such tasks.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from pipeline_lib import storage
from tasks.chain.graph import read_seconds
from tasks.services.process_environment import prepare

OUTPUT = Path("benchmarks/results/pipeline.md")
UPDATES, TASKS = 500, 24


def stage_rows(took: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the table of stages: wall seconds, those of the work, and what is around it."""
    rows = ["| stage | wall s | work s | around it s | share |", "|---|---:|---:|---:|---:|"]
    whole = {key: sum(row[key] for row in took.values()) for key in ("seconds", "work")}
    for name, row in [*took.items(), ("all", whole)]:
        around = row["seconds"] - row["work"]
        rows.append(
            f"| {name} | {row['seconds']:.1f} | {row['work']:.1f} | {around:.1f} | {around / row['seconds']:.0%} |"
        )
    return rows


def training_rows() -> dict[str, list[dict[str, float]]]:
    """Return the metrics of every update, by run."""
    files = sorted(Path("results/train").glob("*.jsonl"))
    if not files:
        raise SystemExit("results/train: no training run lies here; run `make pipeline` first")
    return {path.stem: list(storage.read_jsonl(path)) for path in files}


def evaluation_files() -> dict[str, list[Path]]:
    """Return the evaluations of the stages that consist of them, a cached task each."""
    found = {"test": sorted(Path("results/test").glob("*.jsonl"))}
    for folder in sorted(Path("results/sweep").iterdir()):
        arm, _, seed = folder.name.rpartition("-")
        found[f"sweep@{seed}" if arm == "team" else f"sweep_{arm}@{seed}"] = sorted(folder.glob("*.jsonl"))
    return found


def overhead_ms(row: dict[str, float]) -> float:
    """Return the milliseconds by which reporting delays one update (tracking and progress; flushing included)."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["SYMPOSIUM_HOME"] = home
        from pipeline_lib.tracking import Tracker
        from tasks.runtime.progress import Progress

        tracker = Tracker(Path(home) / "mlflow", "benchmark", "benchmark")
        run = tracker.start_run("train", 0)
        tracker.flush(60.0)
        metrics = {name: value for name, value in row.items() if name != "step"}
        with Progress("benchmark") as progress:
            started = time.perf_counter()
            for step in range(1, UPDATES + 1):
                run.log(step, metrics)
                progress(step, UPDATES, "reward 1.00")
            seconds = time.perf_counter() - started
        run.finish()
        tracker.close(60.0)
    return 1000 * seconds / UPDATES


def task_ms(values: Mapping[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Return the milliseconds that a cached task adds to computing each value: Prefect's engine, writing the value."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["SYMPOSIUM_HOME"] = home
        prepare()
        from prefect import flow
        from prefect.settings import PREFECT_API_URL, temporary_settings

        from tasks.runtime.caching import CachedTask, Identity
        from tasks.services.servers import prefect_server

        task = CachedTask("benchmark", storage)
        found: dict[str, float] = {}

        @flow(name="benchmark")
        def run(name: str) -> None:
            started = time.perf_counter()
            for seed in range(TASKS):
                task(Identity("a" * 64, storage.digest(name), seed, {}), lambda: values[name])
            found[name] = 1000 * (time.perf_counter() - started) / TASKS

        with prefect_server() as url, temporary_settings({PREFECT_API_URL: f"{url}/api"}):
            for name in values:
                run(name)
    return found


def main() -> None:
    """Measure and write the table."""
    took, rows = read_seconds(Path.cwd()), training_rows()
    steps: list[dict[str, Any]] = [row for run in rows.values() for row in run]
    update_ms = 1000 * mean(row["time/step_s"] for row in steps)
    evaluations = evaluation_files()
    overhead = overhead_ms(steps[-1])
    task = task_ms({name: list(storage.read_jsonl(files[0])) for name, files in evaluations.items()})
    lines = ["# The default chain", "", *stage_rows(took)]
    lines += [
        "",
        "| run | updates | tokens/s sampled | joint actions/s, all told | ms per update |",
        "|---|---|---|---|---|",
    ]
    for name, run in rows.items():
        total = sum(row["time/step_s"] for row in run)
        tokens = sum(row["actions/tokens"] for row in run) / sum(row["time/generation_s"] for row in run)
        actions = sum(row["actions/count"] for row in run) / total
        lines.append(f"| {name} | {len(run)} | {tokens:,.0f} | {actions:,.0f} | {1000 * total / len(run):.0f} |")
    lines += [
        "",
        f"Reporting an update (tracking and progress) takes {overhead:.2f} ms of the training loop, "
        f"{100 * overhead / update_ms:.2f} % of an update of {update_ms:.0f} ms.",
        "",
        "What a cached task, an evaluation, takes beyond its computation:",
        "",
        "| stage | tasks | ms per task | share of its work |",
        "|---|---:|---:|---:|",
    ]
    for name, files in evaluations.items():
        share = len(files) * task[name] / 1000 / took[name]["work"]
        lines.append(f"| {name} | {len(files)} | {task[name]:.0f} | {share:.1%} |")
    storage.write_text(OUTPUT, "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
