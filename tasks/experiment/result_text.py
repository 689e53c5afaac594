"""What is said of a result: its verdict as Markdown and as numbers, and the work behind it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline_lib import storage
from pipeline_lib.settings import Params
from tasks.experiment.arms import ARMS, RESULTS, SINGLE, seeds_of, training_rows

_SELECTED, _BASE = "selected", "base"  # as in `pipeline_lib.evaluation.verdict`, whose import takes seconds


def in_markdown(result: Mapping[str, Any]) -> str:
    """Return the content of ``results/verdict.json`` as its word and three lines, the details of the caveats folded."""
    told = "\n".join(f"- {text}" for caveat in result["caveats"] for text in caveat["details"])
    folded = f"<details><summary>The caveats</summary>\n\n{told}\n\n</details>" if told else ""
    return "\n\n".join(filter(None, (f"## {result['verdict']}", *result["lines"], folded)))


def headline(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a verdict: each team's mean, effect, significance.

    The means of the selected team and of the base are those of their comparison: without the episodes that one lost.
    """
    metric, teams = result["metric"], result["teams"]
    means = {re.sub(r"\W+", "_", name).lower(): team["metrics"][metric] for name, team in teams.items()}
    means[_SELECTED], means[_BASE] = (mean["value"] for mean in result["comparisons"][_BASE]["means"])
    numbers = {
        "verdict": result["verdict"],
        "metric": metric,
        **means,
        "difference": result["difference"],
        "low": result["low"],
        "high": result["high"],
        "p": result["p"],
        "looks": result["looks"]["count"],
        "p_for_looks": result["looks"]["p"].get(_BASE, {}).get("for_looks"),
        "hedges_g": result["hedges_g"],
    }
    return {
        name: round(value, 6) if isinstance(value, float) and name not in ("p", "p_for_looks") else value
        for name, value in numbers.items()
    }


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
