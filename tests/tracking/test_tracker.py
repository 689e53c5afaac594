"""The tracker on a real SQLite database."""

import dataclasses
import math
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.tracking import Checkpoint, Contender, Tracker
from pipeline_lib.tracking.connection import as_default
from pipeline_lib.tracking.operations import RunKey
from pipeline_lib.tracking.recorder import Recorder
from pipeline_lib.tracking.tracker import flat
from tests.tracking.conftest import Reader

A, B = "a" * 64, "b" * 64


def tracker(home: Path, run: str = "brave-owl") -> Tracker:
    return Tracker(
        home, "team", run, tags={"git.commit": "1f0c"}, params={"train": {"loss": {"kl": 0.0}, "betas": (0.9,)}}
    )


def test_a_stage_and_seed_is_a_run_under_one_parent(home: Path, reader: Reader) -> None:
    tracking = tracker(home)
    for seed in (0, 1):
        run = tracking.start_run("train", seed, A)
        run.log(1, {"reward": 0.5 + seed})
        run.log(2, {"reward": 0.75 + seed})
        run.finish()
    assert tracking.close(60)
    runs = reader.runs()
    assert set(runs) == {"brave-owl", "train seed 0", "train seed 1"}
    parent = runs["brave-owl"]
    assert parent.data.params == {"train.loss.kl": "0.0", "train.betas": "[0.9]"}
    assert parent.data.tags["git.commit"] == "1f0c"
    for seed in (0, 1):
        assert runs[f"train seed {seed}"].data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert reader.curve(f"train seed {seed}", "reward") == [(1, 0.5 + seed), (2, 0.75 + seed)]
    assert set(reader.statuses().values()) == {"FINISHED"}


def test_a_resumed_run_joins_and_logs_no_step_twice(home: Path, reader: Reader) -> None:
    first = tracker(home)
    run = first.start_run("train", 0, A)
    for step in range(5):
        run.log(step, {"reward": step})
    first.close(60)  # killed here: the run was not finished
    second = tracker(home)
    run = second.start_run("train", 0, A)
    for step in range(8):  # the whole history again, as a resumed training has it
        run.log(step, {"reward": step, "loss": -step})
        run.log(step, {"reward": step})
    run.finish()
    second.close(60)
    assert reader.curve("train seed 0", "reward") == [(step, step) for step in range(8)]
    assert reader.curve("train seed 0", "loss") == [(step, -step) for step in range(8)]


