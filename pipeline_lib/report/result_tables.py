"""The tables of the page that belong to no figure: training seeds, comparisons, teams, looks, scripted teams."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline_lib.environment_api.metrics import Metric, describe
from pipeline_lib.evaluation.sentences import interval, p_text
from pipeline_lib.evaluation.verdict import BASE, FIRST_TURN, LAST, SELECTED
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.style import Link, Table
from pipeline_lib.report.text import typeset
from pipeline_lib.report.viewer import link


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
