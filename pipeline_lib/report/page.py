"""One experiment as one self-contained HTML page: the verdict first, then everything it rests on.

The page loads nothing: style and figures are inside, there is no script, and its own security policy forbids requests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipeline_lib import storage
from pipeline_lib.report import cost_tables, result_figures, training_figures
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.style import Figure, Table
from pipeline_lib.report.text import cell, sentence_only, typeset
from pipeline_lib.report.to_read import RULE, STYLE, to_read
from pipeline_lib.seam.metrics import Metric, describe

TEMPLATES = Path(__file__).parent / "templates"


def build_report(data: ReportData, output: Path, own: Sequence[Figure] = ()) -> None:
    """Write the page of one experiment to ``output``; parents are made.

    Args:
        data: what the stages wrote.
        output: file of the page.
        own: figures that only this environment has.
    """
    verdict, info = data.verdict, data.info
    primary = verdict["comparisons"]["base"]
    difference = primary["difference"]
    after, before = primary["means"]
    context = {
        "name": data.name,
        "verdict": verdict,
        "sentence": typeset(sentence_only(primary["sentence"])),
        "before": info.text(before["value"]),
        "before_range": _between(before, info.text),
        "after": info.text(after["value"]),
        "after_range": _between(after, info.text),
        "difference": typeset(info.difference(verdict["difference"])),
        "difference_range": typeset(_between(difference, info.difference)),
        "findings": _findings(data),
        "per_seed": _per_seed(data),
        "learning": training_figures.learning(data),
        "terms": training_figures.terms(data),
        "lengths": training_figures.lengths(data),
        "time": training_figures.time_spent(data),
        "sweep": result_figures.sweep(data),
        "checkpoints": result_figures.checkpoint_metrics(data),
        "forest": result_figures.forest(data),
        "problems": result_figures.problems(data),
        "behaviour": result_figures.behaviour(data),
        "own": own,
        "about": typeset(data.about),
        "to_read": to_read(data.first_episodes, data.metric, info),
        "rule": RULE,
        "faults": [
            f"Step {point['step']} of seed {seed}: {'; '.join(point['faults'])}"
            for seed, chosen in data.selection["seeds"].items()
            for point in chosen["curve"]
            if point["faults"]
        ],
        "comparisons": [
            {"name": _name(name), "verdict": found["verdict"], "sentence": typeset(sentence_only(found["sentence"]))}
            for name, found in verdict["comparisons"].items()
            if name != "base"
        ],
        "notes": [typeset(note) for note in data.notes],
        "teams": _teams(data),
        "costs": cost_tables.costs(data),
        "episode_costs": cost_tables.one_episode(data),
        "audit": data.audit,
        "ladder": _ladder(data.audit),
        "plan": _plan(data.plan),
        "looks": _looks(verdict.get("looks")),
        "identity": list(data.identity.items()),
        "settings": yaml.safe_dump(dict(data.settings), sort_keys=False, width=100) if data.settings else "",
    }
    storage.write_text(output, render("page.html.j2", context))


def render(template: str, context: Mapping[str, Any]) -> str:
    """Return a page from a template of this package, style included; text is escaped, an unknown name is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["cell"] = cell
    css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return environment.get_template(template).render(css=f"{css}\n{STYLE}", **context)


def _findings(data: ReportData) -> list[dict[str, Any]]:
    """Return what a reader must know beside the verdict, one line each."""
    verdict, info = data.verdict, data.info
    primary = verdict["comparisons"]["base"]
    level = f"{100 * primary['difference']['level']:.0f} %"
    items: list[dict[str, Any]] = [
        {"mark": "→", "text": verdict["other_runs"]},
        {"mark": "→", "text": verdict["price_of_the_default"]},
    ]
    if shrinkage := verdict.get("shrinkage"):
        lost = shrinkage["validation"] - shrinkage["test"]
        items.append(
            {
                "mark": "→",
                "text": f"From validation to test the selected checkpoints went from "
                f"{info.text(shrinkage['validation'])} to {info.text(shrinkage['test'])} ({info.difference(-lost)}).",
            }
        )
    items.append(
        {
            "mark": "→",
            "text": f"It rests on {primary['problems']} problems in {primary['families']} families, "
            f"{primary['episodes'][0]:,} episodes of the selected team and {primary['episodes'][1]:,} of the base, "
            f"{len(data.selection['seeds'])} training seeds; {level} intervals.",
        }
    )
    items += [*_plan_kept(verdict["plan"]), *_looked(verdict.get("looks"))]
    for note in (*primary["notes"], *data.selection["notes"]):
        items.append({"mark": "!", "text": f"{note[:1].upper()}{note[1:]}."})
    found = [{"bad": False, **item, "text": typeset(str(item["text"]))} for item in items]
    return sorted(found, key=lambda item: not item["bad"])


