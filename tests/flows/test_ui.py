"""``make ui`` on a small real DVC project: servers, deployment, a person with a browser, cancelling, crashing, the end.

All tests share one ``make ui``; the usual ports are taken, which everything has to stand.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import mlflow
import psutil
import pytest
from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import ArtifactFilter, FlowRunFilter, LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling

from pipeline_lib.storage import read_json
from tasks.services.processes import family
from tests.flows.browser import browser
from tests.flows.project import call, environment
from tests.flows.toy_project import started, still_there, wait_for, words
from tests.sampling import sampled

pytestmark = [pytest.mark.service]


@dataclass
class Ui:
    """A project with a running ``make ui``."""

    project: Path
    process: subprocess.Popen[str]
    prefect: str
    mlflow: str

    @contextlib.contextmanager
    def client(self) -> Iterator[SyncPrefectClient]:
        with temporary_settings({PREFECT_API_URL: f"{self.prefect}/api"}), get_client(sync_client=True) as client:
            yield client

    def start(self, name: str, **train: Any) -> FlowRun:
        """Start the short form with other settings of ``train``."""
        settings = {f"train.{key}": value for key, value in train.items()}
        return self.submit("experiment", name, settings=settings)

    def submit(self, form: str, name: str, **parameters: Any) -> FlowRun:
        """Start a deployment as its form does."""
        with self.client() as client:
            deployment = client.read_deployment_by_name(f"{form}/{form}")
            return client.create_flow_run_from_deployment(deployment.id, parameters=parameters, name=name)

    def logged(self, run: FlowRun) -> str:
        """Return what the run's page shows as its log."""
        with self.client() as client:
            logs = client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run.id])), limit=200)
        return "\n".join(log.message for log in logs)

    def artifacts(self, run: FlowRun) -> dict[str, Any]:
        """Return the artifacts of a run and its tasks, by key."""
        with self.client() as client:
            found = client.read_artifacts(artifact_filter=ArtifactFilter(flow_run_id={"any_": [run.id]}))
        return {str(artifact.key): artifact.data for artifact in found}

    def state(self, run: FlowRun) -> str:
        with self.client() as client:
            state = client.read_flow_run(run.id).state
        return state.name if state else ""

    def wait(self, run: FlowRun, *states: str) -> None:
        wait_for(lambda: self.state(run) in states, f"{run.name} {states}; it is {self.state(run)}\n{self.log()}")

    def tracked(self, run: str) -> set[str]:
        """Return the states that MLflow shows of a run and its parts."""
        client = mlflow.MlflowClient(self.mlflow)
        experiments = [found.experiment_id for found in client.search_experiments()]
        return {found.info.status for found in client.search_runs(experiments, f"tags.`symposium.run` = '{run}'")}

    def log(self) -> str:
        return (self.project / ".symposium/logs/deployments.log").read_text()[-3000:]


@contextlib.contextmanager
def make_ui(project: Path) -> Iterator[Ui]:
    with contextlib.ExitStack() as stack:
        for port in (4200, 5000):
            taken = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # somebody else has it: just as good
                taken.bind(("127.0.0.1", port))
                taken.listen()
        process = stack.enter_context(started(project, "-m", "flows.serve"))
        wait_for(lambda: "Ctrl-C stops all" in words(project) or process.poll() is not None, words(project), 600)
        assert process.poll() is None, words(project)
        urls = read_json(project / ".symposium/servers.json")
        ui = Ui(project, process, urls["prefect"]["url"], urls["mlflow"]["url"])
        wait_for(lambda: "prefect deployment run" in ui.log(), ui.log(), 300)
        yield ui


