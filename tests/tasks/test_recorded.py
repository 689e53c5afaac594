"""A run whose results DVC had already shows them in MLflow as one that computed them, with what it really took."""

import re
import time
from pathlib import Path
from typing import Any

import mlflow
import pytest

from flows.runs import HEADINGS, about, row
from pipeline_lib.project import TRACES
from pipeline_lib.settings import Params
from pipeline_lib.storage import write_json, write_jsonl, write_text
from pipeline_lib.tracking import Tracker
from pipeline_lib.tracking.verdicts import tracked_runs
from tasks.experiment.arms import REPORT, RESULTS, training_file
from tasks.identity.run import NOTE, told
from tasks.runtime.tracked_run import record_results, record_update

VERDICT: dict[str, Any] = {
    "verdict": "IMPROVED",
    "lines": ["Better.", "Equal.", "Caveats: none."],
    "metric": "tests_passed",
    "teams": {name: {"metrics": {"tests_passed": value}} for name, value in (("base", 0.2), ("selected", 0.9))},
    "comparisons": {"base": {"means": [{"value": 0.9}, {"value": 0.2}]}},  # of the selected team, and of the base
    **{"difference": 0.7, "low": 0.6, "high": 0.8, "p": 1e-6, "hedges_g": 2.0},
    "looks": {"count": 1, "p": {}},
    "plan": {"plan": "p", "deviations": [], "changed": []},
    "design": {"test_content": "d"},
    "ended_by_monitors": [],
}
ROWS = [{"step": s, "reward/mean": s / 2, "metrics/tests_passed": s / 4, "time/step_s": 60.0} for s in (1, 2)]


@pytest.fixture
def restored(tmp_path: Path, tracking: Path) -> Path:
    """A project with results of 4 minutes of training and 36 s of test."""
    for seed, arm in ((0, "team"), (0, "single")):
        write_jsonl(tmp_path / training_file(arm, seed), [{**row, "actions/tokens": 5} for row in ROWS])
    write_json(tmp_path / RESULTS / "verdict.json", VERDICT)
    write_json(tmp_path / RESULTS / "test/cost.json", {"base": {"seconds": 36.0, "tokens": 3}})
    write_text(tmp_path / REPORT / "index.html", "<p>the page</p>")
    write_json(tmp_path / REPORT / TRACES, [])
    return tmp_path


def recorded(project: Path, worked: dict[str, bool]) -> Any:
    """Record a run of two seconds; return it as MLflow has it."""
    params = Params().model_validate({"seeds": {"train": [0], "single_agent": [0]}})
    tracker = Tracker(project / "mlflow", "coding", "brave-owl", tags=told(project))
    record_results(tracker.whole, params, project, worked, time.monotonic() - 2)
    assert tracker.close(60) and not tracker.rejected()
    return tracked_runs(project / "mlflow")[0]


def test_a_restored_run_shows_its_verdict_its_curves_and_both_durations(
    restored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NOTE, "is it as good as before?")
    found = recorded(restored, {"train@0": False, "verdict": False, "report": False})
    cells = dict(zip(HEADINGS, row(found), strict=True))
    assert (cells["run"], cells["verdict"], cells["base"], cells["selected"]) == (
        "brave-owl",
        "IMPROVED",
        "20.0 %",
        "90.0 %",
    )
    assert re.fullmatch(r"took [23] s, training and test 4 min 36 s; is it as good as before\?", about(found))
    client = mlflow.MlflowClient(f"sqlite:///{restored}/mlflow/mlflow.db")
    [run] = client.search_runs([client.get_experiment_by_name("coding").experiment_id])
    for curve, values in (("1 reward", [0.5, 1.0]), ("2 tests_passed", [0.25, 0.5])):
        history = client.get_metric_history(run.info.run_id, f"{curve}/team seed 0")
        assert [(point.step, point.value) for point in history] == list(enumerate(values, start=1))
    assert run.data.tags["mlflow.note.content"].startswith("is it as good as before?\n\nBetter.\n\nEqual.")
    assert len(list((restored / "mlflow/artifacts").rglob("index.html"))) == 1


def test_curves_that_a_training_of_the_run_has_recorded_itself_are_not_doubled(restored: Path) -> None:
    """Its process writes into the run that this one has made, so this one remembers a run without curves."""
    params = Params().model_validate({"seeds": {"train": [0], "single_agent": [0]}})
    chain, stage = (Tracker(restored / "mlflow", "coding", "brave-owl", tags=told(restored)) for _ in range(2))
    chain.whole.summary({"begun": 1.0})
    assert chain.flush(60)
    for found in ROWS:
        record_update(stage.whole, "team", 0, found)
    assert stage.close(60)
    worked = {"train@0": True, "train_single@0": False, "verdict": True, "report": True}
    record_results(chain.whole, params, restored, worked, time.monotonic())
    assert chain.close(60)
    client = mlflow.MlflowClient(f"sqlite:///{restored}/mlflow/mlflow.db")
    [run] = client.search_runs([client.get_experiment_by_name("coding").experiment_id])
    for arm in ("team", "single"):
        history = client.get_metric_history(run.info.run_id, f"1 reward/{arm} seed 0")
        assert [(point.step, point.value) for point in history] == [(1, 0.5), (2, 1.0)], arm
        history = client.get_metric_history(run.info.run_id, f"2 tests_passed/{arm} seed 0")
        assert [(point.step, point.value) for point in history] == [(1, 0.25), (2, 0.5)], arm


def test_a_part_of_the_chain_does_not_get_the_verdict_of_an_earlier_run(restored: Path) -> None:
    found = recorded(restored, {"prepare": True})
    assert dict(zip(HEADINGS, row(found), strict=True))["verdict"] == "running"
    assert "verdict" not in found.tags and re.fullmatch(r"took [23] s", about(found))
