"""Figures of training: learning curves, reward terms, lengths, where the time went."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline_lib.report import series
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.style import BLUE, CYCLE, ORANGE, Figure, Table, end_labels, figure, percent, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

#: Metric of an update under a curriculum over turns: turns per episode.
TURNS = "curriculum/turns"

Train = Mapping[int, Sequence[Mapping[str, float]]]


def learning(data: ReportData) -> Figure | None:
    """Draw reward and primary metric over training, a thin line per seed and the range over seeds as a band."""
    panels = [("reward/mean", "reward", False)]
    if data.metric != "reward":
        info = data.info
        panels.insert(0, (f"metrics/{data.metric}", info.label, info.share))
    panels = [panel for panel in panels if series.step_series(data.train, panel[0])[0]]
    if not panels:
        return None
    teams = {"team": (data.train, BLUE), **{n: (t, ORANGE) for n, t in data.baseline_train.items()}}

    def paint(canvas: Canvas, narrow: bool) -> None:
        for axes, (name, label, share) in zip(_panels(canvas, narrow, len(panels)), panels, strict=True):
            for team, (train, colour) in teams.items():
                _band(axes, train, name, colour, team)
            _steps(axes, label)
            if share:
                percent(axes.yaxis)
                axes.set_ylim(-0.02, 1.02)
        if len(teams) > 1:
            canvas.axes[0].legend(loc="best")

    count = len(data.train)
    band = [f"Thick line: mean of {count} training seeds; thin lines: each; shaded: their range."] if count > 1 else []
    return figure(
        "learning",
        "Learning",
        " ".join(["On training problems, sampled as in training.", *band, *_turns(data), *_unearned(data)]),
        paint,
        series.learning(data),
        (3.0, 2.6 * len(panels)),
    )


def _turns(data: ReportData) -> list[str]:
    """Say in which update a curriculum added a turn, where there was one."""
    seeds = []
    for seed, rows in sorted(data.train.items()):
        found = [(int(row["step"]), int(row[TURNS])) for row in rows if TURNS in row]
        added = [f"turn {turns} from step {step}" for step, turns in _changes(found)]
        if found:
            seeds.append(f"{', '.join(added) or 'none added'} (seed {seed})")
    return [f"The curriculum over turns began with one turn: {'; '.join(seeds)}."] if seeds else []


def _changes(found: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the steps whose value is another than that of the step before."""
    return [now for before, now in itertools.pairwise(found) if now[1] != before[1]]


def _unearned(data: ReportData) -> list[str]:
    """Say that rewards of the team and of a trained single agent are not on one scale, where they are not."""
    if not data.baseline_train or not data.team_terms:
        return []
    terms = " and ".join(data.team_terms)
    return [
        f"A single agent cannot earn the term {terms}, so the reward of {' and '.join(data.baseline_train)} is not "
        "comparable with the team's."
    ]


def by_policy(data: ReportData) -> Figure | None:
    """Draw each policy's length, entropy and gradient norm over training; None if all agents share one policy."""
    names = series.policies(data)
    if len(names) < 2:
        return None
    return _by_agent(
        "policies",
        "Each agent by itself",
        "The reward belongs to the team as a whole. This is what the log knows of each agent's policy, mean over "
        "training seeds. A policy whose entropy falls to 0 has stopped exploring.",
        list(series.OF_POLICIES),
        names,
        series.by_policy(data),
        6.6,
        from_zero=True,
    )


def fidelity(data: ReportData) -> Figure | None:
    """Draw how well the advantages agree with the true ones; None if that was not measured."""
    table = series.fidelity(data)
    if not table.rows:
        return None
    return _by_agent(
        "fidelity",
        "Credit and the truth",
        "How well the advantages of sampled actions agree with the true ones, which are estimated from fresh episodes "
        "with the same weights. Same sign: share of the actions with a clear effect. The table also has the mean "
        "squared error and how much of it is the error of the truth itself. Mean over training seeds.",
        list(series.FIDELITY),
        series.measured_agents(data),
        table,
        4.8,
        marker="o",
    )


