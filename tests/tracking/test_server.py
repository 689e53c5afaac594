"""Tracking to a real MLflow server: over HTTP, with the server going away and coming back in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_lib.tracking import Checkpoint, Contender, Tracker
from pipeline_lib.tracking.addresses import start_link
from tasks.services import servers
from tests.tracking.conftest import Reader

pytestmark = pytest.mark.service


def start(home: Path, monkeypatch: pytest.MonkeyPatch, port: int = 5600) -> servers.Server:
    monkeypatch.setenv("SYMPOSIUM_HOME", str(home.parent))
    return servers.start_mlflow(port)


def test_metrics_models_and_artifacts_over_http_survive_a_restart(
    home: Path, reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = home.rename(home.with_name("mlflow"))
    reader = Reader(f"sqlite:///{home}/mlflow.db")
    server = start(home, monkeypatch)
    try:
        first = start_link(server.url, "team")
        tracking = Tracker(home, "team", "brave-owl", uri=server.url, interval_s=0.1)
        tracking._journal._retry_s = 0.5
        run = tracking.start_run("train", 0)
        run.log(1, {"reward": 1.0})
        ids = run.ids(60)
        assert ids is not None and first.startswith(f"{server.url}/#/experiments/{ids[0]}/runs?")
        assert start_link(server.url, "team") == first
        server.stop()
        run.log(2, {"reward": 2.0})
        checkpoint = Checkpoint("step-2", 2, "a" * 64, "models/x")
        run.checkpoint(checkpoint)
        assert not tracking.flush(60)
        assert caplog.text.count("cannot reach the server") == 1
        assert "Retrying" not in caplog.text and "HTTPConnectionPool" not in caplog.text
        port = int(server.url.rpartition(":")[2])
        server = start(home, monkeypatch, port)
        assert server.url.endswith(str(port))
        (tmp_path / "report.html").write_text("<html/>")
        run.artifact(tmp_path / "report.html")
        run.checkpoint_metrics(checkpoint, {"tests_passed": 0.5}, ("validation", "d" * 64))
        won = Contender("step-2", "brave-owl", "IMPROVED", "", "d" * 64, "tests_passed", 0.5)
        run.champion(checkpoint, "coding-pair", won)
        run.finish()
        assert tracking.close(120)
        assert "the server is back" in caplog.text
        http = Reader(server.url)
        info = http.runs()["train seed 0"].info
        assert [entry.path for entry in http.client.list_artifacts(info.run_id)] == ["report.html"]
        assert http.client.get_model_version_by_alias("coding-pair", "champion").version == "1"
    finally:
        server.stop()
    assert reader.curve("train seed 0", "reward") == [(1, 1.0), (2, 2.0)]
    assert set(reader.statuses().values()) == {"FINISHED"}
