"""The page's tables of who contributes how much."""

from __future__ import annotations

from pathlib import Path

from pipeline_lib.evaluation.contributions import Contribution
from pipeline_lib.evaluation.results import Estimate
from pipeline_lib.report import contribution_tables
from pipeline_lib.report.data import ReportData
from tests.report.build import changed, experiment
from tests.report.html import build


def estimate(value: float) -> Estimate:
    return Estimate(value, value - 0.1, value + 0.1, 0.95, "t", 12)


def measured(exact: bool) -> ReportData:
    found = tuple(
        Contribution(agent, 12, estimate(value) if exact else None, estimate(value + 0.2))
        for agent, value in (("left", 0.25), ("scribe", 0.0))
    )
    return changed(experiment(), contributions=found, subteams={("left", "scribe"): 0.5, ("left",): 0.5, (): 0.125})


def test_the_page_says_what_each_agent_contributes_and_what_each_subteam_reaches(tmp_path: Path) -> None:
    data = measured(exact=True)
    _, document = build(data, tmp_path)
    assert "Who contributes how much" in document.text and "Shapley value" in document.text
    shown = [
        [str(cell).replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in contribution_tables.agents(data).rows
    ]
    assert shown[0] == ["left", "+25.0 points", "+15.0 to +35.0", "+45.0 points", "+35.0 to +55.0", "12"]
    assert contribution_tables.subteams(data).rows == [
        ["left + scribe", "50.0 %"],
        ["left", "50.0 %"],
        ["nobody", "12.5 %"],
    ]


def test_a_team_of_many_has_no_shapley_values_and_a_run_may_have_nothing(tmp_path: Path) -> None:
    _, document = build(measured(exact=False), tmp_path)
    assert "lost without it" in document.text
    assert contribution_tables.agents(measured(exact=False)).columns == (
        "agent",
        "lost without it",
        "interval",
        "problems",
    )
    _, without = build(experiment(), tmp_path / "without")
    assert "Who contributes" not in without.text