def _plan_kept(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    if plan["followed"]:
        return [{"mark": "✓", "text": f"The plan fixed before the sweep ({plan['plan'][:12]}) was followed."}]
    texts = [f"{text[:1].upper()}{text[1:]}." for text in plan["changed"]]
    if plan["deviations"]:
        texts.insert(0, f"The plan was not followed: {'; '.join(plan['deviations'])}.")
    return [{"mark": "!", "bad": True, "text": text} for text in texts]


def _looked(looks: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Say how often the test split was looked at, as far as anybody counted."""
    if looks is None:
        return []
    if looks["not_counted"]:
        return [{"mark": "!", "bad": True, "text": f"{looks['not_counted']}."}]
    if looks["count"] == 1:
        return [{"mark": "✓", "text": "This is the only look at the test split that this repository knows of."}]
    return [{"mark": "!", "bad": True, "text": looks["sentence"]}]


def _looks(looks: Mapping[str, Any] | None) -> Table:
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
        for row in (looks or {}).get("history", ())
    ]
    return Table(("look", "time (UTC)", "run", "plan", "problems of this split", "changed since the one before"), rows)


def _per_seed(data: ReportData) -> Table:
    """Return one row per training seed: the choice, and its test alone."""
    info = data.info
    tested = {str(found["seed"]): found for found in data.verdict["comparisons"]["base"]["per_seed"]}
    rows = []
    for seed, chosen in data.selection["seeds"].items():
        found = tested.get(str(seed))
        result: list[str | None] = [None] * 4
        if found:
            difference = found["difference"]
            result = [
                info.text(found["mean_b"]),
                info.text(found["mean_a"]),
                typeset(info.difference(difference["estimate"])),
                typeset(_between(difference, info.difference).removesuffix(" points")),
            ]
        repeats = chosen["repeats"].get(str(chosen["step"]), 0.0)
        luck = chosen["optimism"]
        rows.append(
            [
                int(seed),
                chosen["step"],
                info.text(chosen["mean"]),
                *result,
                f"{100 * repeats:.0f} %",
                None if luck is None else typeset(info.difference(luck)),
            ]
        )
    columns = ("seed", "step", "validation", "base", "selected", "difference", "interval", "repeats", "luck")
    return Table(columns, rows)


def _teams(data: ReportData) -> Table:
    """Return all metrics of all teams on the test split."""
    teams = data.verdict["teams"]
    common = set.intersection(*(set(team["metrics"]) for team in teams.values()))
    results = [name for name, metric in data.metrics.items() if metric.over_checkpoints and not metric.behaviour]
    first = [name for name in dict.fromkeys((data.metric, *results, "reward")) if name in common]
    heads = ["pass@", "pass^", *(f"{metric.at_k}@" for metric in data.metrics.values() if metric.at_k)]
    at_k = sorted((n for n in common if n.startswith(tuple(heads))), key=lambda name: _by_k(name, heads))
    rest = sorted(common - set(first) - set(at_k))
    # With k = 1 the others say nothing new.
    at_k = [name for name in at_k if name == "pass@1" or _by_k(name, heads)[1] > 1]
    rows: list[list[Any]] = []
    for name in (*first, *at_k, *rest):
        info = describe(name, data.metrics) if name not in at_k else Metric(name, share=_of_a_share(name, data))
        rows.append([info.label, *(info.text(teams[team]["metrics"][name]) for team in teams)])
    info = data.info
    rows.insert(1, [f"{info.label}, interquartile mean", *(info.text(team["iqm"]["value"]) for team in teams.values())])
    rows.append(["episodes", *(team["episodes"] for team in teams.values())])
    rows.append(["episodes lost", *(team["lost"] for team in teams.values())])
    return Table(("metric", *(_name(name) for name in teams)), rows)


def _by_k(name: str, heads: Sequence[str]) -> tuple[int, int]:
    place = next(place for place, head in enumerate(heads) if name.startswith(head))
    return place, int(re.sub(r"\D", "", name.removeprefix(heads[place])))


def _of_a_share(name: str, data: ReportData) -> bool:
    """Return whether an expected best of k is one of shares, as pass@k is."""
    best = [metric for metric in data.metrics.values() if metric.at_k and name.startswith(f"{metric.at_k}@")]
    return all(metric.share for metric in best)


def _ladder(audit: Mapping[str, Any] | None) -> Table:
    rows = [[rung["name"], rung.get("role", ""), rung["reward"]] for rung in (audit or {}).get("ladder", ())]
    return Table(("scripted team", "role", "reward"), rows)


def _plan(plan: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    if plan is None:
        return []
    return [
        (key.replace("_", " "), storage.canonical_json(value) if isinstance(value, dict | list) else value)
        for key, value in plan.items()
    ]


def _between(limits: Mapping[str, Any], show: Any) -> str:
    if limits["low"] is None or limits["high"] is None:
        return "no interval"
    return f"{show(limits['low']).removesuffix(' %').removesuffix(' points')} to {show(limits['high'])}"


def _name(team: str) -> str:
    return {"base": "the base", "last": "the last checkpoint", "selected": "selected"}.get(team, team)
