"""Shared by the tests of tracking."""

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run


@pytest.fixture
def home(tmp_path: Path, empty_database: Path) -> Path:
    folder = tmp_path / "tracking"
    folder.mkdir()
    shutil.copy(empty_database, folder / "mlflow.db")
    return folder


class Reader:
    """Reads a tracking database the way a person does: by names, those of children without their parent's."""

    def __init__(self, uri: str) -> None:
        self.client = MlflowClient(tracking_uri=uri, registry_uri=uri)

    def runs(self, experiment: str = "team") -> dict[str, Run]:
        found = self.client.get_experiment_by_name(experiment)
        assert found is not None
        runs = self.client.search_runs([found.experiment_id])
        names = {run.info.run_name.removeprefix(f"{run.data.tags['symposium.run']} "): run for run in runs}
        assert len(names) == len(runs), "a run was made twice"
        return names

    def curve(self, run: str, metric: str) -> list[tuple[int, float]]:
        history = self.client.get_metric_history(self.runs()[run].info.run_id, metric)
        return sorted((metric.step, metric.value) for metric in history)

    def statuses(self) -> dict[str, str]:
        return {name: run.info.status for name, run in self.runs().items()}


@pytest.fixture
def reader(home: Path) -> Reader:
    return Reader(f"sqlite:///{home}/mlflow.db")
