"""The figure of texts before and after, on the page."""

from pathlib import Path

from pipeline_lib.environments.writing.task import texts
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.report.page import build_report
from pipeline_lib.report.viewer import TestedTeam
from tests.report.build import changed, experiment


def episode(problem: str, first: str, second: str, coverage: float):
    return EpisodeRecord(
        problem, "f", 0, 1.0, 1, {}, {"coverage": coverage, "tests_passed": 0.0}, 9, {"texts": [first, second]}
    )


def test_texts_before_and_after_stand_on_the_page(tmp_path: Path):
    before = [episode("world/a", "Mara lost.", "", 0.0), episode("world/b", "It was.", "x" * 2000, 0.1)]
    after = [episode("world/a", "Mara lost the bike.", "It was in May.", 1.0), episode("world/b", "So.", "<b>", 0.5)]
    data = changed(experiment(), tested=[TestedTeam("selected", 0, 1, after), TestedTeam("base", None, None, before)])
    (figure,) = texts(data)
    assert [row[:3] for row in figure.table.rows] == [
        ["world/a", "base", 0.0], ["world/a", "selected", 1.0], ["world/b", "base", 0.1], ["world/b", "selected", 0.5],
    ]  # fmt: skip
    assert "Mara lost the bike." in figure.wide and "100% of the facts told (world/a)" in figure.wide
    build_report(data, tmp_path / "page.html", [figure])
    page = (tmp_path / "page.html").read_text()
    assert "Texts before and after" in page and "<b>" not in figure.wide


def test_without_texts_there_is_no_figure():
    assert texts(changed(experiment(), tested=())) == []
    silent = [TestedTeam(name, None, None, [episode("a", "", "", 0.0)]) for name in ("base", "selected")]
    assert texts(changed(experiment(), tested=silent)) == []
