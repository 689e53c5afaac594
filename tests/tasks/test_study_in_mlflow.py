"""A study in MLflow, on a real database."""

from pathlib import Path

from mlflow import MlflowClient

from pipeline_lib.storage import write_json
from pipeline_lib.tracking import Tracker
from tasks.chain.study import record_study

CONTRAST = {
    "name": "high against usual",
    "verdict": "IMPROVED",
    "sentence": "IMPROVED: high is better than usual.",
    "test": {"estimate": 0.25, "p": None},
}


def test_a_study_shows_its_verdicts_numbers_and_page(tmp_path: Path, tracking: Path) -> None:
    page = tmp_path / "studies/rates/index.html"
    write_json(page.parent / "study.json", {"question": "Which rate?", "contrasts": [CONTRAST]})
    page.write_text("<html/>")
    tracker = Tracker(tracking, "coding", "study rates")
    record_study(page, tracker.whole)
    assert tracker.close(120)
    assert tracker.rejected() == []
    client = MlflowClient(f"sqlite:///{tracking}/mlflow.db")
    (run,) = client.search_runs([found.experiment_id for found in client.search_experiments()])
    assert run.data.metrics == {"high against usual/estimate": 0.25}, "a p that does not exist is no number"
    assert run.data.tags["verdict"] == "high against usual: IMPROVED"
    described = run.data.tags["mlflow.note.content"]
    assert described.startswith("Which rate?\n\n- IMPROVED: high is better than usual.\n\n[index.html](#/experiments/")
    copied = {path.name for path in (tracking / "artifacts").rglob("*.*")}
    assert copied == {"index.html", "study.json"}
