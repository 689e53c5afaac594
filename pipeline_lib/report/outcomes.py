"""The verdict on outcomes of any systems as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path

from pipeline_lib import storage
from pipeline_lib.evaluation.outcome_verdict import OutcomeVerdict
from pipeline_lib.evaluation.results import to_json
from pipeline_lib.report import series
from pipeline_lib.report.page import render
from pipeline_lib.report.results import difference_cells, differences, p_cell
from pipeline_lib.report.style import Table
from pipeline_lib.report.text import harmless, typeset


def build_outcomes(found: OutcomeVerdict, output: Path) -> None:
    """Write the page to ``output``; parents are made."""
    info, comparisons = found.info, to_json(found.comparisons)
    page = render(
        "outcomes.html.j2",
        title=f"{', '.join(found.comparisons)} against {found.baseline}",
        found=found,
        forest=differences(
            comparisons,
            info,
            f"Every system against {found.baseline}",
            (f"system minus {found.baseline}", "the system"),
            series.effects(comparisons),
        ),
        numbers=_numbers(found),
        systems=Table(
            ("system", info.label, "problems", "outcomes", "lost", "training seeds"),
            [
                [name, info.text(one["mean"]), one["problems"], one["outcomes"], one["lost"], len(one["seeds"]) or None]
                for name, one in found.systems.items()
            ],
        ),
        problems=Table(
            ("problem", *found.systems),
            [[problem, *(means.get(name) for name in found.systems)] for problem, means in found.problems.items()],
        ),
        design=[(key.replace("_", " "), _plain(value)) for key, value in found.design.items()],
    )
    storage.write_text(output, harmless(page))


def _numbers(found: OutcomeVerdict) -> Table:
    rows = []
    for name, c in found.comparisons.items():
        p, g = c.p_adjusted, c.effect.g
        evidence = None if p is None else p_cell(p), None if g is None else typeset(f"{g:.2f}")
        least = None if c.detectable is None else typeset(found.info.difference(c.detectable).lstrip("+"))
        difference = difference_cells(to_json(c.difference), found.info)
        rows.append([name, c.verdict, *difference, *evidence, c.problems, c.families, least])
    heads = "system", "verdict", "difference", "interval", "p (Holm)", "Hedges' g", "problems", "families", "detectable"
    return Table(heads, rows)


def _plain(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
