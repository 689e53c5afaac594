"""How fast the bootstrap is: ours on one core, and against rliable on the same data as a ratio.

    .venv/bin/python -m benchmarks.statistics       (rliable: after benchmarks/make_stats_environment.sh)

rliable runs in its own environment and process; CPU seconds are compared, so that a busy machine does not matter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline_lib import storage
from pipeline_lib.evaluation import bootstrap

ROOT = Path(__file__).parents[1]
RLIABLE = ROOT / ".venv-stats" / "bin" / "python"
PROBLEMS, SAMPLES, CHECKPOINTS, RESAMPLES = 164, 15, 10, 10_000

#: What rliable does with the same numbers: (runs x tasks) with a run per sample; prints CPU seconds.
REFERENCE = """
import json, sys, time
import numpy as np
from rliable import library, metrics
x = np.random.default_rng(0).random((15, 164))
np.random.seed(0)
start = time.process_time()
library.get_interval_estimates({"x": x}, lambda s: np.array([metrics.aggregate_%s(s)]), reps=%d)
print(json.dumps(time.process_time() - start))
"""


def cpu_seconds(call: Callable[[], Any]) -> float:
    """Return the CPU seconds of the fastest of three calls."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def rliable_seconds(statistic: str, reps: int) -> float | None:
    """Return rliable's CPU seconds for this many resamples, or None without its environment."""
    if not RLIABLE.exists():
        return None
    done = subprocess.run(
        [RLIABLE, "-W", "ignore", "-c", REFERENCE % (statistic, reps)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Measure, print, and keep the table in benchmarks/results/statistics.json."""
    rng = np.random.default_rng(0)
    episodes = rng.random((CHECKPOINTS, PROBLEMS, SAMPLES))
    clusters = np.arange(PROBLEMS)

    def ours() -> None:
        means = episodes.mean(axis=2)
        draws = bootstrap.clustered_bootstrap(means, clusters, RESAMPLES, seed=0)
        bootstrap.simultaneous_factor(draws, 0.95, PROBLEMS)

    rows: list[dict[str, Any]] = [
        {
            "what": f"clustered bootstrap and band: {RESAMPLES:,} resamples of {PROBLEMS} problems x {SAMPLES} samples "
            f"x {CHECKPOINTS} checkpoints",
            "seconds": cpu_seconds(ours),
        }
    ]
    x = rng.random((SAMPLES, PROBLEMS))
    for statistic in ("mean", "iqm"):
        seconds = cpu_seconds(lambda s=statistic: bootstrap.stratified_bootstrap(x, s, RESAMPLES, seed=0))  # type: ignore[misc]
        reps = 1_000
        theirs = rliable_seconds(statistic, reps)
        row = {
            "what": f"stratified bootstrap of the {statistic}, {RESAMPLES:,} resamples of 15 x 164",
            "seconds": seconds,
        }
        if theirs is not None:
            row["rliable_seconds"] = theirs * RESAMPLES / reps
            row["ratio"] = row["rliable_seconds"] / seconds
        rows.append(row)
    for row in rows:
        compared = f"; rliable {row['rliable_seconds']:.1f} s, {row['ratio']:.0f} times ours" if "ratio" in row else ""
        print(f"{row['what']}: {row['seconds']:.2f} CPU s{compared}")
    storage.write_json(ROOT / "benchmarks" / "results" / "statistics.json", rows)
    if rows[0]["seconds"] > 2:
        sys.exit("the clustered bootstrap takes more than 2 s")


if __name__ == "__main__":
    main()