@pytest.fixture(scope="module")
def ui(toy_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    project = Path(shutil.copytree(toy_template, tmp_path_factory.mktemp("ui") / "toy", symlinks=True))
    with make_ui(project) as ui:
        yield ui


def test_taken_ports_are_named_and_others_used(ui: Ui) -> None:
    assert "port 4200 is in use, so prefect uses another one" in words(ui.project)
    assert "port 5000 is in use, so mlflow uses another one" in words(ui.project)
    assert ui.prefect in words(ui.project)


def test_the_page_for_playing_runs_beside_them_and_says_what_is_missing(ui: Ui) -> None:
    ((address, key),) = re.findall(r"^Play +(http://127\.0\.0\.1:\d+)/#(\S+)$", words(ui.project), re.M)
    assert "Watch a team play" in httpx.get(address).text
    offered = httpx.get(f"{address}/offers", headers={"Authorization": f"Bearer {key}"}, timeout=60)
    assert "no checkpoint was selected yet" in offered.text, "tests/use/test_page.py sees it in a browser"


def test_it_stays_below_a_gigabyte(ui: Ui) -> None:
    megabytes = sum(process.memory_full_info().pss for process in family(ui.process.pid)) / 2**20
    assert megabytes < 1000


def test_a_second_one_says_that_it_runs_already(ui: Ui) -> None:
    said = call(ui.project, "python", "-m", "flows.serve", status=1)
    assert f"error: already running: Prefect {ui.prefect}, MLflow {ui.mlflow}" in said


@pytest.mark.drawn("the UI", "tasks")
def test_a_run_from_the_form_becomes_an_experiment_and_is_seen_in_both_uis(ui: Ui, tmp_path: Path) -> None:
    before = call(ui.project, "git", "status", "--porcelain")
    with browser(tmp_path) as window:
        window.open(f"{ui.prefect}/v2/deployments")
        window.see("experiment")
        window.click("//a[normalize-space()='experiment' and contains(@href, 'deployments/deployment')]")
        window.click("//button[normalize-space()='Run']")
        window.click("//*[@role='menuitem' and contains(normalize-space(), 'Custom run')]")
        window.see("Parameters", "train.checkpoint_every", "peak learning rate (AdamW)")
        window.fill(window.find("//label[normalize-space()='Run Name']/following::input[1]"), "brave-owl")
        window.fill(window.field("what the run is for; shown beside its name"), "a higher rate")
        window.fill(window.field("updates per run"), "6")
        window.click("//label[starts-with(normalize-space(), 'overrides')]/following::button[.='Add item'][1]")
        override = "//label[starts-with(normalize-space(), 'overrides')]/following::textarea[1]"
        window.wait(lambda: window.find(override), "a field for an override")
        window.fill(window.find(override), "learning_rate=5e-4")
        window.click("//button[normalize-space()='Submit']")
        window.see("'learning_rate=5e-4' does not match '^(environment|problems|policy")
        window.fill(window.find(override), "train.learning_rate=5e-4")
        window.wait(lambda: not window.shows("//li[@data-sonner-toast]"), "the refusal goes, which covers the button")
        window.picture("prefect-form")
        window.submit("//button[normalize-space()='Submit']")
        window.see("brave-owl")
        with ui.client() as client:
            run = client.read_flow_runs(flow_run_filter=FlowRunFilter(name={"any_": ["brave-owl"]}))[0]
        assert run.parameters["settings"] == {"train.steps": 6}
        assert run.parameters["overrides"] == ["train.learning_rate=5e-4"]
        ui.wait(run, "Completed", "Failed", "Crashed")
        assert ui.state(run) == "Completed", ui.log()
        window.open(f"{ui.prefect}/v2/runs/flow-run/{run.id}")
        window.see("brave-owl", "Completed")
        window.picture("prefect-run")
        window.click("//*[@role='tab' and normalize-space()='Task Runs']")
        window.see("prepare", "report")
        window.click("//*[@role='tab' and normalize-space()='Subflow Runs']")
        window.see("brave-owl train seed 0", "brave-owl train seed 1")
        assert ui.artifacts(run)["experiment-progress"] == 100
        assert "Unable to connect" not in window.text()

        window.open(ui.mlflow)
        window.see("coding")
        client = mlflow.MlflowClient(ui.mlflow)
        experiment = client.get_experiment_by_name("coding")
        assert experiment is not None
        base = f"{ui.mlflow}/#/experiments/{experiment.experiment_id}"
        suffix = "?workflowType=machine_learning"
        window.open(f"{base}/models{suffix}")
        window.click("//*[@data-component-id='mlflow.assistant.chat_panel.close']")  # it covers what is looked for
        window.open(f"{base}/runs{suffix}")
        window.see("brave-owl")
        window.click(
            "//a[normalize-space()='brave-owl']/ancestor::*[@role='gridcell']//button"
        )  # show the runs below it
        window.see("brave-owl train seed 0", "brave-owl train seed 1")
        window.picture("mlflow-runs")
        runs = {r.info.run_name: r for r in client.search_runs([experiment.experiment_id])}
        window.open(f"{base}/runs/{runs['brave-owl train seed 0'].info.run_id}/model-metrics{suffix}")
        window.see("reward", "loss")
        window.wait(lambda: window.find("//*[name()='svg' and contains(@class, 'main-svg')]"), "the curves")
        window.picture("mlflow-curves")
        window.open(f"{base}/models{suffix}")
        window.see("seed-0-step-6", "seed-1-step-6", "validation (#", "0.5")
        window.picture("mlflow-checkpoints")
    parent = runs["brave-owl"]
    assert parent.info.status == "FINISHED"
    saved = call(ui.project, "git", "rev-parse", parent.data.tags["dvc.exp_rev"]).strip()
    assert parent.data.tags["dvc.exp_name"] == "brave-owl" and parent.data.tags["note"] == "a higher rate"
    settings = call(ui.project, "git", "show", f"{saved}:params.yaml")
    assert "steps: 6 # few" in settings and "learning_rate: 0.0005" in settings
    assert "brave-owl" in call(ui.project, "dvc", "exp", "show", "--csv")
    assert call(ui.project, "git", "status", "--porcelain") == before
    assert not (ui.project / "models").exists()


def test_no_field_of_the_forms_is_called_as_a_class(ui: Ui) -> None:
    with ui.client() as client:
        for form in ("experiment", "experiment-all-settings", "study"):
            schema = client.read_deployment_by_name(f"{form}/{form}").parameter_openapi_schema
            assert not re.findall(r'"title": "\w*[a-z][A-Z]\w*"', json.dumps(schema))


@pytest.mark.parametrize(
    ("form", "parameters", "reason"),
    [
        ("experiment", {"settings": {"train.steps": -1}}, "train.steps.*-1 is less than the minimum of 1"),
        ("experiment", {"environment": "chess"}, "chess.* is not one of"),
        ("experiment", {"overrides": ["steps=3"]}, "steps=3.* does not match"),
        ("experiment-all-settings", {"params": {"train": {"steps": "many"}}}, "many.* is not of type"),
        ("study", {"study": "none"}, "none.* is not one of"),
    ],
)
def test_a_wrong_value_is_refused_before_a_run_is_made(
    ui: Ui, form: str, parameters: dict[str, Any], reason: str
) -> None:
    with pytest.raises(PrefectHTTPStatusError, match=reason):
        ui.submit(form, "wrong", **parameters)


FIGHTING = {"steps": 4, "checkpoint_every": 9}
CONTRADICTIONS: list[tuple[str, dict[str, Any], str]] = [
    (
        "experiment",
        {"settings": {f"train.{key}": value for key, value in FIGHTING.items()}},
        "checkpoint_every (9) is longer than the run (4 steps)",
    ),
    ("experiment-all-settings", {"params": {"train": FIGHTING}}, "train: checkpoint_every (9) is longer"),
    ("experiment", {"overrides": ["train.lerning_rate=1e-3"]}, "train.lerning_rate: unknown key"),
]


@pytest.mark.parametrize("case", sampled(CONTRADICTIONS, 1, "contradictions", "tasks"))
def test_settings_that_contradict_each_other_end_the_run_with_a_sentence(
    ui: Ui, case: tuple[str, dict[str, Any], str]
) -> None:
    form, parameters, sentence = case
    run = ui.submit(form, "fighting", **parameters)
    ui.wait(run, "Failed", "Completed", "Crashed")
    assert ui.state(run) == "Failed"
    assert sentence in ui.logged(run)
    assert "Traceback" not in ui.logged(run)


@pytest.mark.drawn("the UI", "tasks")
def test_cancelling_stops_the_training_and_the_same_run_continues(ui: Ui) -> None:
    home = ui.project / ".symposium"
    begun = set(home.rglob("began-at-*"))
    (home / "hold").write_text("2")  # before it starts: eight steps take less time than a look
    run = ui.start("calm-fox", steps=8)
    wait_for(
        lambda: any((path.parent / "2.bin").exists() for path in set(home.rglob("began-at-*")) - begun),
        "the first checkpoint\n" + ui.log(),
    )
    with ui.client() as client:
        client.set_flow_run_state(run.id, Cancelling())
    ui.wait(run, "Cancelled", "Crashed")
    assert ui.state(run) == "Cancelled"
    wait_for(lambda: not [line for line in still_there(ui.project) if "stages.learn" in line], "training ended", 20)
    wait_for(lambda: not list((home / "workspaces").glob("calm-fox*")), "workspace removed", 20)
    wait_for(lambda: ui.tracked("calm-fox") == {"KILLED"}, lambda: f"MLflow says so: {ui.tracked('calm-fox')}", 60)
    (home / "hold").unlink()
    again = ui.start("calm-fox", steps=8)
    ui.wait(again, "Completed", "Failed", "Crashed")
    assert ui.state(again) == "Completed", ui.log()
    assert ui.tracked("calm-fox") == {"FINISHED"}
    assert {path.name for path in set(home.rglob("began-at-*")) - begun} > {"began-at-0"}, "it began anew"


@pytest.mark.drawn("the UI", "tasks")
def test_a_killed_run_is_shown_as_crashed_within_a_minute(ui: Ui) -> None:
    home = ui.project / ".symposium"
    (home / "hold").touch()
    variables = {**environment(), "SYMPOSIUM_HOME": str(home), "PREFECT_API_URL": f"{ui.prefect}/api"}
    process = subprocess.Popen(
        [sys.executable, "-m", "stages.learn", "7"],
        cwd=ui.project,
        env={**variables, "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30", "SYMPOSIUM_RUN": "killed"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )

    def mine() -> FlowRun | None:
        with ui.client() as client:
            return next(iter(client.read_flow_runs(flow_run_filter=FlowRunFilter(tags={"all_": ["run:killed"]}))), None)

    def beats() -> int:
        with ui.client() as client:
            found = client.request("POST", "/events/filter", json={"filter": {"event": {"name": [BEAT]}}, "limit": 50})
        resources = [event["resource"]["prefect.resource.id"] for event in found.json()["events"]]
        run = mine()
        return resources.count(f"prefect.flow-run.{run.id}") if run else 0

    try:
        wait_for(beats, "the first heartbeat")
        wait_for(lambda: ui.tracked("killed") == {"RUNNING"}, "the run in MLflow")  # of its parent at least
    finally:
        process.kill()
        process.wait()
        (home / "hold").unlink()
    run = mine()
    assert run is not None
    wait_for(lambda: ui.tracked("killed") == {"KILLED"}, lambda: f"MLflow says so: {ui.tracked('killed')}", 60)
    wait_for(lambda: ui.state(run) == "Crashed", f"crashed; it is {ui.state(run)}", 60)


BEAT = "prefect.flow-run.heartbeat"


@pytest.mark.drawn("the UI", "tasks")
def test_ctrl_c_leaves_no_process_even_with_a_run_going(ui: Ui) -> None:
    (ui.project / ".symposium" / "hold").touch()
    ui.start("interrupted", steps=10)
    wait_for(lambda: [line for line in still_there(ui.project) if "stages.learn" in line], "a training\n" + ui.log())
    members = family(ui.process.pid)
    os.kill(ui.process.pid, signal.SIGINT)
    assert ui.process.wait(120) == 0
    assert "all ended" in words(ui.project)
    assert "Traceback" not in words(ui.project)
    assert not [process for process in members if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert not still_there(ui.project)
    assert not (ui.project / ".symposium/servers.json").exists()
