"""How fast the bootstrap is, on one core: ``.venv/bin/python -m benchmarks.statistics``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from pipeline_lib import storage
from pipeline_lib.evaluation import bootstrap

RESULT = Path(__file__).parent / "results" / "statistics.json"
PROBLEMS, SAMPLES, CHECKPOINTS, RESAMPLES = 164, 15, 10, 10_000
TRIES = 3


def main() -> None:
    """Measure, print, and keep the figure in benchmarks/results/statistics.json."""
    episodes = np.random.default_rng(0).random((CHECKPOINTS, PROBLEMS, SAMPLES))
    seconds = float("inf")
    for _ in range(TRIES):
        start = time.process_time()
        draws = bootstrap.clustered_bootstrap(episodes.mean(axis=2), np.arange(PROBLEMS), RESAMPLES, seed=0)
        bootstrap.simultaneous_factor(draws, 0.95, PROBLEMS)
        seconds = min(seconds, time.process_time() - start)
    what = (
        f"clustered bootstrap and band: {RESAMPLES:,} resamples of {PROBLEMS} problems x {SAMPLES} samples x "
        f"{CHECKPOINTS} checkpoints"
    )
    print(f"{what}: {seconds:.2f} CPU s")
    storage.write_json(RESULT, [{"what": what, "seconds": seconds}])
    if seconds > 2:
        sys.exit("the clustered bootstrap takes more than 2 s")


if __name__ == "__main__":
    main()
