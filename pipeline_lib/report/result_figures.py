"""Figures of results: the sweep over checkpoints, the forest of effects, problems before and after, behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.metrics import Metric, describe
from pipeline_lib.evaluation.sentences import interval
from pipeline_lib.report import series
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.style import (
    BLUE,
    CYCLE,
    FAINT,
    GREEN,
    GREY,
    INK,
    MARKERS,
    RED,
    Figure,
    Table,
    end_labels,
    figure,
    metric_axis,
    percent,
    wrap,
)
from pipeline_lib.report.text import typeset

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SEED_COLOURS = ("#3D8FC4", "#D98200", "#00805E", "#A8558A", "#6B6B6B", "#C44E00")
VERDICT_COLOURS = {"IMPROVED": BLUE, "WORSE": RED, "EQUIVALENT": GREEN, "INCONCLUSIVE": GREY, "UNTESTED": GREY}


def sweep(data: ReportData) -> Figure:
    """Draw validation means of all checkpoints with band, selected and last ones marked."""
    info, selection = data.info, data.selection
    seeds = list(selection["seeds"].items())

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        curve = selection["curve"]
        steps = [point["step"] for point in curve]
        if len(seeds) > 1:
            axes.plot(steps, [p["mean"] for p in curve], color=INK, linewidth=2.2, label="mean over seeds", zorder=4)
        banded = [(p["step"], *series.limits(p, info)[-2:]) for p in curve if p["band_low"] is not None]
        if banded:
            xs, lows, highs = zip(*banded, strict=True)
            axes.fill_between(xs, lows, highs, color=INK, alpha=0.10, lw=0, label="band for all steps at once")
        for i, (seed, chosen) in enumerate(seeds):
            colour, marker = SEED_COLOURS[i % len(SEED_COLOURS)], MARKERS[i % len(MARKERS)]
            xs, ys = zip(*((point["step"], point["mean"]) for point in chosen["curve"]), strict=True)
            axes.plot(
                xs, ys, color=colour, marker=marker, markersize=4, linewidth=1.0, alpha=0.9, label=f"seed {seed}",
                zorder=3,
            )  # fmt: skip
            means = dict(zip(xs, ys, strict=True))
            axes.plot(
                chosen["step"], means[chosen["step"]], marker="o", markersize=12, fillstyle="none", color=colour,
                markeredgewidth=1.8, linestyle="none", zorder=5,
            )  # fmt: skip
        if base := selection.get("base"):
            axes.axhline(base["mean"], color=GREY, linestyle="--", linewidth=1.2, label="base")
        axes.plot([], [], marker="o", markersize=9, fillstyle="none", color=INK, linestyle="none", label="selected")
        last = max(chosen["last"] for _, chosen in seeds)
        axes.axvline(last, color=GREY, linestyle=":", linewidth=1.2, label="last checkpoint", zorder=1)
        axes.set_xlabel("training step of the checkpoint")
        metric_axis(axes.yaxis, info)
        canvas.legend(loc="outside lower center", ncols=2 if narrow else 4)

    chosen = ", ".join(f"step {c['step']} of seed {seed}" for seed, c in seeds)
    level = 100 * (1 - float(selection["design"]["alpha"]))
    return figure(
        "sweep",
        "Every checkpoint on the validation split",
        f"Rings mark what the rule “{selection['rule'].replace('_', ' ')}” selected: {chosen}. The band covers the "
        f"means over seeds at all steps at once with {level:.0f} % confidence.",
        paint,
        series.sweep(data),
        (3.7, 4.0),
    )


def checkpoint_metrics(data: ReportData) -> Figure | None:
    """Draw further metrics of the checkpoints, mean over training seeds."""
    table = series.checkpoint_metrics(data)
    if len(table.columns) < 2 or not table.rows:
        return None

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        steps = [row[0] for row in table.rows]
        ends = []
        for i, name in enumerate(table.columns[1:]):
            colour = CYCLE[i % len(CYCLE)]
            values = [row[i + 1] for row in table.rows]
            axes.plot(steps, values, color=colour, marker=MARKERS[i % len(MARKERS)], markersize=3.5, linewidth=1.4)
            ends.append((values[-1], wrap(describe(name, data.metrics).label, 12 if narrow else 30), colour))
        percent(axes.yaxis)
        axes.set_ylim(-0.03, 1.06)
        axes.set_xlabel("training step of the checkpoint")
        axes.set_ylabel("validation split")
        end_labels(axes, ends, steps[-1], 0.17 if narrow else 0.085)

    return figure(
        "checkpoints",
        "What else changes from checkpoint to checkpoint",
        "Means over validation problems and training seeds; step 0 is the base.",
        paint,
        table,
        (3.0, 3.2),
    )


def forest(data: ReportData) -> Figure:
    """Draw the difference to each other team with its interval, and the margin that would matter."""
    comparisons = {{"last": "last checkpoint"}.get(name, name): c for name, c in data.verdict["comparisons"].items()}
    return differences(
        comparisons,
        data.info,
        "The selected team against the others, on the test split",
        ("selected minus other", "the selected team"),
        series.effects(data.verdict["comparisons"]),
    )


def differences(
    comparisons: Mapping[str, Mapping[str, Any]], info: Metric, title: str, sides: tuple[str, str], table: Table
) -> Figure:
    """Draw the differences of comparisons (JSON, by the label of their row) with intervals and the margin that would
    matter.

    ``sides`` says what is subtracted from what, and who is better right of 0; ``table`` has the numbers behind it.
    """
    scale = 100.0 if info.share else 1.0
    found = list(comparisons.items())
    margin = float(found[0][1]["margin"]) * scale

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        axes.axvspan(-margin, margin, color=FAINT, zorder=0)
        axes.axvline(0, color=INK, linewidth=0.9)
        for y, (_, comparison) in enumerate(found):
            difference, colour = comparison["difference"], VERDICT_COLOURS[comparison["verdict"]]
            middle = (difference["estimate"] or 0.0) * scale
            if difference["low"] is not None:
                axes.plot([difference["low"] * scale, difference["high"] * scale], [y, y], color=colour, linewidth=2.4)
            axes.plot(middle, y, marker="s", markersize=8, color=colour, zorder=4)
            axes.annotate(
                comparison["verdict"], (middle, y), xytext=(0, 9), textcoords="offset points", ha="center",
                fontsize=7.5, color=colour, fontweight="bold", zorder=3,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
            )  # fmt: skip
            if not narrow:
                axes.text(1.02, y, _numbers(difference, info), transform=axes.get_yaxis_transform(), va="center")
        axes.set_yticks(range(len(found)), [wrap(name, 13 if narrow else 22) for name, _ in found])
        axes.set_ylim(len(found) - 0.4, -0.75)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        label = f"{info.label}: difference{' in points' if info.share else ''}"
        axes.set_xlabel(wrap(label, 42 if narrow else 80))
        left, right = axes.get_xlim()
        room = (0.12 if narrow else 0.08) * (right - left)
        axes.set_xlim(left - room, right + room)

    height = 0.95 + 0.5 * len(found)
    level = 100 * float(found[0][1]["difference"]["level"])
    return figure(
        "effects",
        title,
        f"Squares: mean difference, {sides[0]}; lines: {level:.0f} % intervals; right of 0 {sides[1]} is better. "
        "Grey: differences smaller than the margin that would matter.",
        paint,
        table,
        (height, height + 0.15),
    )


def problems(data: ReportData) -> Figure | None:
    """Draw every test problem before and after."""
    info, table = data.info, series.problems(data)
    if not table.rows:
        return None
    better = sum(row[3] > 1e-9 for row in table.rows)
    worse = sum(row[3] < -1e-9 for row in table.rows)

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        xs = list(range(1, len(table.rows) + 1))
        size = max(1.6, min(4.5, (220 if narrow else 520) / len(xs)))
        before, after = ([row[i] for row in table.rows] for i in (1, 2))
        colours = [RED if row[3] < 0 else "#9CC6E2" for row in table.rows]
        axes.vlines(xs, before, after, colors=colours, linewidths=size * 0.45, zorder=1)
        axes.plot(xs, before, "o", color=GREY, markersize=size, label="base", zorder=2)
        axes.plot(xs, after, "o", color=BLUE, markersize=size, label="selected", zorder=3)
        axes.set_xlabel("test problems, ordered by the base")
        metric_axis(axes.yaxis, info)
        axes.set_xlim(0, len(xs) + 1)
        if info.share:
            axes.set_ylim(-0.03, 1.03)
        canvas.legend(loc="outside upper right", ncols=2)

    return figure(
        "problems",
        "Problem by problem",
        f"Each test problem before and after, mean over training seeds and episodes: {better} better, {worse} worse "
        f"(red lines), {len(table.rows) - better - worse} unchanged.",
        paint,
        table,
        (3.0, 3.0),
    )


def behaviour(data: ReportData) -> Figure | None:
    """Draw behaviour metrics and cooperation schemes before and after."""
    rows = [[describe(r[0], data.metrics).label, r[1], r[2]] for r in series.behaviour(data).rows]
    rows += [[f"scheme: {str(row[0]).replace('_', ' ')}", row[1], row[2]] for row in series.schemes(data).rows]
    if not rows:
        return None

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        for y, (_, before, after) in enumerate(rows):
            axes.plot([before, after], [y, y], color="#B9C3CE", linewidth=2.2, zorder=1)
        ys = range(len(rows))
        axes.plot([r[1] for r in rows], ys, "o", color=GREY, markersize=6, label="base", zorder=2)
        axes.plot([r[2] for r in rows], ys, "D", color=BLUE, markersize=6, label="selected", zorder=3)
        axes.set_yticks(list(ys), [wrap(r[0], 18 if narrow else 40) for r in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(-0.03, 1.03)
        percent(axes.xaxis)
        axes.grid(visible=True, axis="x")
        axes.set_xlabel("share of test episodes")
        canvas.legend(loc="outside upper right", ncols=2)

    return figure(
        "behaviour",
        "How the team works together",
        "Means over all test episodes, before and after.",
        paint,
        Table(("behaviour", "base", "selected"), rows),
        (0.9 + 0.27 * len(rows), 0.9 + 0.37 * len(rows)),
    )


def _numbers(difference: Mapping[str, Any], info: Metric) -> str:
    middle = info.difference(difference["estimate"] or 0.0).removesuffix(" points")
    limits = interval(difference["low"], difference["high"], info.difference).removesuffix(" points")
    return typeset(middle if difference["low"] is None else f"{middle} ({limits})")
