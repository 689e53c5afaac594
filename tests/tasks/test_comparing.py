"""Runs compared on one page, out of a real tracking database."""

import re
from pathlib import Path

import pytest

from flows import compare
from flows.compare import compare_runs
from pipeline_lib.tracking import Tracker
from pipeline_lib.tracking.verdicts import tracked_verdicts
from tasks.runtime.arguments import ArgumentError
from tasks.services.servers import ServerError


def finish(
    home: Path,
    name: str,
    selected: float,
    rate: float = 1e-3,
    faults: str = "",
    looks: str = "1",
    p: float | None = 0.01,
) -> None:
    """Leave in the database what a run leaves there."""
    settings = {"train": {"learning_rate": rate, "steps": 80}}
    tracker = Tracker(home, "coding", name, tags={"git.commit": "1f0c"}, params=settings)
    numbers = {"base": 0.2, "selected": selected, "difference": selected - 0.2, "low": selected - 0.25, "p": p}
    tracker.whole.summary({f"test/{key}": value for key, value in numbers.items()})
    tracker.whole.tag(
        {
            "verdict": "IMPROVED",
            "symposium.lines": f"{name} is better than its base.\nIt is as good as one agent.\nCaveats: none.",
            "symposium.metric": "tests_passed",
            "symposium.plan": "p",
            "symposium.problems": "d",
            "symposium.plan_faults": faults,
            "symposium.looks": looks,
        }
    )
    assert tracker.close(60)


def test_runs_come_out_of_the_database_onto_one_page(tmp_path: Path, tracking: Path) -> None:
    home, page = tracking, tmp_path / "compare.html"
    finish(home, "slow-fox", 0.5, rate=1e-4, faults="the plan was changed after look 2", looks="3")
    finish(home, "brave-owl", 0.9, looks="not counted")
    assert Tracker(home, "coding", "broken").close(60)  # it has no verdict
    assert compare_runs(home, "coding", (), page) == 2
    text = page.read_text()
    assert "brave-owl" in text and "slow-fox" in text and "broken" not in text
    assert "train.learning_rate" in text and "train.steps" not in text
    assert "The best of 2 runs looks better than it is" in text
    assert "no interval" in text, "one limit alone is no interval"
    assert text.count("the plan was changed after look 2") == 1
    assert text.count("<details><summary>What its plan says and what was done") == 1, "folded, of one run"
    assert "not the first look at their test split" in text and text.count("Caveats: none.") == 2
    assert compare_runs(home, "coding", ["brave-owl"], page) == 1
    assert "slow-fox" not in page.read_text()
    with pytest.raises(ArgumentError, match=r"named fast-fox; did you mean slow-fox\?"):
        compare_runs(home, "coding", ["fast-fox"], page)
    with pytest.raises(ArgumentError, match="no experiment 'writing'; it has: coding; run the pipeline"):
        compare_runs(home, "writing", (), page)


def test_a_run_made_again_under_its_name_shows_its_new_settings_and_numbers(tmp_path: Path, tracking: Path) -> None:
    """MLflow keeps the first value of a parameter, but a verdict on other settings is another run."""
    home, page = tracking, tmp_path / "compare.html"
    finish(home, "brave-owl", 0.5, rate=1e-4)
    finish(home, "brave-owl", 0.9, rate=1e-3)
    finish(home, "slow-fox", 0.6, rate=1e-4)
    assert compare_runs(home, "coding", (), page) == 2
    text = page.read_text()
    assert "90.0 %" in text and "50.0 %" not in text
    cells = re.findall(
        r"<tr><t[dh][^>]*>train\.learning_rate</t[dh]><td[^>]*>([^<]*)</td><td[^>]*>([^<]*)</td></tr>", text
    )
    assert cells == [("0.001", "0.0001")]


def test_a_result_without_a_p_value_does_not_show_that_of_an_earlier_one(tmp_path: Path, tracking: Path) -> None:
    """The same run is judged again, for example after its task was edited, and now too few families differ."""
    home, page = tracking, tmp_path / "compare.html"
    finish(home, "brave-owl", 0.9, p=0.0123)
    finish(home, "brave-owl", 0.9, p=None)
    (run,) = tracked_verdicts(home, "coding")
    assert "test/p" not in run.metrics and run.metrics["test/selected"] == 0.9
    assert compare_runs(home, "coding", (), page) == 1
    assert "0.0123" not in page.read_text() and "0.012" not in page.read_text()


def test_without_a_name_the_experiment_is_that_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []
    monkeypatch.setattr(compare, "compare_runs", lambda _home, name, *_: asked.append(name) or 1)
    monkeypatch.setattr("sys.argv", ["compare"])
    for kind in ("coding", "writing"):
        Path("params.yaml").write_text(f"environment: {{kind: {kind}}}")
        compare.main()
    assert asked == ["coding", "writing"]


def test_a_tracking_server_that_is_down_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    with pytest.raises(ServerError, match=r"MLflow server at http://127\.0\.0\.1:1 does not answer"):
        compare_runs(tmp_path, "coding", [], tmp_path / "page.html")
