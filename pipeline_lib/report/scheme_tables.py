"""Cooperation schemes: rates by checkpoint, team and family, whether a scheme goes with success, and what changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline_lib.evaluation.results import Estimate
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.result_tables import between
from pipeline_lib.report.style import CYCLE, MARKERS, Figure, Table, figure, percent
from pipeline_lib.report.text import typeset

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

#: Rows of the table of changes.
MOST_MOVES = 12


def over_checkpoints(data: ReportData) -> Figure | None:
    """Draw the share of validation episodes with each scheme over the checkpoints; bands are intervals."""
    use = data.cooperation
    if use is None or len(use.checkpoints) < 2:
        return None
    names, steps = use.names, sorted(use.checkpoints)

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        for number, name in enumerate(names):
            colour, marker = CYCLE[number % len(CYCLE)], MARKERS[number % len(MARKERS)]
            found = [use.checkpoints[step][name] for step in steps]
            means = [math.nan if e.value is None else e.value for e in found]
            axes.plot(steps, means, color=colour, marker=marker, markersize=4, label=_spaced(name), zorder=3)
            axes.fill_between(
                steps,
                [math.nan if e.low is None else e.low for e in found],
                [math.nan if e.high is None else e.high for e in found],
                color=colour,
                alpha=0.10,
                lw=0,
            )
            for by_step in use.runs.values():
                own = [row.get(name, math.nan) for row in by_step.values()]
                axes.plot(list(by_step), own, color=colour, linewidth=0.7, alpha=0.5)
        percent(axes.yaxis)
        axes.set_ylim(-0.02, 1.02)
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("training step of the checkpoint")
        axes.set_ylabel("share of episodes")
        canvas.legend(loc="outside upper left", ncols=2 if narrow else 4)

    return figure(
        "schemes",
        "Cooperation schemes over training",
        "Share of validation episodes with each scheme; an episode may show several. Thick line: all training runs "
        "together, with its interval over problems; thin lines: each run.",
        paint,
        by_checkpoint(data),
    )


def by_checkpoint(data: ReportData) -> Table:
    """Return share and interval of every scheme at every checkpoint, then the share of each training run."""
    use = data.cooperation
    if use is None:
        return Table(("step",), [])
    columns = [f"{name}{part}" for name in use.names for part in ("", " low", " high")]
    columns += [f"{name} seed {seed}" for seed in use.runs for name in use.names]
    rows: list[list[Any]] = []
    for step, found in sorted(use.checkpoints.items()):
        own: list[Any] = [limit for name in use.names for limit in _limits(found.get(name))]
        own += [by_step.get(step, {}).get(name) for by_step in use.runs.values() for name in use.names]
        rows.append([step, *own])
    return Table(("step", *columns), rows)


def by_team(data: ReportData) -> Table:
    """Return the share of test episodes with each scheme, by team, with intervals."""
    return _rates(data, "team", data.cooperation.teams if data.cooperation else {})


def by_family(data: ReportData) -> Table:
    """Return the same for the selected teams, by family of problems."""
    return _rates(data, "family", data.cooperation.families if data.cooperation else {})


def success(data: ReportData) -> Table:
    """Return by how much episodes with a scheme do better than others of the same team on the same problem."""
    rows = []
    for found in data.cooperation.success if data.cooperation else ():
        test = found.test
        limits = {"low": test.low, "high": test.high}
        rows.append(
            [
                _spaced(found.scheme),
                None if test.estimate is None else typeset(data.info.difference(test.estimate)),
                typeset(between(limits, data.info.difference).removesuffix(" points")),
                found.p_adjusted,
                found.problems,
            ]
        )
    return Table(("scheme", "with it", "interval", "p (Holm)", "problems"), rows)


def moves(data: ReportData) -> Table:
    """Return what the base and the selected team show on the same problem and draw, the most frequent first."""
    found = list(data.cooperation.moves.items())[:MOST_MOVES] if data.cooperation else []
    rows = [[_spaced(before), _spaced(after), f"{100 * share:.1f} %"] for (before, after), share in found]
    return Table(("before (base)", "after (selected)", "episodes"), rows)


def _rates(data: ReportData, what: str, found: Mapping[str, Mapping[str, Estimate]]) -> Table:
    names = data.cooperation.names if data.cooperation else ()
    rows = [[name, *(_text(row.get(scheme)) for scheme in names)] for name, row in found.items()]
    return Table((what, *map(_spaced, names)), rows)


def _text(estimate: Estimate | None) -> str | None:
    if estimate is None or estimate.value is None:
        return None
    share = f"{100 * estimate.value:.0f} %"
    if estimate.low is None or estimate.high is None:
        return share
    return f"{share} ({100 * estimate.low:.0f} to {100 * estimate.high:.0f})"


def _limits(estimate: Estimate | None) -> tuple[float | None, float | None, float | None]:
    return (estimate.value, estimate.low, estimate.high) if estimate else (None, None, None)


def _spaced(name: str) -> str:
    return name.replace("_", " ")
