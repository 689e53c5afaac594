"""The cost of an experiment: tokens and seconds."""

from __future__ import annotations

from typing import Any

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.style import Table

COLUMNS = {"seconds": "seconds", "tokens": "tokens sampled"}


def costs(data: ReportData) -> Table:
    """Return seconds and tokens of every part, as far as known."""
    known = {key: title for key, title in COLUMNS.items() if any(key in cost for cost in data.costs.values())}
    rows = [
        [name, *(round(float(cost[key]), 1) if key in cost else None for key in known)]
        for name, cost in data.costs.items()
    ]
    return Table(("part", *known.values()), rows)


def one_episode(data: ReportData) -> Table:
    """Return what one test episode costs each team: tokens sampled, read, and sampled one after another."""
    columns = {
        "prompt_tokens": "prompt tokens",
        "critical_path_tokens": "tokens one after another",
        "requests": "requests",
    }
    teams = data.verdict["teams"]
    if any(team["details"].get("unread") for team in teams.values()):
        columns["unread"] = "prompts too long to answer"
    if any(team["details"].get("cut_turns") for team in teams.values()):
        columns["cut_turns"] = "earlier turns cut from prompts"
    known = {key: title for key, title in columns.items() if any(key in team["details"] for team in teams.values())}
    rows: list[list[Any]] = [
        [name, round(team["tokens"], 1), *(_rounded(team["details"].get(key), key) for key in known)]
        for name, team in teams.items()
    ]
    return Table(("team", "tokens sampled", *known.values()), rows)


def _rounded(value: float | None, key: str) -> float | None:
    return None if value is None else round(value, 3 if key == "unread" else 1)
