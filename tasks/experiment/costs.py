"""The work behind a result: seconds and tokens of training and test, whenever they were done."""

from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.settings import Params
from tasks.experiment.arms import ARMS, RESULTS, SINGLE, seeds_of, training_rows


def costs(params: Params, project: Path = Path()) -> dict[str, dict[str, float]]:
    """Return ``seconds`` and sampled ``tokens`` of each part of a project's work: training of each arm, and test."""
    by_part: dict[str, dict[str, float]] = {}
    for arm in ARMS:
        rows: list[dict[str, Any]] = [
            row for seed in seeds_of(params, arm) for row in training_rows(arm, seed, project)
        ]
        if rows:
            by_part[f"training, {'single-agent GRPO' if arm == SINGLE else arm}"] = {
                "seconds": sum(row["time/step_s"] for row in rows),
                "tokens": sum(row["actions/tokens"] for row in rows),
            }
    tested = storage.read_json(project / RESULTS / "test" / "cost.json").values()
    by_part["test"] = {key: sum(cost[key] for cost in tested) for key in ("seconds", "tokens")}
    return by_part
