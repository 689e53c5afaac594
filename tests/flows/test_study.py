"""A study through its command: cells become experiments, are run once, and end on a page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from tests.flows.project import SMALL, call, make_project

STUDY = {
    "question": "Does a larger learning rate teach more?",
    "changes": {"train.steps": 2, "train.checkpoint_every": 2, "evaluate.baselines": []},
    "factors": {"rate": {"usual": {}, "high": {"train.learning_rate": 0.003}}},
    "against": {"rate": "usual"},
    "seeds": [0, 1, 2],
}
COMMAND = (sys.executable, "-m", "flows.study", "rates")


def write(project: Path, study: dict) -> None:
    path = project / "conf/studies/rates.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(study, sort_keys=False))


@pytest.mark.slow
@pytest.mark.service
@pytest.mark.timeout(1200)
def test_a_study_runs_each_cell_once_and_compares_them(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", {**SMALL, "seeds": {"train": [0, 1, 2], "single_agent": []}})
    write(project, {**STUDY, "changes": {**STUDY["changes"], "verdict.margin": 0.05}})
    call(project, "git", "update-ref", "refs/exps", "HEAD")  # where experiments would be saved
    assert "cannot lock ref" in call(project, *COMMAND, status=1)
    call(project, "git", "update-ref", "-d", "refs/exps")
    said = call(project, *COMMAND)
    assert "unchanged since its last run" not in said, "a cell without an experiment is not done"
    experiments = call(project, "git", "for-each-ref", "--format=%(refname)", "refs/exps/").split()
    assert sorted(ref.rpartition("/")[2] for ref in experiments) == ["rates-high", "rates-usual"]
    result = json.loads((project / "studies/rates/study.json").read_text())
    (contrast,) = result["contrasts"]
    assert contrast["sentence"] in said and contrast["cells"] == [["high"], ["usual"]]
    assert "before any cell was run, and kept" in result["plan"]
    assert all(len(cell["by_seed"]) == 3 for cell in result["cells"].values())
    tracked = MlflowClient(f"sqlite:///{project}/.symposium/mlflow/mlflow.db")
    runs = {
        run.info.run_name: run
        for run in tracked.search_runs([found.experiment_id for found in tracked.search_experiments()])
    }
    whole = runs["study rates"]
    assert (whole.info.status, whole.data.tags["verdict"]) == ("FINISHED", f"{contrast['name']}: {contrast['verdict']}")
    for cell in ("rates-high", "rates-usual"):
        assert runs[cell].data.tags["mlflow.parentRunId"] == whole.info.run_id
        assert runs[cell].data.tags["verdict"] and runs[cell].info.status == "FINISHED"
    assert "train.learning_rate=0.003" in runs["rates-high"].data.tags["changes"].split(", ")
    assert "train.learning_rate" not in runs["rates-usual"].data.tags["changes"]
    page = (project / "studies/rates/index.html").read_text()
    assert "Does a larger learning rate teach more?" in page and 'src="' not in page and "<script" not in page
    assert all(f"Learning, by {cost}" in page for cost in ("updates", "sampled tokens", "executed joint actions"))
    rates = {
        name: yaml.safe_load(call(project, "git", "show", f"{ref}:params.yaml"))["train"].get("learning_rate")
        for ref in experiments
        for name in [ref.rpartition("-")[2]]
    }
    assert rates["high"] == 0.003 != rates["usual"]

    again = call(project, *COMMAND)
    assert again.count("unchanged since its last run") == 2 and contrast["sentence"] in again


def test_cells_that_are_judged_differently_are_refused(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    write(project, {**STUDY, "factors": {"rate": {"usual": {}, "high": {"evaluate.test.samples": 9}}}})
    assert "differ in evaluate" in call(project, *COMMAND, status=2)
    assert not (project / "studies").exists()
    assert "studies there: conf/studies" in call(project, *COMMAND[:-1], "rate", status=2)
