"""The test results of every team, problem by problem, with links to the episodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.style import Link, Table

#: Most cells of all these tables together: the page has to stay small.
MAX_CELLS = 24_000


@dataclass(frozen=True, slots=True)
class ProblemTable:
    """The test results of one team.

    Attributes:
        anchor: id on the page.
        team: its name.
        table: one row per problem.
        files: files with its episodes.
        missing: number of problems left out because of `MAX_CELLS`.
    """

    anchor: str
    team: str
    table: Table
    files: Sequence[str]
    missing: int


def problem_tables(data: ReportData, names: Sequence[str], read: Mapping[str, str]) -> list[ProblemTable]:
    """Return the test results of every team, problem by problem.

    Args:
        data: outputs of the stages.
        names: metrics, in the order of the columns.
        read: id of the episode on the page, by problem.
    """
    width = len(names) + 1
    rows = MAX_CELLS // max(1, width * len(data.by_problem))
    infos = [describe(name, data.metrics) for name in names]
    found = []
    for team, problems in data.by_problem.items():
        shown = list(problems)[:rows]
        with_texts = read if team in ("base", "selected") else {}
        found.append(
            ProblemTable(
                anchor(team),
                team,
                Table(
                    ("problem", *(info.label for info in infos)),
                    [
                        [
                            Link(problem, with_texts[problem]) if problem in with_texts else problem,
                            *(info.text(problems[problem][name]) for name, info in zip(names, infos, strict=True)),
                        ]
                        for problem in shown
                    ],
                ),
                data.files.get(team, ()),
                len(problems) - len(shown),
            )
        )
    return found


def anchor(team: str) -> str:
    """Return the id of a team's test results on the page."""
    return f"test-{re.sub(r'[^a-z0-9]+', '-', team.lower()).strip('-')}"


def linked(value: object, team: str, data: ReportData) -> object:
    """Return a number of a team with a link to its results problem by problem, if the page has them."""
    return Link(value, anchor(team)) if team in data.by_problem else value
