"""One experiment as one self-contained HTML page: the verdict first, then everything it rests on, folded.

The page loads nothing: style and figures are inside, there is no script, and its own security policy forbids requests.
The test episodes are on a second page beside it (`viewer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import yaml

from pipeline_lib import storage
from pipeline_lib.evaluation.verdict import BASE, SELECTED, SINGLE_AGENT
from pipeline_lib.monitors.history import alarms, endings, silence
from pipeline_lib.report import (
    result_figures,
    result_tables,
    team_tables,
    training_figures,
)
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.result_tables import between, linked, team_name
from pipeline_lib.report.style import Figure
from pipeline_lib.report.team_tables import for_a_paper
from pipeline_lib.report.text import cell, count, sentence_only, typeset
from pipeline_lib.report.viewer import PAGE, write_viewer

TEMPLATES = Path(__file__).parent / "templates"


def build_report(data: ReportData, output: Path, own: Sequence[Figure] = ()) -> None:
    """Write the page of one experiment to ``output``, and that of its episodes beside it; parents are made.

    ``own`` are figures that only this environment has.
    """
    verdict, info = data.verdict, data.info
    context = {
        "name": data.name,
        "title": data.title,
        "note": data.note,
        "verdict": verdict,
        "lines": [typeset(line) for line in verdict["lines"]],
        "caveats": [typeset(text) for caveat in verdict["caveats"] for text in caveat["details"]],
        "means": [
            (name, linked(info.text(mean["value"]), team, data), between(mean, info.text))
            for name, team, mean in _means(verdict["comparisons"])
        ],
        "rests_on": _rests_on(data),
        "per_seed": result_tables.per_seed(data),
        "learning": training_figures.learning(data),
        "terms": training_figures.terms(data),
        "fidelity": training_figures.fidelity(data),
        "lengths": training_figures.lengths(data),
        "policies": training_figures.by_policy(data),
        "alarms": [typeset(sentence) for sentence in (*endings(data.train), *alarms(data.train))],
        "silence": silence(data.train),
        "time": training_figures.time_spent(data),
        "sweep": result_figures.sweep(data),
        "checkpoints": result_figures.checkpoint_metrics(data),
        "forest": result_figures.forest(data),
        "problems": result_figures.problems(data),
        "behaviour": result_figures.behaviour(data),
        "own": own,
        "turns": team_tables.turns(data),
        "schemes": team_tables.over_checkpoints(data),
        "scheme_teams": team_tables.by_team(data),
        "scheme_families": team_tables.by_family(data),
        "further_families": data.cooperation.further_families if data.cooperation else 0,
        "scheme_success": team_tables.success(data),
        "scheme_moves": team_tables.moves(data),
        "contributions": team_tables.agents(data),
        "subteams": team_tables.subteams(data),
        "again": count(data.contribution_episodes, "episode"),
        "about": typeset(data.about.sentence()) if data.about else "",
        "episodes": PAGE if data.tested else "",
        "episode_count": sum(len(team.episodes) for team in data.tested),
        "paper": for_a_paper(data),
        "faults": [
            f"Step {point['step']} of seed {seed}: {'; '.join(point['faults'])}"
            for seed, chosen in data.selection["seeds"].items()
            for point in chosen["curve"]
            if point["faults"]
        ],
        "comparisons": result_tables.comparisons(data),
        "in_words": [
            {
                "name": team_name(name),
                "verdict": found["verdict"],
                "sentence": typeset(sentence_only(found["sentence"])),
            }
            for name, found in verdict["comparisons"].items()
        ],
        "notes": [typeset(note) for note in data.notes],
        "teams": result_tables.teams(data),
        "meanings": _meanings(data),
        "costs": team_tables.costs(data),
        "episode_costs": team_tables.one_episode(data),
        "audit": data.audit,
        "ladder": result_tables.ladder(data.audit),
        "plan": _plan(data.plan),
        "looks": result_tables.looks(verdict.get("looks")),
        "identity": list(data.identity.items()),
        "settings": yaml.safe_dump(dict(data.settings), sort_keys=False, width=100) if data.settings else "",
    }
    storage.write_text(output, render("page.html.j2", context))
    title = f"{data.title}: test episodes"
    write_viewer(title, data.tested, data.metric, info, data.metrics, output.parent)


def render(template: str, context: Mapping[str, Any]) -> str:
    """Return a page from a template of this package, style included; text is escaped, an unknown name is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["cell"] = cell
    css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return environment.get_template(template).render(css=css, **context)


def _means(comparisons: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return title, name and mean of the teams in the headline."""
    primary = comparisons[BASE]
    others = [(name, comparisons[name]) for name in (SINGLE_AGENT, BASE) if name in comparisons]
    return [
        (primary["names"][0], SELECTED, primary["means"][0]),
        *((found["names"][1], name, found["means"][1]) for name, found in others),
    ]


def _rests_on(data: ReportData) -> list[str]:
    """Return what the verdict rests on, a sentence each."""
    verdict, info = data.verdict, data.info
    primary = verdict["comparisons"][BASE]
    level = f"{100 * primary['difference']['level']:.0f} %"
    told = [
        f"{primary['problems']} problems in {primary['families']} families, "
        f"{primary['episodes'][0]:,} episodes of the selected team and {primary['episodes'][1]:,} of the base, "
        f"{count(len(data.selection['seeds']), 'training seed')}; {level} intervals.",
        verdict["other_runs"],
        verdict["price_of_the_default"],
    ]
    if shrinkage := verdict.get("shrinkage"):
        lost = shrinkage["validation"] - shrinkage["test"]
        told.append(
            f"From validation to test the selected checkpoints went from {info.text(shrinkage['validation'])} to "
            f"{info.text(shrinkage['test'])} ({info.difference(-lost)})."
        )
    if verdict["plan"]["followed"]:
        told.append(f"The plan fixed before the sweep ({verdict['plan']['plan'][:12]}) was followed.")
    if looks := verdict.get("looks"):
        only = "This is the only look at the test split that this repository knows of. " if looks["count"] == 1 else ""
        told.append(f"{only}{looks['since']}")
    return [typeset(text) for text in told if text]


def _meanings(data: ReportData) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what metrics, reward terms and schemes mean: a heading, and names with a sentence each."""
    shown = data.verdict["teams"]["selected"]
    groups = {
        "Metrics, per episode": {
            metric.label: metric.about for name, metric in data.metrics.items() if name in shown["metrics"]
        },
        "Terms of the reward": data.terms,
        "Ways to work together (schemes)": {name.replace("_", " "): text for name, text in data.schemes.items()},
    }
    return [
        (title, [(name, f"{text[:1].upper()}{text[1:]}.") for name, text in words.items() if text])
        for title, words in groups.items()
        if any(words.values())
    ]


def _plan(plan: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    if plan is None:
        return []
    return [
        (key.replace("_", " "), storage.canonical_json(value) if isinstance(value, dict | list) else value)
        for key, value in plan.items()
    ]
