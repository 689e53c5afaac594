"""What the last `make pipeline` of this project cost, and what the orchestration around it costs.

    python -m benchmarks.pipeline

Seconds per stage, tokens and episodes per second are those of the run that lies here (they are as noisy as the
machine was).  The overhead is measured now: what logging one update to MLflow and to the progress display costs the
training loop, as a share of the update's own time.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any

from pipeline_lib import storage

OUTPUT = Path("benchmarks/results/pipeline.md")
UPDATES = 500


def stage_seconds() -> dict[str, float]:
    """Return the wall seconds of each stage of the last experiment."""
    path = Path(".symposium/seconds.json")
    if not path.exists():
        raise SystemExit(f"{path}: nothing was run here; run `make pipeline` first")
    found: dict[str, float] = storage.read_json(path)
    return found


def training_rows() -> dict[str, list[dict[str, float]]]:
    """Return the metrics of every update, by run."""
    files = sorted(Path("results/train").glob("*.jsonl"))
    if not files:
        raise SystemExit("results/train: no training run lies here; run `make pipeline` first")
    return {path.stem: list(storage.read_jsonl(path)) for path in files}


def overhead_ms(row: dict[str, float]) -> float:
    """Return the milliseconds by which reporting delays one update (tracking and progress; flushing included)."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["SYMPOSIUM_HOME"] = home
        from pipeline_lib.tracking import Tracker
        from tasks.progress import Progress

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


def main() -> None:
    """Measure and write the table."""
    seconds, rows = stage_seconds(), training_rows()
    steps: list[dict[str, Any]] = [row for run in rows.values() for row in run]
    update_ms = 1000 * mean(row["time/step_s"] for row in steps)
    overhead = overhead_ms(steps[-1])
    lines = ["# The default chain", "", "| stage | wall seconds |", "|---|---|"]
    lines += [f"| {name} | {value:.1f} |" for name, value in seconds.items()]
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
    ]
    storage.write_text(OUTPUT, "\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
