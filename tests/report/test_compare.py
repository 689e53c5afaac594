import dataclasses
from pathlib import Path

import pytest

from pipeline_lib.environments.coding.task import METRICS
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.report.compare import RunRow, build_comparison, differing_settings, numbers, warnings
from tests.report.test_page import Document


def row(name: str, difference: float, p: float | None = 0.02, **changes: object) -> RunRow:
    made = RunRow(
        name=name,
        verdict="IMPROVED",
        lines=[f"{name} is better than its base.", "It is as good as one agent.", "Caveats: none."],
        metric="tests_passed",
        base=0.2,
        selected=0.2 + difference,
        difference=difference,
        low=difference - 0.03,
        high=difference + 0.03,
        p=p,
        plan="p1",
        problems="d1",
        settings={"train.learning_rate": 1e-3, "train.steps": 80},
        identity={"commit": "abc"},
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_page(tmp_path: Path) -> None:
    rows = [
        row("small", 0.1, settings={"train.learning_rate": 1e-4, "train.steps": 80}),
        row("big <b>", 0.5),
        row("none", 0.0, None, verdict="INCONCLUSIVE", low=None, high=None),
    ]
    build_comparison(rows, tmp_path / "compare.html", METRICS)
    page = (tmp_path / "compare.html").read_text(encoding="utf-8")
    document = Document()
    document.feed(page)
    assert document.open == []
    assert page.count("<svg") == 2 and "<b>:" not in page and "big &lt;b&gt;" in page
    assert document.text.index("big <b> is better") < document.text.index("small is better")
    assert "train.learning_rate" in document.text and "train.steps" not in document.text
    assert "The best of 3 runs looks better than it is" in document.text


def test_p_values_are_corrected_over_all_runs() -> None:
    assert [cells[-1] for cells in numbers([row("a", 0.1), row("b", 0.2), row("c", 0.3, None)], METRICS).rows] == [
        "0.06", "0.06", "no p value",
    ]  # fmt: skip


def test_what_cannot_be_compared_is_said() -> None:
    rows = [row("a", 0.1), row("b", 0.2, problems="d2", plan="p2")]
    text = " ".join(warnings(rows))
    assert "different problems" in text and "different plans" in text
    assert warnings([row("a", 0.1)]) == []
    assert differing_settings([row("a", 0.1), row("b", 0.2)]).rows == []


def test_lists_are_shown_as_people_write_them() -> None:
    lists = ("['one_round', 'pipeline']", "[]", "[0, 1, 2]")
    rows = [row(name, 0.1, settings={"key": value}) for name, value in zip("abc", lists, strict=True)]
    assert differing_settings([*rows, row("d", 0.1, settings={})]).rows == [
        ["key", "one_round, pipeline", "none", "0, 1, 2", "–"]
    ]
    assert numbers(rows, METRICS).rows[0][5] == "+7.0 to +13.0\N{NO-BREAK SPACE}points"


def test_nonsense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="no finished runs to compare"):
        build_comparison([], tmp_path / "x.html")
    with pytest.raises(EvaluationError, match=r"different primary metrics \(reward, tests_passed\)"):
        build_comparison([row("a", 0.1), row("b", 0.1, metric="reward")], tmp_path / "x.html")
