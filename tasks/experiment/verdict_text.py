"""A verdict as Markdown for Prefect, and as numbers for MLflow and DVC."""

import re
from collections.abc import Mapping
from typing import Any

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
