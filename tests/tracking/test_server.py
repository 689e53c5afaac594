"""Tracking to a real MLflow server: over HTTP, with the server going away and coming back in the middle."""

import dataclasses
import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.tracking import Checkpoint, Contender, Tracker, runs
from pipeline_lib.tracking.operations import RunKey
from pipeline_lib.tracking.recorder import Recorder
from pipeline_lib.tracking.store import start_link
from tasks.services import servers
from tests.tracking.conftest import Reader

pytestmark = pytest.mark.service


def start(home: Path, monkeypatch: pytest.MonkeyPatch, port: int = 5600) -> servers.Server:
    monkeypatch.setenv("SYMPOSIUM_HOME", str(home.parent))
    return servers.start_mlflow(port)


@pytest.mark.drawn("an MLflow server", "pipeline_lib/tracking", count=2)
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


@pytest.mark.drawn("an MLflow server", "pipeline_lib/tracking", count=2)
def test_machines_that_share_a_server_and_begin_together_make_one_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = home.rename(home.with_name("mlflow"))
    server = start(home, monkeypatch)
    keys = [RunKey("team", "brave-owl", "digest", part, f"brave-owl {part}".strip()) for part in ("", "train seed 0")]

    def write(number: int) -> tuple[str, ...]:
        (own := tmp_path / f"machine-{number}").mkdir()  # no lock is shared
        recorder = runs.RunRecorder(server.url, own)
        together.wait(60)
        return tuple(recorder.ids(key)[1] for key in keys)

    together = threading.Barrier(6)
    try:
        with ThreadPoolExecutor(6) as pool:
            found = set(pool.map(write, range(6)))
        assert len(found) == 1, "all write to the same runs"
        there = Reader(server.url).runs().values()
        assert {run.info.run_id for run in there} == set(*found), "and there are no others"
    finally:
        server.stop()


def contend(number: int, uri: str, own: Path, together: Any, rounds: int) -> None:
    """Be a machine whose teams are tested, one a round, at the moment at which the other one's are."""
    recorder = Recorder(uri, own)
    for turn in range(rounds):
        name = f"run {turn} of machine {number}"
        key = RunKey("team", name, "digest", "", name)
        recorder.ids(key)
        value = 0.1 + 0.01 * (2 * turn + (number + turn) % 2)
        team = Checkpoint("team-0-step-3", 3, f"{turn:031d}{number}" * 2, "models/x")
        tested = Contender(team.name, name, "IMPROVED", "", "d" * 64, "tests_passed", value, team.digest)
        together.wait(120)
        recorder.champion(key, dataclasses.asdict(team), "coding-pair", dataclasses.asdict(tested))
        (own / f"{turn}").write_text(recorder.champions[key])
        together.wait(120)
        champion = recorder.current_champion("coding-pair")
        assert champion is not None
        (own / f"{turn}.value").write_text(f"{champion.value:.2f}")
        together.wait(120)


