"""Computes with pingouin and rliable what our statistics are compared with, and stores it beside this file.

They live in an environment of their own (`benchmarks/make_stats_environment.sh`); run

    .venv-stats/bin/python tests/evaluation/references/make_references.py
"""

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import numpy as np
import pingouin
from rliable import metrics


def two_groups(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(0.3, 1.0, 8 + 3 * seed), 6)
    y = np.round(rng.normal(0.0, 1.7, 11 + 2 * seed), 6)
    welch = pingouin.ttest(x, y, correction=True, confidence=0.95).iloc[0]
    n = min(x.size, y.size)
    pairs = pingouin.ttest(x[:n], y[:n], paired=True, confidence=0.95).iloc[0]
    return {
        "x": x.tolist(),
        "y": y.tolist(),
        "welch": {"t": float(welch["T"]), "df": float(welch["dof"]), "p": float(welch["p_val"])},
        "paired": {"n": n, "t": float(pairs["T"]), "df": float(pairs["dof"]), "p": float(pairs["p_val"])},
        "common_language": float(pingouin.compute_effsize(x, y, eftype="CLES")),
        "tost_welch": float(pingouin.tost(x, y, bound=1.0, correction=True)["pval"].iloc[0]),
        "tost_paired": float(pingouin.tost(x[:n], y[:n], bound=1.0, paired=True)["pval"].iloc[0]),
    }


def corrections(seed: int) -> dict[str, Any]:
    p = np.random.default_rng(100 + seed).random(12) ** 3
    return {
        "p": p.tolist(),
        "holm": pingouin.multicomp(p.tolist(), method="holm")[1].tolist(),
        "benjamini_hochberg": pingouin.multicomp(p.tolist(), method="fdr_bh")[1].tolist(),
    }


def runs_and_tasks(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(200 + seed)
    x = np.round(rng.random((5 + seed, 7)), 1)  # rounded, so that ties occur
    y = np.round(rng.random((4 + seed, 7)) * 0.9, 1)
    return {
        "x": x.tolist(),
        "y": y.tolist(),
        "iqm": float(metrics.aggregate_iqm(x)),
        "mean": float(metrics.aggregate_mean(x)),
        "improvement": float(metrics.probability_of_improvement(x, y)),
    }


def main() -> None:
    content = {
        "versions": {name: importlib.metadata.version(name) for name in ("pingouin", "rliable", "arch", "scipy")},
        "two_groups": [two_groups(seed) for seed in range(6)],
        "corrections": [corrections(seed) for seed in range(4)],
        "runs_and_tasks": [runs_and_tasks(seed) for seed in range(4)],
    }
    Path(__file__).with_name("references.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
