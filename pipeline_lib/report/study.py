"""The page of a study: what was asked, what came out cell by cell, and what was fixed before."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from pipeline_lib import storage
from pipeline_lib.environment_api.metrics import Metric, Metrics, describe
from pipeline_lib.evaluation.results import Estimate
from pipeline_lib.evaluation.study import Contrast
from pipeline_lib.report.page import render
from pipeline_lib.report.results import between, p_cell
from pipeline_lib.report.style import CYCLE, GREY, MARKERS, Figure, Table, figure, metric_axis, row_axes
from pipeline_lib.report.text import typeset

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Rows = Sequence[Mapping[str, float]]

#: What learning is drawn against: label, and what one update adds to it.
COSTS = {
    "updates": ("updates", lambda row: 1.0),
    "tokens": ("sampled tokens", lambda row: row["actions/tokens"]),
    "executions": ("executed joint actions", lambda row: row["executions/count"]),
    "seconds": ("seconds of training", lambda row: row["time/step_s"]),
}
#: What a reader must know about one of them.
_CAUTION = {"seconds": " Seconds include what else the machine did; compare cells that ran on an idle machine."}


@dataclass(frozen=True, slots=True)
class StudyCell:
    """One cell, as it came out."""

    name: str  #: its levels
    base: float  #: mean of the base on the test problems
    mean: Estimate  #: mean of the selected teams there, with its interval
    by_seed: Sequence[float]  #: mean of each training run
    train: Mapping[int, Rows]  #: metrics of each update, by training seed
    run: str  #: name of its experiment
    further: Mapping[str, float]  #: means of the other metrics of the selected teams on the test problems
    alarms: Sequence[str]  #: sentences about the monitors that fired in its training runs


@dataclass(frozen=True, slots=True)
class StudyData:
    """A finished study."""

    name: str  #: of the study
    question: str  #: what it asks
    reference: str  #: the cell that all others are compared with
    cells: Sequence[StudyCell]  #: in the order of the file
    contrasts: Sequence[Contrast]  #: the family of comparisons
    info: Metric  #: the primary metric
    metric: str  #: its name
    metrics: Metrics  #: name and format of the other metrics
    settings: Mapping[str, Mapping[str, Any]]  #: by cell, the settings that make it
    plan: str  #: a sentence that says when the plan was fixed
    design: Mapping[str, str]  #: further facts: name and value


def build_study(data: StudyData, output: Path) -> None:
    """Write the page of a study to ``output``; parents are made."""
    page = render(
        "study.html.j2",
        title=data.question,
        data=data,
        final=final(data),
        curves=[found for cost in COSTS if (found := curves(data, cost))],
        family=family(data),
        further=further(data),
        settings=settings(data),
    )
    storage.write_text(output, page)


def final(data: StudyData) -> Figure:
    """Draw the selected teams of every cell on the test problems: each training run, their mean, its interval."""

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        for y, cell in enumerate(data.cells):
            colour = CYCLE[y % len(CYCLE)]
            if cell.mean.low is not None and cell.mean.high is not None:
                axes.plot([cell.mean.low, cell.mean.high], [y, y], color=colour, linewidth=5, alpha=0.3)
            axes.plot(cell.by_seed, [y] * len(cell.by_seed), "|", color=colour, markersize=11)
            axes.plot(cell.mean.value or 0.0, y, "D", color=colour, markersize=6)
            axes.plot(cell.base, y, "o", color=GREY, markersize=5)
        row_axes(axes, [cell.name for cell in data.cells], 14 if narrow else 30, data.info)

    height = 0.9 + 0.4 * len(data.cells)
    return figure(
        "final",
        "On the test problems",
        "Diamonds: mean of the selected teams; strokes: each training run; bands: interval for new problems of these "
        "teams; circles: the base.",
        paint,
        cells(data),
        (height, height + 0.1),
    )


def cells(data: StudyData) -> Table:
    """Return the numbers of all cells."""
    text = data.info.text
    rows = []
    for cell in data.cells:
        low, high = cell.mean.low, cell.mean.high
        interval = "none" if low is None or high is None else f"{text(low)} to {text(high)}"
        means = text(cell.base), text(cell.mean.value or 0.0), interval
        rows.append([cell.name, *means, ", ".join(map(text, cell.by_seed)), cell.run])
    return Table(("cell", "base", "selected", "interval, new problems", "each training run", "experiment"), rows)


def curves(data: StudyData, cost: str) -> Figure | None:
    """Draw learning against what it cost: mean over training runs, their range as a band; None if it is unknown."""
    label, added = COSTS[cost]
    learned = f"metrics/{data.metric}" if data.metric != "reward" else "reward/mean"
    lines = {cell.name: _line(cell.train, learned, added) for cell in data.cells}
    if not all(lines.values()):
        return None

    # As in `style`: when something is drawn.
    from matplotlib.ticker import EngFormatter, MaxNLocator

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes: Axes = canvas.subplots()
        for number, (name, found) in enumerate(lines.items()):
            assert found is not None
            x, values = found
            colour = CYCLE[number % len(CYCLE)]
            axes.plot(
                x, values.mean(axis=0), color=colour, label=name, marker=MARKERS[number % len(MARKERS)], markevery=0.2
            )
            axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.12, linewidth=0)
        axes.set_xlabel(label)
        metric_axis(axes.yaxis, data.info)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5 if narrow else 9, integer=True))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k: the labels of long runs fit on a phone
        axes.legend(loc="best")

    table = Table(
        ("cell", label, f"{data.info.label}, last updates"),
        [[name, float(found[0][-1]), float(found[1][:, -1].mean())] for name, found in lines.items() if found],
    )
    return figure(
        f"curve-{cost}",
        f"Learning, by {label}",
        "On training problems, sampled as in training, mean over five updates. Lines: mean over training runs; bands: "
        "their range." + _CAUTION.get(cost, ""),
        paint,
        table,
        (3.2, 3.1),
    )


def _line(train: Mapping[int, Rows], name: str, added: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Return what was spent after each update (mean over runs), and (runs, updates) what was learned, over five."""
    try:
        spent = [list(itertools.accumulate(added(row) for row in rows)) for rows in train.values()]
        values = [[row[name] for row in rows] for rows in train.values()]
    except KeyError:
        return None
    length = min(map(len, values), default=0)
    if not length:
        return None
    window = min(5, length)
    smooth = [np.convolve(row[:length], np.ones(window) / window, "valid") for row in values]
    return np.mean([row[window - 1 : length] for row in spent], axis=0), np.asarray(smooth)