def test_machines_that_train_the_same_at_the_same_moment_double_no_step_and_no_checkpoint(
    home: Path, tmp_path: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = RunKey("team", "brave-owl", A, "train/seed=0", "brave-owl train seed 0")
    one, two = (Recorder(f"sqlite:///{home}/mlflow.db", tmp_path / name) for name in ("one", "two"))  # share no lock
    for who, steps in ((one, (1, 2)), (two, (1, 2, 3)), (one, (3, 4)), (two, (4,))):
        who.metrics(key, [("reward", float(step), 1000 * step + (who is one), step) for step in steps])
    assert reader.curve("train seed 0", "reward") == [(step, step) for step in (1, 2, 3, 4)]
    checkpoint = dataclasses.asdict(Checkpoint("step-4", 4, "a" * 64, "models/x"))
    create = one._client.create_logged_model

    def both(*arguments: Any, **options: Any) -> Any:
        two.checkpoint(key, checkpoint)
        return create(*arguments, **options)

    monkeypatch.setattr(one._client, "create_logged_model", both)
    one.checkpoint(key, checkpoint)
    for who in (two, one):
        who.checkpoint_metrics(key, checkpoint, {"tests_passed": 0.5}, ("validation", "d" * 64), 5000)
    (model,) = reader.client.search_logged_models([one.ids(key)[0]])
    assert [(found.key, found.value) for found in model.metrics or []] == [("tests_passed", 0.5)]


def test_a_request_for_a_run_that_is_sent_again_makes_one_run(
    home: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As MLflow does when a server stands still for longer than it waits for an answer, and then does both."""
    monkeypatch.setattr("pipeline_lib.tracking.runs.is_shared", lambda uri: True)
    monkeypatch.setattr("pipeline_lib.tracking.runs.SETTLE_S", 0.0)
    recorder = Recorder(f"sqlite:///{home}/mlflow.db", home)
    create = recorder._client.create_run

    def twice(*arguments: Any) -> Any:
        return min((create(*arguments) for _ in range(2)), key=lambda run: str(run.info.run_id))

    monkeypatch.setattr(recorder._client, "create_run", twice)
    keys = [RunKey("team", "brave-owl", A, part, f"brave-owl {part}".strip()) for part in ("", "train seed 0")]
    made = {recorder.ids(key)[1] for key in keys}
    assert {run.info.run_id for run in reader.runs().values()} == made


def test_another_identity_is_another_run(home: Path, reader: Reader) -> None:
    tracking = tracker(home)
    for identity in (A, B):
        run = tracking.start_run("train", 0, identity)
        run.log(1, {"reward": 1.0})
        run.finish()
    tracking.close(60)
    client = reader.client
    experiment = client.get_experiment_by_name("team")
    assert experiment is not None
    assert len(client.search_runs([experiment.experiment_id])) == 3


def test_values_that_are_not_finite_are_counted_and_left_out(
    home: Path, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    tracking = tracker(home)
    run = tracking.start_run("train", 0)
    for step, value in enumerate([1.0, math.nan, math.inf, -math.inf, 2.0]):
        run.log(step, {"ratio": value})
    run.finish()
    tracking.close(60)
    assert reader.curve("train seed 0", "ratio") == [(0, 1.0), (4, 2.0)]
    assert reader.runs()["train seed 0"].data.tags["symposium.not_finite.ratio"] == "3"
    assert caplog.text.count("such values are counted and left out") == 1


def checkpoint(step: int = 20, digest: str = A) -> Checkpoint:
    return Checkpoint(f"seed-0-step-{step}", step, digest, f"models/train/0/{step}")


def test_checkpoints_are_pointers_with_metrics_and_one_champion(home: Path, reader: Reader) -> None:
    for _ in range(2):  # the second time nothing is added
        tracking = tracker(home)
        train, sweep = tracking.start_run("train", 0, A), tracking.start_run("sweep", 0)
        for step in (10, 20):
            train.checkpoint(checkpoint(step, str(step) * 32))
            sweep.checkpoint_metrics(
                checkpoint(step, str(step) * 32), {"tests_passed": step / 100}, ("validation", "d" * 64)
            )
        sweep.selected(checkpoint(10, "10" * 32))
        sweep.selected(checkpoint(20, "20" * 32))
        sweep.champion(checkpoint(20, "20" * 32), "coding-pair", contender(weights="20" * 32))
        train.finish()
        sweep.finish()
        tracking.close(60)
    client = reader.client
    experiment = client.get_experiment_by_name("team")
    assert experiment is not None
    ranked = client.search_logged_models(
        [experiment.experiment_id], order_by=[{"field_name": "metrics.tests_passed", "ascending": False}]
    )
    assert [model.name for model in ranked] == ["seed-0-step-20", "seed-0-step-10"]
    best = ranked[0]
    assert best.tags["symposium.digest"] == "20" * 32
    assert best.tags["symposium.uri"] == "models/train/0/20"
    assert best.source_run_id == reader.runs()["train seed 0"].info.run_id
    assert [(m.key, m.value, m.step, m.dataset_name, m.dataset_digest) for m in best.metrics or []] == [
        ("tests_passed", 0.2, 20, "validation", "d" * 36)
    ]
    assert [model.tags.get("symposium.selected") for model in ranked] == ["brave-owl", None]
    version = client.get_model_version_by_alias("coding-pair", "champion")
    assert version.source == f"models:/{best.model_id}"
    assert version.tags["symposium.test.value"] == "0.5"
    assert len(client.search_model_versions("name = 'coding-pair'")) == 1


def contender(run: str = "brave-owl", **changes: Any) -> Contender:
    return dataclasses.replace(Contender("seed-0-step-20", run, "IMPROVED", "", A, "tests_passed", 0.5, A), **changes)


def test_the_champion_moves_to_a_better_team_and_stays_otherwise(home: Path, reader: Reader) -> None:
    for run, weights, value, champion, words in (
        ("first", "1" * 64, 0.5, "first", "is the first champion"),
        ("worse", "2" * 64, 0.4, "first", "0.4000 is not above its 0.5000"),
        ("better", "3" * 64, 0.6, "better", "0.6000, above the 0.5000 of seed-0-step-20 of first"),
    ):
        tracking = tracker(home, run)
        child = tracking.start_run("verdict")
        child.champion(checkpoint(20, weights), "coding-pair", contender(run, value=value, weights=weights))
        decided = child.champion_decision(60)
        assert words in decided
        ids = child.ids(60)
        assert ids is not None
        tracking.close(60)
        version = reader.client.get_model_version_by_alias("coding-pair", "champion")
        assert version.tags["symposium.run"] == champion
        experiment, run_id = ids
        verdict = reader.client.get_run(run_id)
        assert (verdict.data.tags["symposium.champion"], verdict.info.experiment_id) == (decided, experiment)
    assert len(reader.client.search_model_versions("name = 'coding-pair'")) == 2


def test_a_champion_that_was_never_tested_gives_way(home: Path, reader: Reader) -> None:
    tracking = tracker(home)
    child = tracking.start_run("verdict")
    tracking.flush(60)
    reader.client.create_registered_model("coding-pair")
    reader.client.create_model_version("coding-pair", source="s3://somewhere/untested")
    reader.client.set_registered_model_alias("coding-pair", "champion", "1")
    child.champion(checkpoint(), "coding-pair", contender())
    assert "is the first champion" in child.champion_decision(60)
    tracking.close(60)
    assert reader.client.get_model_version_by_alias("coding-pair", "champion").version == 2


def test_while_the_server_is_away_nothing_is_decided(home: Path, reader: Reader) -> None:
    tracking = Tracker(home, "team", "brave-owl", uri="http://127.0.0.1:9")
    child = tracking.start_run("verdict")
    child.champion(checkpoint(), "coding-pair", contender())
    assert child.champion_decision(1) == ""
    tracking.close(1)


def test_artifacts_are_copied_and_weights_are_refused(home: Path, reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "page" / "figures").mkdir(parents=True)
    (tmp_path / "page" / "figures" / "curve.svg").write_text("<svg/>")
    (tmp_path / "report.html").write_text("<html/>")
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "helper.safetensors").touch()
    tracking = tracker(home)
    run = tracking.start_run("report")
    run.artifact(tmp_path / "report.html")
    run.artifact(tmp_path / "page")
    with pytest.raises(ValueError, match=r"helper\.safetensors: weights are not copied"):
        run.artifact(tmp_path / "team")
    with pytest.raises(FileNotFoundError, match="no such artifact"):
        run.artifact(tmp_path / "nothing")
    run.finish()
    tracking.close(60)
    run_id = reader.runs()["report"].info.run_id
    folder = home / "artifacts" / "team" / run_id / "artifacts"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.*")} == {"figures/curve.svg", "report.html"}
    assert str(home) not in reader.runs()["report"].info.artifact_uri, "the project could not be moved"
    assert not list(home.rglob("*.safetensors"))


def test_the_whole_run_shows_what_it_came_to_and_where_its_report_is(home: Path, reader: Reader) -> None:
    for value in (0.5, 0.5, 0.9):  # made again: the newest counts, and nothing is there twice
        tracking = tracker(home)
        tracking.whole.summary({"test/difference": value})
        tracking.whole.describe("**IMPROVED**", "index.html")
        assert tracking.close(60)
    whole = reader.runs()["brave-owl"]
    assert whole.data.metrics == {"test/difference": 0.9}
    assert [value for _, value in reader.curve("brave-owl", "test/difference")] == [0.5, 0.9]
    page = f"#/experiments/{whole.info.experiment_id}/runs/{whole.info.run_id}/artifacts/index.html"
    assert whole.data.tags["mlflow.note.content"].startswith(f"**IMPROVED**\n\n[index.html]({page}?")


def test_a_name_with_other_settings_is_another_run(home: Path, reader: Reader) -> None:
    """MLflow never changes a parameter: one run would show the settings of the first time beside later numbers."""
    for rate in (0.1, 0.2, 0.2):
        assert Tracker(home, "team", "brave-owl", params={"train": {"rate": rate}}).close(60)
    experiment = reader.client.get_experiment_by_name("team")
    assert experiment is not None
    runs = reader.client.search_runs([experiment.experiment_id])
    assert sorted(run.data.params["train.rate"] for run in runs) == ["0.1", "0.2"]


def test_a_cell_is_shown_below_its_study(home: Path, reader: Reader) -> None:
    assert Tracker(home, "team", "cell-a", params={"a": 1}, study="study sizes").close(60)
    study = Tracker(home, "team", "study sizes")
    study.whole.summary({"difference": 0.5})
    assert study.close(60)
    runs = reader.runs()
    assert set(runs) == {"cell-a", "study sizes"}
    assert runs["cell-a"].data.tags["mlflow.parentRunId"] == runs["study sizes"].info.run_id
    assert runs["study sizes"].data.metrics == {"difference": 0.5}


def test_a_stage_has_the_parameters_that_it_depends_on(home: Path, reader: Reader) -> None:
    tracking = tracker(home)
    tracking.start_run("train", 0, A, params={"train": {"steps": 80}}).finish()
    assert tracking.close(60)
    assert reader.runs()["train seed 0"].data.params == {"train.steps": "80"}
    assert reader.runs()["train seed 0"].info.run_name == "brave-owl train seed 0", "in charts, runs are told by name"


def test_data_sets_are_inputs_with_their_digest(home: Path, reader: Reader) -> None:
    for _ in range(2):
        tracking = tracker(home)
        run = tracking.start_run("sweep", 0)
        run.dataset("validation", "c" * 64, {"path": "data/validation.jsonl"}, "validation")
        run.finish()
        tracking.close(60)
    (entry,) = reader.runs()["sweep seed 0"].inputs.dataset_inputs
    assert (entry.dataset.name, entry.dataset.digest) == ("validation", "c" * 36)
    assert entry.dataset.source == '{"path": "data/validation.jsonl"}'


def test_more_parameters_and_values_than_fit_into_one_request(home: Path, reader: Reader) -> None:
    tracking = Tracker(home, "team", "large", params={f"p{number}": number for number in range(250)})
    run = tracking.start_run("train")
    for step in range(300):
        run.log(step, {f"metric {number}/x:y?": float(number) for number in range(10)})
    run.finish()
    tracking.close(60)
    assert len(reader.runs()["large"].data.params) == 250
    assert len(reader.curve("train", "metric 3/x_y_")) == 300


def test_results_whose_names_are_paths_are_recorded(home: Path, reader: Reader) -> None:
    """As those of a study whose levels are folders of models."""
    tracking = tracker(home)
    names = ["/models/one against ../two/p", "../two against a//b/p", "a/./b", "tests/passed"]
    tracking.whole.summary(dict.fromkeys(names, 0.5))
    tracking.close(60)
    (run,) = reader.runs().values()
    kept = {"__models_one against .._two_p", "_.._two against a__b_p", "_a_._b", "tests/passed"}
    assert kept <= set(run.data.metrics)


def test_ids_name_the_run(home: Path, reader: Reader) -> None:
    tracking = tracker(home)
    run = tracking.start_run("train", 0)
    ids = run.ids(60)
    tracking.close(60)
    info = reader.runs()["train seed 0"].info
    assert ids == (info.experiment_id, info.run_id)


def test_the_address_does_not_depend_on_the_working_directory(
    tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").mkdir()
    shutil.copy(empty_database, tmp_path / "home")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        tracking = Tracker(Path("../home"), "team", folder)
        run = tracking.start_run("prepare")
        run.log(0, {"x": 1.0})
        run.finish()
        tracking.close(60)
        assert list((tmp_path / folder).iterdir()) == []
    assert {path.name for path in (tmp_path / "home").iterdir()} >= {"mlflow.db", "lock"}


def test_the_environment_chooses_another_server(
    tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"sqlite:///{shutil.copy(empty_database, tmp_path / 'elsewhere.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    tracking = tracker(tmp_path / "home")
    run = tracking.start_run("prepare")
    run.checkpoint(checkpoint())
    run.finish()
    tracking.close(60)
    assert set(Reader(uri).runs()) == {"brave-owl", "prepare"}
    assert not (tmp_path / "home" / "mlflow.db").exists()
    assert os.environ["MLFLOW_TRACKING_URI"] == uri


def test_tracking_leaves_the_environment_as_it_was(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracking = tracker(home)
    run = tracking.start_run("train")
    run.champion(checkpoint(), "coding-pair", contender())  # MLflow's functions would name this database to children
    run.finish()
    assert tracking.close(60)
    assert not {"MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"} & set(os.environ)


def test_trackers_of_two_threads_leave_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        inside.wait(10)
        with as_default("sqlite:///second.db"):
            done.wait(1)  # the first thread leaves while this one is inside, where both may be

    thread = threading.Thread(target=other)
    thread.start()
    with as_default("sqlite:///first.db"):
        inside.set()
        thread.join(0.5)
        assert os.environ["MLFLOW_TRACKING_URI"] == "sqlite:///first.db"
    done.set()
    thread.join(10)
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_a_name_that_would_break_a_query_is_refused(home: Path) -> None:
    with pytest.raises(ValueError, match="apostrophe"):
        Tracker(home, "team", "it's")


def test_flat_settings() -> None:
    assert flat({"a": {"b": 1, "c": {"d": None}}, "e": [1, 2], "f": {}}) == {
        "a.b": "1",
        "a.c.d": "None",
        "e": "[1, 2]",
        "f": "{}",
    }


def test_a_run_made_again_with_other_weights_has_other_models_and_its_champion_stays_true(
    home: Path, reader: Reader
) -> None:
    """The name of a run is commit and settings: code that is not committed can change the weights behind it."""
    old, new = "d" * 64, "e" * 64

    def made(weights: str, score: float, value: float, problems: str = A) -> str:
        tracking = tracker(home)
        child = tracking.start_run("sweep", 0, weights)
        child.checkpoint_metrics(checkpoint(20, weights), {"tests_passed": score}, ("validation", "d" * 64))
        child.selected(checkpoint(20, weights))
        tested = contender(weights=weights, value=value, problems=problems)
        child.champion(checkpoint(20, weights), "coding-pair", tested)
        decided = child.champion_decision(60)
        tracking.close(60)
        return decided

    def shown() -> dict[str, tuple[list[float], bool]]:
        experiment = reader.client.get_experiment_by_name("team")
        assert experiment is not None
        models = reader.client.search_logged_models([experiment.experiment_id])
        return {
            model.tags["symposium.digest"]: ([m.value for m in model.metrics or []], "symposium.selected" in model.tags)
            for model in models
        }

    def champion() -> tuple[str, str]:
        version = reader.client.get_model_version_by_alias("coding-pair", "champion")
        model = reader.client.get_logged_model(version.source.removeprefix("models:/"))
        assert version.tags["symposium.test.weights"] == model.tags["symposium.digest"], "not the weights tested"
        return model.tags["symposium.digest"], version.tags["symposium.test.value"]

    assert "first champion" in made(old, 0.1, 0.5)
    assert "0.3000 is not above its 0.5000" in made(new, 0.3, 0.3)
    assert shown() == {old: ([0.1], False), new: ([0.3], True)}
    assert champion() == (old, "0.5")
    assert "tested on other problems" in made(new, 0.3, 0.9, "b" * 64)
    assert champion() == (old, "0.5")
    assert "new champion" in made(new, 0.3, 0.6)
    assert champion() == (new, "0.6")
    assert "0.5500 is not above" in made(old, 0.1, 0.55)
    assert shown() == {old: ([0.1], True), new: ([0.3], False)}, "the first weights are back, and no third model"
    assert "is the champion already: tests_passed 0.2000" in made(new, 0.3, 0.2)
    assert champion() == (new, "0.2"), "the champion's figure is the newest"


def test_other_values_of_the_same_weights_are_measured_anew(home: Path, reader: Reader) -> None:
    for value in (0.1, 0.3, 0.3):
        tracking = tracker(home)
        child = tracking.start_run("sweep", 0, str(value))
        child.checkpoint_metrics(checkpoint(), {"tests_passed": value}, ("validation", "d" * 64))
        tracking.close(60)
    experiment = reader.client.get_experiment_by_name("team")
    assert experiment is not None
    (model,) = reader.client.search_logged_models([experiment.experiment_id])
    newest = max(model.metrics or [], key=lambda metric: metric.timestamp)
    assert (newest.value, len(model.metrics or [])) in {(0.3, 1), (0.3, 2)}