@pytest.mark.drawn("an MLflow server", "pipeline_lib/tracking", count=2)
@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.exhaustive)])
def test_of_two_teams_that_contend_at_the_same_moment_the_better_one_is_champion(
    rounds: int, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow moves an alias unconditionally: without care the last one wins, whatever its value."""
    server = start(home.rename(home.with_name("mlflow")), monkeypatch)
    spawned = multiprocessing.get_context("spawn")
    together, machines = spawned.Barrier(2), [tmp_path / f"machine-{number}" for number in range(2)]
    try:
        processes = [
            spawned.Process(target=contend, args=(number, server.url, own, together, rounds))
            for number, own in enumerate(machines)
        ]
        for own, process in zip(machines, processes, strict=True):
            own.mkdir()  # no lock is shared
            process.start()
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0, 0]
        for turn in range(rounds):
            said = sorted((own / str(turn)).read_text() for own in machines)
            best = f"{0.1 + 0.01 * (2 * turn + 1):.2f}"
            assert {(own / f"{turn}.value").read_text() for own in machines} == {best}, said
            assert ("first" if turn == 0 else "new") + " champion" in said[0] and best in said[0]
            assert "champion" in said[1] and said[0] != said[1]
        versions = Reader(server.url).client.search_model_versions("name = 'coding-pair'")
        assert len({version.source for version in versions}) == len(versions) <= 2 * rounds, "none is doubled"
    finally:
        server.stop()


def episode(name: str, verdict: str) -> dict[str, Any]:
    """An episode as `pipeline_lib.report.viewer.traced` tells it."""
    actions = [
        {
            "agent": agent,
            "turn": 0,
            "prompt": f"write {agent}",
            "text": f"def {agent}",
            "tokens": 5,
            "log_probability": -2.5,
        }
        for agent in ("helper", "main")
    ]
    return {
        "id": name, "team": "selected seed 0", "problem": "p0", "sample": 0, "actions": actions, "result": "both",
        "checks": [["assert f(1) == 1", verdict == "success", ""]],
        "tags": {"verdict": verdict},
        "feedback": {"verdict": verdict, "reward": 1.5, "reward: tests": 1.0, "tests_passed": 0.5},
    }  # fmt: skip


@pytest.mark.drawn("an MLflow server", "pipeline_lib/tracking", count=2)
@pytest.mark.parametrize("over_http", [False, True])
def test_episodes_are_traces_of_their_run_and_are_found_by_their_verdict(
    over_http: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = home.rename(home.with_name("mlflow"))
    server = start(home, monkeypatch) if over_http else None
    try:
        uri = server.url if server else f"sqlite:///{home}/mlflow.db"
        client = Reader(uri).client
        for told in (["a success", "b failure"], ["b failure", "c failure"]):  # the second report has another episode
            tracking = Tracker(home, "team", "brave-owl", uri=uri, interval_s=0.1)
            for _ in range(2):  # a stage that is run again
                tracking.whole.traces([episode(name, name.partition(" ")[2]) for name in told])
            ids = tracking.whole.ids(60)
            assert tracking.close(60) and tracking.rejected() == []
        namesake = Tracker(home, "team", "brave-owl", params={"steps": 9}, uri=uri, interval_s=0.1)
        namesake.whole.traces([episode("c failure", "failure")])  # of the same name, with other settings
        other = namesake.whole.ids(60)
        assert namesake.close(60) and namesake.rejected() == []
        assert ids is not None and other is not None and other[1] != ids[1]
        experiment, run = ids
        (of_other,) = client.search_traces(locations=[experiment], run_id=other[1])
        assert of_other.info.tags["symposium.episode"] == "c failure"
        client.delete_traces(experiment, trace_ids=[of_other.info.trace_id])
        traces = client.search_traces(locations=[experiment], run_id=run)
        assert sorted(trace.info.tags["symposium.episode"] for trace in traces) == ["b failure", "c failure"]
        failed = client.search_traces(locations=[experiment], filter_string="feedback.verdict = 'failure'")
        assert len(failed) == 2
        assert client.search_traces(locations=[experiment], filter_string="feedback.verdict = 'success'") == []
        root, *actions = failed[0].data.spans
        assert (root.name, root.parent_id) == ("selected seed 0: p0", None)
        assert [(span.name, span.inputs, span.outputs, span.attributes["tokens"]) for span in actions] == [
            ("turn 1: helper", "write helper", "def helper", 5), ("turn 1: main", "write main", "def main", 5),
        ]  # fmt: skip
        assert {span.parent_id for span in actions} == {root.span_id}
        given = {feedback.name: feedback.feedback.value for feedback in failed[0].info.assessments}
        assert given == {"verdict": "failure", "reward": 1.5, "reward: tests": 1.0, "tests_passed": 0.5}
        assert "MLFLOW_TRACKING_URI" not in os.environ
    finally:
        if server:
            server.stop()


def test_two_machines_that_report_one_run_at_once_leave_each_episode_once(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(home.rename(home.with_name("mlflow")), monkeypatch)
    try:
        key, together = RunKey("team", "brave-owl", "digest", "", "brave-owl"), threading.Barrier(2)

        def report(number: int) -> None:
            (own := tmp_path / f"machine-{number}").mkdir()  # no lock is shared
            recorder = Recorder(server.url, own)
            recorder.ids(key)
            together.wait(60)
            recorder.traces(key, [episode(name, "failure") for name in ("a", "b", "c")])

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(report, range(2)))
        client = Reader(server.url).client
        experiment = client.get_experiment_by_name("team")
        traces = client.search_traces(locations=[experiment.experiment_id], include_spans=False)
        assert sorted(trace.info.tags["symposium.episode"] for trace in traces) == ["a", "b", "c"]
    finally:
        server.stop()