def family(data: StudyData) -> Table:
    """Return the numbers of the family of comparisons."""
    rows = []
    for c in data.contrasts:
        interval = typeset(between({"low": c.test.low, "high": c.test.high}, data.info.difference))
        difference = typeset(data.info.difference(c.test.estimate or 0.0))
        rows.append([c.name, c.verdict, difference, interval, p_cell(c.p_adjusted), p_cell(c.equivalence_p_adjusted)])
    columns = ("comparison", "verdict", "difference", "interval, new training runs")
    return Table((*columns, "p (Holm)", "p of the margin or more (Holm)"), rows)


def further(data: StudyData) -> Table:
    """Return the other metrics of the selected teams, one row each; the reward of a cell is in its own units."""
    names = list(dict.fromkeys(name for cell in data.cells for name in cell.further))
    rows = []
    for name in names:
        info = describe(name, data.metrics)
        values = [info.text(cell.further[name]) if name in cell.further else "–" for cell in data.cells]
        rows.append([info.label, *values])
    return Table(("metric", *(cell.name for cell in data.cells)), rows)


def settings(data: StudyData) -> Table:
    """Return the settings that make the cells, one row each."""
    keys = list(dict.fromkeys(key for found in data.settings.values() for key in found))
    rows = [[key, *(_setting(data.settings[cell.name], key) for cell in data.cells)] for key in keys]
    return Table(("setting", *(cell.name for cell in data.cells)), rows)


def _setting(settings: Mapping[str, Any], name: str) -> str:
    """Return a value as it is written in a study's file."""
    if name not in settings:
        return "–"
    text = yaml.safe_dump(settings[name], default_flow_style=True, width=10_000, sort_keys=False)
    return text.removesuffix("...\n").strip()
