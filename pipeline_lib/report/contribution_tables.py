"""Who contributes how much: Shapley values and removal of each agent, and what each subteam reaches."""

from __future__ import annotations

from typing import Any

from pipeline_lib.evaluation.results import Estimate
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.result_tables import difference_cells
from pipeline_lib.report.style import Table


def agents(data: ReportData) -> Table:
    """Return one row per agent; empty where nothing was measured."""
    exact = any(found.shapley for found in data.contributions)
    rows = [
        [
            found.agent,
            *(_cells(data, found.shapley) if exact else ()),
            *_cells(data, found.removal),
            found.problems,
        ]
        for found in data.contributions
    ]
    shapley = ("Shapley value", "its interval") if exact else ()
    return Table(("agent", *shapley, "lost without it", "interval", "problems"), rows)


def subteams(data: ReportData) -> Table:
    """Return the mean of the primary metric for every subteam that was played, the whole team first."""
    rows = [[" + ".join(present) or "nobody", data.info.text(mean)] for present, mean in data.subteams.items()]
    return Table(("who acts", data.info.label), rows)


def _cells(data: ReportData, estimate: Estimate | None) -> tuple[Any, Any]:
    if estimate is None or estimate.value is None:
        return None, None
    return difference_cells({"estimate": estimate.value, "low": estimate.low, "high": estimate.high}, data.info)
