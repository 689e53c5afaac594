"""What each turn adds, before and after training."""

from __future__ import annotations

from typing import Any

from pipeline_lib.report.data import ReportData
from pipeline_lib.report.result_tables import between
from pipeline_lib.report.style import Table
from pipeline_lib.report.text import typeset


def turns(data: ReportData) -> Table:
    """Return one row per team and turn from the second on; empty if no episode had several attempts."""
    rows: list[list[Any]] = []
    for team, gains in data.turn_gains.items():
        for found in gains:
            limits = {"low": found.gain.low, "high": found.gain.high}
            rows.append(
                [
                    team,
                    found.turn,
                    found.episodes,
                    data.info.text(found.before),
                    None if found.gain.value is None else typeset(data.info.difference(found.gain.value)),
                    typeset(between(limits, data.info.difference).removesuffix(" points")),
                    f"{found.reward:+.2f}",
                    _percent(found.repaired),
                    _percent(found.broken),
                ]
            )
    columns = ("team", "turn", "episodes", "turn before", "gain", "interval", "reward", "repaired", "broken")
    return Table(columns, rows)


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"