def _by_agent(
    name: str,
    title: str,
    caption: str,
    panels: Sequence[str],
    agents: Sequence[str],
    table: Table,
    narrow_height: float,
    marker: str = "",
    from_zero: bool = False,
) -> Figure:
    """Draw a panel per quantity and a line per agent; the table's columns are in that order, panel by panel."""

    def paint(canvas: Canvas, narrow: bool) -> None:
        for panel, axes in enumerate(_panels(canvas, narrow, len(panels))):
            for number, agent in enumerate(agents):
                place = 1 + panel * len(agents) + number
                points = [(row[0], row[place]) for row in table.rows if row[place] is not None]
                style, colour = ("-", "--", "-.", ":")[number % 4], CYCLE[number % len(CYCLE)]
                axes.plot(*zip(*points, strict=True), color=colour, linestyle=style, marker=marker, label=agent)
            _steps(axes, panels[panel])
            if from_zero:
                axes.set_ylim(bottom=0)
        handles = canvas.axes[0].get_legend_handles_labels()
        canvas.legend(*handles, loc="outside lower center", ncols=len(agents))

    return figure(name, title, caption, paint, table, (2.9, narrow_height))


def terms(data: ReportData) -> Figure | None:
    """Draw each reward term over training."""
    table = series.terms(data)
    if len(table.columns) < 2:
        return None

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        steps = [row[0] for row in table.rows]
        for i in range(len(table.columns) - 1):
            values = [row[i + 1] for row in table.rows]
            axes.plot(steps, values, color=CYCLE[i % len(CYCLE)], linestyle=("-", "--", "-.", ":")[i % 4])
        axes.set_xlabel("training step")
        axes.set_ylabel("reward (weighted)")
        axes.set_xlim(0, steps[-1])
        ends = [(table.rows[-1][i + 1], name, CYCLE[i % len(CYCLE)]) for i, name in enumerate(table.columns[1:])]
        end_labels(axes, [end for end in ends if end[0] is not None], steps[-1])

    return figure(
        "terms",
        "Reward, term by term",
        "The weighted terms add up to the reward. Mean over training seeds.",
        paint,
        table,
    )


def lengths(data: ReportData) -> Figure | None:
    """Draw the mean length of actions over training."""
    table = series.lengths(data)
    if not table.rows:
        return None

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        _band(axes, data.train, "actions/length_mean", BLUE, "team")
        _steps(axes)
        axes.set_ylabel("tokens per action")
        axes.set_ylim(bottom=0)

    return figure(
        "lengths",
        "Length of actions",
        "Tokens that one agent samples in one turn. A sudden rise or collapse is an early sign of a degenerate policy.",
        paint,
        table,
        (2.4, 2.4),
    )


def time_spent(data: ReportData) -> Figure | None:
    """Draw where the seconds of each training run went."""
    table = series.time_per_seed(data)
    if not any(row[-2] for row in table.rows):
        return None
    names = [column.removesuffix(" (s)") for column in table.columns[1:-2]]

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        left = [0.0] * len(table.rows)
        colours = (BLUE, "#E8B04A", "#4FA88F", "#C9A2BA", "#C4C8CE")
        for i, name in enumerate(names):
            widths = [row[i + 1] for row in table.rows]
            axes.barh(
                range(len(widths)), widths, left=left, color=colours[i], height=0.62, label=name, edgecolor="white"
            )
            left = [a + b for a, b in zip(left, widths, strict=True)]
        axes.set_yticks(range(len(table.rows)), [wrap(row[0], 16 if narrow else 60) for row in table.rows])
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("seconds")
        canvas.legend(loc="outside lower center", ncols=2 if narrow else 3)

    height = 1.1 + 0.32 * len(table.rows)
    return figure(
        "time",
        "Where training time went",
        "Wall-clock seconds of each training run.",
        paint,
        table,
        (height + 0.1, height + 0.5),
    )


def _panels(canvas: Canvas, narrow: bool, count: int) -> Sequence[Axes]:
    """Return the axes of panels: beside each other, or below each other on the narrow version."""
    return list(canvas.subplots(*((count, 1) if narrow else (1, count)), squeeze=False).ravel())


def _steps(axes: Axes, title: str = "") -> None:
    axes.set_title(title)
    axes.set_xlabel("training step")
    axes.set_xlim(left=0)


def _band(axes: Axes, train: Train, name: str, colour: str, label: str) -> None:
    """Draw each seed thinly, their mean thickly, and shade the range between the least and the greatest."""
    steps, values = series.step_series(train, name)
    if not steps:
        return
    complete = [(step, [v for v in row if v is not None]) for step, row in zip(steps, values, strict=True)]
    if len(train) > 1:
        axes.fill_between(
            steps, [min(row) for _, row in complete], [max(row) for _, row in complete], color=colour, alpha=0.13, lw=0
        )
        for i in range(len(train)):
            axes.plot(steps, [row[i] for row in values], color=colour, linewidth=0.6, alpha=0.55)  # type: ignore[arg-type]
    axes.plot(steps, [sum(row) / len(row) for _, row in complete], color=colour, label=label)
