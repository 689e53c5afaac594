"""The figure of this environment: texts of the writers before and after training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline_lib.report.style import BLUE, GREY, INK, Figure, Table, figure, wrap

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

    from pipeline_lib.report.data import ReportData

#: Most characters of a text that the drawing shows; the table shows a hundred words.
SHOWN = 300


def texts(data: ReportData) -> list[Figure]:
    """Show the texts of base and selected team on the first test problems; nothing if the test kept no texts."""
    rows: list[list[Any]] = []
    for place, before in enumerate(data.examples.get("base", ())):
        for team, episode in (("base", before), ("selected", data.examples["selected"][place])):
            first, second = episode["details"].get("texts", ("", ""))
            rows.append([before["problem"], team, episode["metrics"]["coverage"], first, second])
    if not any(row[3] or row[4] for row in rows):
        return []

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        axes.axis("off")
        width, size = (48, 6.5) if narrow else (110, 7.5)
        lines: list[tuple[str, str]] = []
        for problem, team, coverage, first, second in rows:
            colour = GREY if team == "base" else BLUE
            lines.append((f"{team}, {coverage:.0%} of the facts told ({problem})", colour))
            for number, text in enumerate((first, second), 1):
                shown = text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."
                lines += [(f"    {line}", INK) for line in wrap(f"{number}. {shown or '(empty)'}", width).split("\n")]
        for place, (line, colour) in enumerate(lines):
            axes.text(
                0.0, 1.0 - place / len(lines), line, transform=axes.transAxes, fontsize=size, color=colour, va="top"
            )

    return [
        figure(
            "texts",
            "Texts before and after",
            "The first test episodes of the base and of the selected team: the first writer's text and the second's.",
            paint,
            Table(("problem", "team", "facts told", "first text", "second text"), rows),
            (0.9 * len(rows), 1.3 * len(rows)),
        )
    ]
