"""Several experiments on one page: which improved by how much, and which settings they differ in.

The rows come from the tracking store (MLflow); no test is repeated.  Among many experiments one may be good by chance,
so the p values of all runs on the page are corrected as one family (Holm), and the page says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import NO_METRICS, Metrics, describe
from pipeline_lib.evaluation.results import EvaluationError, holm
from pipeline_lib.report.page import render
from pipeline_lib.report.results import between, p_cell
from pipeline_lib.report.style import BLUE, GREEN, GREY, INK, RED, Figure, Table, figure, row_axes
from pipeline_lib.report.text import typeset

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

COLOURS = {"IMPROVED": BLUE, "WORSE": RED, "EQUIVALENT": GREEN, "INCONCLUSIVE": GREY}


@dataclass(frozen=True, slots=True)
class RunRow:
    """One experiment, as its tracked parent run describes it."""

    name: str  #: name of the run
    verdict: str  #: IMPROVED, WORSE, EQUIVALENT or INCONCLUSIVE
    lines: Sequence[str]  #: the verdict in three lines
    metric: str  #: primary metric
    base: float  #: its mean before training, on the test split
    selected: float  #: its mean after
    difference: float  #: selected minus base
    low: float | None  #: lower limit of the difference, or None
    high: float | None  #: upper limit, or None
    p: float | None  #: p value of the difference, or None
    plan: str = ""  #: digest of the evaluation plan
    problems: str = ""  #: digest of the problems
    plan_faults: str = ""  #: deviations from its plan, in words; empty if it was fixed before and followed
    looks: int | None = None  #: number of looks at its test split, its own included; None if they were not counted
    settings: Mapping[str, Any] = field(default_factory=dict)  #: flat settings, ``section.key`` and value
    identity: Mapping[str, str] = field(default_factory=dict)  #: further names and ids


def build_comparison(rows: Sequence[RunRow], output: Path, metrics: Metrics = NO_METRICS) -> None:
    """Write the page that compares runs to ``output``.

    Raises:
        EvaluationError: there are no runs, or they do not share a primary metric.
    """
    if not rows:
        raise EvaluationError("there are no finished runs to compare; run the pipeline to its verdict first")
    if len(named := sorted({row.metric for row in rows})) > 1:
        raise EvaluationError(f"the runs have different primary metrics ({', '.join(named)}); compare runs of one")
    ordered = sorted(rows, key=lambda row: (-row.difference, row.name))
    page = render(
        "compare.html.j2",
        title="Runs compared",
        rows=ordered,
        warnings=warnings(ordered),
        effects=effects(ordered, metrics),
        numbers=numbers(ordered, metrics),
        settings=differing_settings(ordered),
    )
    storage.write_text(output, page)


def warnings(rows: Sequence[RunRow]) -> list[str]:
    """Return the reasons for which these runs are not directly comparable."""
    found = []
    if len({row.problems for row in rows if row.problems}) > 1:
        found.append("The runs were tested on different problems, so their means are not comparable one to one.")
    if len({row.plan for row in rows if row.plan}) > 1:
        found.append(
            "The runs were evaluated under different plans: checkpoints, problems, samples, seeds, margin or what "
            "the team is compared with differ."
        )
    if any(row.looks is not None and row.looks > 1 for row in rows):
        found.append("Some of these runs were not the first look at their test split, which the p values here ignore.")
    if len(rows) > 1:
        found.append(
            f"The best of {len(rows)} runs looks better than it is. p values are corrected over all runs on this page; "
            "to claim that one setting beats another, test the two against each other on fresh problems."
        )
    return found


def numbers(rows: Sequence[RunRow], metrics: Metrics) -> Table:
    """Return the numbers of all runs, p values corrected as one family."""
    info = describe(rows[0].metric, metrics)
    adjusted = holm([row.p for row in rows])
    cells = []
    for row, p in zip(rows, adjusted, strict=True):
        interval = typeset(between({"low": row.low, "high": row.high}, info.difference))
        means = info.text(row.base), info.text(row.selected)
        cells.append([row.name, row.verdict, *means, typeset(info.difference(row.difference)), interval, p_cell(p)])
    return Table(("run", "verdict", "base", "selected", "difference", "interval", "p (Holm, all runs)"), cells)


def differing_settings(rows: Sequence[RunRow]) -> Table:
    """Return the settings in which the runs differ, one row each."""
    keys = sorted({key for row in rows for key in row.settings})
    cells = []
    for key in keys:
        values = [row.settings.get(key) for row in rows]
        if len({json.dumps(value, sort_keys=True, default=str) for value in values}) > 1:
            cells.append([key, *("–" if value is None else _plain(str(value)) for value in values)])
    return Table(("setting", *(row.name for row in rows)), cells)


def _plain(value: str) -> str:
    """Return a setting in readable form: a list of words without brackets and quotation marks."""
    return value[1:-1].replace("'", "") or "none" if value.startswith("[") else value


def effects(rows: Sequence[RunRow], metrics: Metrics) -> Figure:
    """Draw every run from base to selected, with the interval of the difference."""
    info = describe(rows[0].metric, metrics)

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        for y, row in enumerate(rows):
            colour = COLOURS.get(row.verdict, INK)
            axes.plot([row.base, row.selected], [y, y], color="#C3CBD4", linewidth=2.2, zorder=1)
            if row.low is not None and row.high is not None:
                axes.plot(
                    [row.base + row.low, row.base + row.high], [y, y], color=colour, linewidth=6, alpha=0.35, zorder=2
                )
            axes.plot(row.base, y, "o", color=GREY, markersize=6, zorder=3)
            axes.plot(row.selected, y, "D", color=colour, markersize=6.5, zorder=4)
            if not narrow:
                text = f"{info.difference(row.difference)}  {row.verdict}"
                axes.text(1.02, y, typeset(text), transform=axes.get_yaxis_transform(), va="center", color=colour)
        row_axes(axes, [row.name for row in rows], 16 if narrow else 34, info)

    height = 0.9 + 0.42 * len(rows)
    return figure(
        "runs",
        "Before and after, run by run",
        "Circles: base; diamonds: selected team; thick lines: intervals of the difference, drawn from the base.",
        paint,
        numbers(rows, metrics),
        (height, height + 0.1),
    )
