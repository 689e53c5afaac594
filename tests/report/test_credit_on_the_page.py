"""Credit on the page: who contributes how much, and how near the advantages were to the true ones."""

from pathlib import Path

import pytest

from pipeline_lib.evaluation.results import Estimate
from pipeline_lib.evaluation.tested_teams import Contribution
from pipeline_lib.report import series, team_tables, training_figures
from pipeline_lib.report.data import ReportData
from tests.report.build import changed, experiment
from tests.report.html import Document, build


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
    shown = [[str(cell).replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in team_tables.agents(data).rows]
    assert shown[0] == ["left", "+25.0 points", "+15.0 to +35.0", "+45.0 points", "+35.0 to +55.0", "12"]
    assert team_tables.subteams(data).rows == [["left + scribe", "50.0 %"], ["left", "50.0 %"], ["nobody", "12.5 %"]]


def test_a_team_of_many_has_no_shapley_values_and_a_run_may_have_nothing(
    built: tuple[str, Document], tmp_path: Path
) -> None:
    _, document = build(measured(exact=False), tmp_path)
    assert "lost without it" in document.text
    assert team_tables.agents(measured(exact=False)).columns == ("agent", "lost without it", "interval", "problems")
    assert "Who contributes" not in built[1].text


def test_how_near_advantages_were_to_the_truth_is_a_figure_where_it_was_measured() -> None:
    data = experiment()
    rows = {
        seed: [
            {
                **row,
                **(
                    {
                        f"fidelity/{name}/{agent}": value
                        for name, value in (("correlation", 0.5), ("error", 0.2 + seed), ("truth_error", 0.1))
                        for agent in ("helper", "main")
                    }
                    if row["step"] in (10, 20)
                    else {}
                ),
            }
            for row in steps
        ]
        for seed, steps in data.train.items()
    }
    measured_data = changed(data, train=rows)
    drawn = training_figures.fidelity(measured_data)
    assert drawn is not None and "Credit and the truth" in str(drawn.title)
    table = series.fidelity(measured_data)
    assert [row[0] for row in table.rows] == [10, 20]
    assert table.rows[0][table.columns.index("squared error: main")] == pytest.approx(1.2)
    assert training_figures.fidelity(data) is None
