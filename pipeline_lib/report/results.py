"""Tables and figures of results: runs, comparisons, teams, looks, the ladder; the sweep, effects and behaviour."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.metrics import Metric, describe
from pipeline_lib.evaluation.sentences import interval, p_text
from pipeline_lib.evaluation.verdict import BASE, FIRST_TURN, LAST, SELECTED
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
    Link,
    Table,
    end_labels,
    figure,
    metric_axis,
    percent,
    wrap,
)
from pipeline_lib.report.text import typeset
from pipeline_lib.report.viewer import link

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def per_seed(data: ReportData) -> Table:
    """Return one row per training seed: the choice, and its test alone."""
    info = data.info
    tested = {str(found["seed"]): found for found in data.verdict["comparisons"]["base"]["per_seed"]}
    rows = []
    for seed, chosen in data.selection["seeds"].items():
        result: list[Any] = [None] * 4
        if alone := tested.get(str(seed)):
            before, after = (
                linked(info.text(alone["mean_b"]), BASE, data),
                linked(info.text(alone["mean_a"]), SELECTED, data),
            )
            result = [before, after, *difference_cells(alone["difference"], info)]
        repeats = chosen["repeats"].get(str(chosen["step"]), 0.0)
        luck = None if chosen["optimism"] is None else typeset(info.difference(chosen["optimism"]))
        rows.append([int(seed), chosen["step"], info.text(chosen["mean"]), *result, f"{100 * repeats:.0f} %", luck])
    columns = ("seed", "step", "validation", "base", "selected", "difference", "interval", "repeats", "luck")
    return Table(columns, rows)


def comparisons(data: ReportData) -> Table:
    """Return one row per team that the selected one is compared with; numbers lead to the problems behind them."""
    info, rows = data.info, []
    for name, c in data.verdict["comparisons"].items():
        means = [
            linked(info.text(mean["value"]), team, data)
            for mean, team in zip(c["means"], (SELECTED, name), strict=True)
        ]
        p, g = c["p_adjusted"], c["effect"]["g"]
        evidence = None if p is None else p_cell(p), None if g is None else typeset(f"{g:.2f}")
        rows.append([team_name(name), c["verdict"], *means[::-1], *difference_cells(c["difference"], info), *evidence])
    columns = ("against", "verdict", "its mean", "selected", "difference", "interval", "p (Holm)", "Hedges' g")
    return Table(columns, rows)


def teams(data: ReportData) -> Table:
    """Return all metrics of all teams on the test split; each number leads to its problems."""
    found = data.verdict["teams"]
    heads = _heads(data)
    # With k = 1 the others say nothing new.
    at_k = [name for name in _at_k(data, heads) if name == "pass@1" or _by_k(name, heads)[1] > 1]
    rows: list[list[Any]] = []
    names = ordinary(data)
    # The best of k stands below results and reward, above the rest.
    first = 1 + sum(name in ("reward", *_results(data)) for name in names[1:])
    for name in (*names[:first], *at_k, *names[first:]):
        info = describe(name, data.metrics) if name not in at_k else Metric(name, share=_of_a_share(name, data))
        numbers = [(team, info.text(found[team]["metrics"][name])) for team in found]
        rows.append([info.label, *(linked(number, team, data) for team, number in numbers)])
    info = data.info
    middles = (linked(info.text(found[team]["iqm"]), team, data) for team in found)
    rows.insert(1, [f"{info.label}, interquartile mean", *middles])
    rows.append(["episodes", *(linked(found[team]["episodes"], team, data) for team in found)])
    rows.append(["episodes lost", *(team["lost"] for team in found.values())])
    return Table(("metric", *(team_name(name) for name in found)), rows)


def ordinary(data: ReportData) -> list[str]:
    """Return the metrics that every team has in every episode: the primary one, other results, reward, the rest."""
    common = _common(data)
    names = [name for name in dict.fromkeys((data.metric, *_results(data), "reward")) if name in common]
    return [*names, *sorted(common - set(names) - set(_at_k(data, _heads(data))))]


def _common(data: ReportData) -> set[str]:
    return set.intersection(*(set(team["metrics"]) for team in data.verdict["teams"].values()))


def _results(data: ReportData) -> list[str]:
    return [name for name, metric in data.metrics.items() if metric.over_checkpoints and not metric.behaviour]


def _heads(data: ReportData) -> list[str]:
    return ["pass@", "pass^", *(f"{metric.at_k}@" for metric in data.metrics.values() if metric.at_k)]


def _at_k(data: ReportData, heads: Sequence[str]) -> list[str]:
    names = (name for name in _common(data) if name.startswith(tuple(heads)))
    return sorted(names, key=lambda name: _by_k(name, heads))


def _by_k(name: str, heads: Sequence[str]) -> tuple[int, int]:
    place = next(place for place, head in enumerate(heads) if name.startswith(head))
    return place, int(re.sub(r"\D", "", name.removeprefix(heads[place])))


def _of_a_share(name: str, data: ReportData) -> bool:
    """Return whether an expected best of k is one of shares, as pass@k is."""
    best = [metric for metric in data.metrics.values() if metric.at_k and name.startswith(f"{metric.at_k}@")]
    return all(metric.share for metric in best)


def looks(told: Mapping[str, Any] | None) -> Table:
    """Return all looks at the test split, one row each, and what was changed from one to the next."""
    rows = [
        [
            str(row["look"]),
            row["time"][:16].replace("T", " "),
            row["run"],
            row["plan"][:12],
            row["shared"],
            row["words"],
        ]
        for row in (told or {}).get("history", ())
    ]
    return Table(("look", "time (UTC)", "run", "plan", "problems of this split", "changed since the one before"), rows)


def ladder(audit: Mapping[str, Any] | None) -> Table:
    """Return what every scripted team of the audit earns."""
    rows = [[rung["name"], rung.get("role", ""), rung["reward"]] for rung in (audit or {}).get("ladder", ())]
    return Table(("scripted team", "role", "reward"), rows)


def between(limits: Mapping[str, Any], show: Callable[[float], str]) -> str:
    """Return an interval (``low`` and ``high``) in words; ``show`` gives a number its unit."""
    return interval(limits["low"], limits["high"], show, "no interval")


def difference_cells(found: Mapping[str, Any], info: Metric) -> tuple[str | None, str]:
    """Return a difference (an `Estimate` or a `TestResult`, as JSON) and its interval as two cells."""
    value = found.get("estimate", found.get("value"))
    interval = between(found, info.difference).removesuffix(" points")
    return None if value is None else typeset(info.difference(value)), typeset(interval)


def p_cell(p: float | None) -> str:
    """Return a p value for a column that is headed p, with the digits that sentences give it."""
    return typeset(p_text(p).removeprefix("p ")).removeprefix("=").strip()


def team_name(team: str) -> str:
    """Return what the page calls a team."""
    return {BASE: "the base", LAST: "the last checkpoint", FIRST_TURN: "its own first turn"}.get(team, team)


def linked(value: object, team: str, data: ReportData) -> object:
    """Return a number of a team with a link to its episodes, if they are there to be read."""
    return Link(value, link(team)) if any(tested.name == team for tested in data.tested) else value


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
    better = sum(row[3] > 0 for row in table.rows)
    worse = sum(row[3] < 0 for row in table.rows)

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
