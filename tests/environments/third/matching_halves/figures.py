"""The figure that only this environment has."""

from __future__ import annotations

from typing import Any

from pipeline_lib.report.style import BLUE, Figure, Table, figure


def letters(data: Any) -> Figure:
    """Show on which letter the selected team agrees."""
    agreed = data.verdict["teams"]["selected"]["schemes"]
    table = Table(("letter", "share"), [[letter, agreed.get(letter, 0.0)] for letter in "xyz"])

    def paint(canvas: Any, narrow: bool) -> None:
        axes = canvas.subplots()
        axes.bar([row[0] for row in table.rows], [row[1] for row in table.rows], color=BLUE)

    return figure("letters", "The letter agreed on", "Share of test episodes.", paint, table)
