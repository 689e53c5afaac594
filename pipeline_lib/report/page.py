"""One experiment as one self-contained HTML page: the verdict first, then everything it rests on, folded.

The page loads nothing: style and figures are inside, there is no script, and its own security policy forbids requests.
The test episodes are on a second page beside it (`viewer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import yaml

from pipeline_lib import storage
from pipeline_lib.evaluation.verdict import BASE, SELECTED, SINGLE_AGENT
from pipeline_lib.report import results, team_tables, training_figures
from pipeline_lib.report.alarms import alarms, endings, silence
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.results import between, linked
from pipeline_lib.report.style import Figure
from pipeline_lib.report.text import cell, count, sentence_only, typeset
from pipeline_lib.report.viewer import PAGE, write_traces, write_viewer

TEMPLATES = Path(__file__).parent / "templates"


def build_report(data: ReportData, output: Path, own: Sequence[Figure] = ()) -> None:
    """Write the page of one experiment to ``output``, and that of its episodes beside it; parents are made.

    ``own`` are figures that only this environment has.
    """
    page = render(
        "page.html.j2",
        title=data.title,
        data=data,
        verdict=data.verdict,
        own=own,
        training=training_figures,
        results=results,
        team=team_tables,
        episodes=PAGE,
        means=_means(data),
        rests_on=_rests_on(data),
        meanings=_meanings(data),
        alarms=[*endings(data.train), *alarms(data.train)],
        silence=silence(data.train),
        faults=[
            f"Step {point['step']} of seed {seed}: {'; '.join(point['faults'])}"
            for seed, chosen in data.selection["seeds"].items()
            for point in chosen["curve"]
            if point["faults"]
        ],
        plan=[
            (key.replace("_", " "), storage.canonical_json(value) if isinstance(value, dict | list) else value)
            for key, value in (data.plan or {}).items()
        ],
        settings=yaml.safe_dump(dict(data.settings), sort_keys=False, width=100) if data.settings else "",
    )
    storage.write_text(output, page)
    title = f"{data.title}: test episodes"
    write_viewer(title, data.tested, data.metric, data.info, data.metrics, output.parent)
    write_traces(data.name, data.tested, data.metric, data.info, data.metrics, output.parent)


def render(template: str, **context: Any) -> str:
    """Return a page or a card from a template of this package; an unknown name is an error.

    Text in HTML is escaped, and the page's style is inside.  Text in Markdown is not: it comes from files of a project.
    """
    html = template.endswith(".html.j2")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=html, undefined=jinja2.StrictUndefined, trim_blocks=html
    )
    environment.filters |= {"cell": cell, "count": count, "sentence_only": sentence_only, "typeset": typeset}
    css = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    return environment.get_template(template).render(css=css, **context)


def _means(data: ReportData) -> list[tuple[str, object, str]]:
    """Return title, linked mean and interval of the teams in the headline."""
    comparisons, info = data.verdict["comparisons"], data.info
    shown = [(BASE, 0, SELECTED), *((name, 1, name) for name in (SINGLE_AGENT, BASE) if name in comparisons)]
    found = []
    for name, side, team in shown:
        mean = comparisons[name]["means"][side]
        number = linked(info.text(mean["value"]), team, data)
        found.append((comparisons[name]["names"][side], number, between(mean, info.text)))
    return found


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
    return [text for text in told if text]


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
