"""The whole chain for real, small: from nothing to a verdict, and what happens when something is changed or killed."""

import contextlib
import json
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import psutil
import pytest
import yaml

import symposium
from benchmarks.runs import numbers
from flows.experiment import outcome
from pipeline_lib.environments.coding.program import build_program
from pipeline_lib.problems.splits import load_split
from pipeline_lib.settings import load_params
from pipeline_lib.storage import folder_digest, read_jsonl
from tasks.identity.stages import RUNTIME, STAGES, IdentityError
from tasks.services.stage_proxy import ITSELF
from tasks.use import exporting
from tasks.use.choosing import ChoiceError, choose_problem, choose_team, offers
from tasks.use.page import EpisodeRequest, play_episode
from tests.flows.project import SMALL, call, change_settings, environment, make_project
from tests.human_eval import HUMAN_EVAL
from tests.test_docs_commands import ALL, PAGES

CHAMPION = "symposium.champion"

pytestmark = [pytest.mark.service, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which the chain has run once."""
    project = make_project(tmp_path_factory.mktemp("chain"))
    watch = {"PYTHONPATH": str(Path(__file__).parent / "tracing"), "TRACE_TO": str(project.parent)}
    said = call(project, "python", "-m", "flows.experiment", **watch)
    assert ITSELF not in said, "a chain of sixteen stages would take half as long again"
    return project


def ran(text: str) -> set[str]:
    """Return the stages that ``dvc repro`` ran, without the one that runs every time to see what has changed."""
    return set(re.findall(r"Running stage '([^']+)'", text)) - {"identity"}


def test_it_ends_in_a_verdict_and_a_report(finished: Path):
    verdict = json.loads((finished / "results/verdict.json").read_text())
    assert "\n".join(verdict["lines"]) in outcome(finished, 1.0)
    assert f"The report: {finished / 'report/index.html'}" in outcome(finished, 1.0)
    assert verdict["verdict"] in {"IMPROVED", "WORSE", "EQUIVALENT", "INCONCLUSIVE"}
    assert verdict["plan"]["followed"], verdict["plan"]
    assert (verdict["looks"]["number"], verdict["looks"]["count"]) == (1, 1)
    assert "only look at the test split" in (finished / "report/index.html").read_text()
    assert call(finished, "git", "status", "--porcelain", "--untracked-files=no") == "", "counting dirties no tree"
    protocols = ["untrained sequential pipeline", "untrained one-round discussion"]
    assert list(verdict["comparisons"]) == ["base", "last", *protocols]
    sizes = {name: found["family_size"] for name, found in verdict["comparisons"].items()}
    assert sizes == {"base": 2, "last": 2, **dict.fromkeys(protocols, 0)}, "who cannot read is outside the family"
    requests = {name: verdict["teams"][name]["details"]["requests"] for name in ("base", *protocols)}
    assert list(requests.values()) == [2, 2, 4], "every round is paid for"
    assert all(verdict["teams"][name]["episodes"] == verdict["teams"]["base"]["episodes"] for name in protocols)
    numbers = json.loads((finished / "results/metrics.json").read_text())
    names = "verdict metric base selected difference low high p p_for_looks looks updates seconds"
    assert list(numbers) == names.split(), "what people compare, and no internals"
    for name in ("base", "selected"):
        assert numbers[name] == pytest.approx(verdict["teams"][name]["metrics"]["tests_passed"], abs=1e-6)
    assert (numbers["metric"], numbers["updates"]) == ("tests_passed", 12) and numbers["seconds"] > 0
    page = (finished / "report/index.html").read_text()
    assert verdict["verdict"] in page
    assert 'href="episodes.html"' in page and (finished / "report/episodes/index.js").exists()
    assert "A team for the task coding: the embedded model" in page
    assert "problems of the kind generated (64 train, 8 validation, 12 test)" in page
    assert "against untrained one-round discussion" in page and "does not read it" in page
    assert "http://" not in re.sub(r"http://www\.w3\.org/\S+|xmlns\S+", "", page)
    assert [path.name for path in sorted((finished / "models/trained/team-0").iterdir())] == [
        f"step-{step:05d}" for step in (0, 3, 6, 9, 12)
    ]


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_the_team_is_exported_with_a_card_from_its_verdict_and_loads_without_this_project(
    finished: Path, tmp_path: Path, ready: dict[str, str]
):
    export = ("python", "-m", "flows.export")
    said = call(finished, *export, str(tmp_path / "team"), **ready)
    assert f"{tmp_path / 'team/helper'}: full weights" in said and "it/s" not in said
    card = (tmp_path / "team/README.md").read_text()
    _, head, text = card.split("---\n", 2)
    assert yaml.safe_load(head)["library_name"] == "transformers"
    verdict = json.loads((finished / "results/verdict.json").read_text())
    assert all(line in text for line in verdict["lines"])
    assert all(found["sentence"] in text for found in verdict["comparisons"].values())
    assert "| compared with | verdict |\n|---|---|\n| base |" in text, "a table needs its header"
    assert "The test split was looked at once." in text
    seed, best = max(
        json.loads((finished / "results/selection.json").read_text())["team"]["seeds"].items(),
        key=lambda item: item[1]["mean"],
    )
    assert f"training seed {seed} after {best['step']} updates" in text
    program = (tmp_path / "team/load.py").read_text()
    assert program.strip() in text
    loads = [sys.executable, "-I", str(tmp_path / "team/load.py")]
    done = subprocess.run(loads, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("--- helper\n") and "\n--- main\n" in done.stdout, "the whole team, from any folder"
    problems = {split: load_split(finished / "data/problems", split) for split in ("validation", "test")}
    shown = {split: {text for p in found for text in p.observations.values()} for split, found in problems.items()}
    assert any(repr(text) in program for text in shown["validation"])
    assert not any(repr(text) in program or text.strip() in card for text in shown["test"] - shown["validation"])
    tests = [json.loads(line) for line in (finished / f"results/test/team-selected-{seed}.jsonl").open()]
    mean = statistics.fmean(row["metrics"]["tests_passed"] for row in tests if "tests_passed" in row["metrics"])
    assert f"Their own result in the test: {100 * mean:.1f} %" in text
    assert "exists already" in call(finished, *export, str(tmp_path / "team"), status=2, **ready)
    assert "full weights" in call(finished, *export, str(tmp_path / "other"), "--seed", "0", "--step", "0", **ready)
    assert "**This checkpoint was not tested.**" in (tmp_path / "other/README.md").read_text()


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_an_export_that_is_interrupted_leaves_nothing(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished)

    def interrupted(*arguments: object, **values: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(exporting, "render", interrupted)  # of the card, after all weights
    with pytest.raises(KeyboardInterrupt):
        exporting.export(load_params(), tmp_path / "team", 0, 0, "trained")
    assert not list(tmp_path.iterdir())


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_the_numbers_that_the_documentation_keeps_of_a_run_are_those_of_its_results(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished)
    kept = numbers(load_params(), "symposium run")
    verdict = json.loads((finished / "results/verdict.json").read_text())
    base = verdict["comparisons"]["base"]
    assert kept["verdict"] == verdict["lines"] and kept["in_words"][0] == base["sentence"]
    assert [one["against"] for one in kept["comparisons"]] == list(verdict["comparisons"])
    assert kept["comparisons"][0]["difference"] == pytest.approx(base["difference"]["estimate"], rel=1e-3, abs=1e-9)
    played = [json.loads(line) for line in (finished / "results/test/team-base.jsonl").open()]
    rewards = [row["reward"] for row in played if row["reward"] is not None]
    assert kept["metrics"]["base"]["reward"] == pytest.approx(statistics.fmean(rewards), rel=1e-3)
    assert [row["step"] for row in kept["learning"]["team-0"]] == list(range(1, 13))
    settings = (finished / "params.yaml").read_bytes()
    change_settings(finished, {"train": {"learning_rate": 0.5}})
    try:
        with pytest.raises(IdentityError, match="is stale"):
            numbers(load_params(), "symposium run")
    finally:
        (finished / "params.yaml").write_bytes(settings)


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_a_notebook_opens_the_teams_of_a_project(finished: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SYMPOSIUM_HOME", raising=False)
    chosen = json.loads((finished / "results/selection.json").read_text())["team"]
    selected, base = symposium.load_team(finished), symposium.load_team(str(finished), team="base")
    assert (selected.seed, selected.step) == (chosen["champion_seed"], chosen["champion_step"])
    swept = read_jsonl(finished / f"results/sweep/team-0/step-{selected.step:05d}.jsonl")
    evaluated = symposium.evaluate(selected)
    assert [one.reward for one in evaluated.episodes] == [row["reward"] for row in swept], "the chain's own episodes"
    assert symposium.evaluate(base, samples=1).means["reward"] < evaluated.means["reward"]
    one = symposium.load_team(finished, team="team-0/step-00003")
    assert (one.seed, one.step) == (0, 3)
    if json.loads((finished / "results/verdict.json").read_text())["verdict"] == "IMPROVED":
        assert symposium.load_team(finished, team="champion").checkpoint == selected.checkpoint
    else:
        with pytest.raises(ValueError, match="has no champion yet"):
            symposium.load_team(finished, team="champion")
    with pytest.raises(ValueError, match="accepted: selected, champion, base"):
        symposium.load_team(finished, team="team-0/step-00004")
    with pytest.raises(ValueError, match="is a project of the chain"):
        symposium.train(one.experiment)


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_a_team_and_its_base_play_a_problem(finished: Path, ready: dict[str, str]):
    found = json.loads(call(finished, "python", "-m", "flows.play", "--beside", "base", "--json", **ready))
    manifest = json.loads((finished / "data/problems/manifest.json").read_text())["splits"]
    chosen = json.loads((finished / "results/selection.json").read_text())["team"]["seeds"]["0"]["step"]
    assert [episode["team"] for episode in found] == [
        f"the team of training seed 0 after {chosen} updates",
        "the base, untrained",
    ]
    for episode in found:
        assert episode["problem"] == manifest["validation"]["ids"][0]
        turn = episode["turns"][0]
        assert [said["agent"] for said in turn["said"]] == ["helper", "main"]
        assert sum(turn["terms"].values()) == pytest.approx(turn["reward"]) == pytest.approx(episode["reward"])
        assert turn["details"]["status"] == "missing" or len(turn["exhibit"]["checks"]) == 6


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_a_team_is_served_to_the_standard_client_until_it_is_interrupted(finished: Path, ready: dict[str, str]):
    import openai

    command = [sys.executable, "-m", "flows.endpoint", "--port", "0", "--team", "base"]
    variables = {**environment(), **ready, "SYMPOSIUM_API_KEY": "k"}
    serving = subprocess.Popen(command, cwd=finished, env=variables, stdout=subprocess.PIPE, text=True)
    try:
        assert serving.stdout is not None
        first = serving.stdout.readline()
        assert first.startswith("the base, untrained at http://127.0.0.1:") and "models: team, helper, main" in first
        client = openai.OpenAI(base_url=first.split(" at ")[1].split(";")[0], api_key="k", max_retries=0)
        row = next(iter(read_jsonl(finished / "data/problems/train.jsonl")))

        def ask(model: str, text: str) -> str:
            message = {"role": "user", "content": text}
            said = client.chat.completions.create(model=model, messages=[message], seed=1, temperature=0)  # type: ignore[list-item]
            return said.choices[0].message.content or ""

        texts = [ask(role, row["observations"][role]) for role in ("helper", "main")]
        assert [ask(role, row["observations"][role].rstrip()) for role in ("helper", "main")] == texts, "as it is read"
        assert ask("team", json.dumps(row)) == build_program(tuple(texts), row["entry_point"]).code
        serving.send_signal(signal.SIGINT)
        assert serving.wait(120) == 0
    finally:
        serving.kill()
        serving.wait()


def test_teams_and_problems_are_chosen_by_name_and_no_test_problem_is_played(
    finished: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(finished)
    monkeypatch.setenv("SYMPOSIUM_HOME", str(finished / ".symposium"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    params = load_params()
    splits = json.loads((finished / "data/problems/manifest.json").read_text())["splits"]
    rows = {split: list(read_jsonl(finished / f"data/problems/{split}.jsonl")) for split in ("train", "test")}
    assert choose_problem(params, splits["train"]["ids"][1]).id == splits["train"]["ids"][1]
    assert choose_problem(params, json.dumps(rows["train"][2])).id == rows["train"][2]["id"]
    for words in (splits["test"]["ids"][0], json.dumps({**rows["test"][0], "id": "renamed"})):
        with pytest.raises(ChoiceError, match="is a problem of the test split"):
            choose_problem(params, words)
    for words in ("no-such-problem", '{"id": 1}', "two\nlines"):
        with pytest.raises(ChoiceError):
            choose_problem(params, words)
    third = choose_team(params, "models/trained/team-0/step-00003")
    assert third.title == "the team of training seed 0 after 3 updates"
    assert choose_team(params, "base").folder is None
    for words in ("single", "models/base", "nobody"):
        with pytest.raises(ChoiceError):
            choose_team(params, words)
    with pytest.raises(ChoiceError, match="is a problem of the test split"):
        play_episode(EpisodeRequest(problem=splits["test"]["ids"][0]), print)
    found = offers(params)
    assert found["problems"] == splits["validation"]["ids"] and not found["missing"]
    assert {"selected", "base", "champion", "models/trained/team-0/step-00003"} <= {
        value for value, _ in found["teams"]
    }
    heard: list[dict[str, Any]] = []
    play_episode(EpisodeRequest(beside="base", seed=3), heard.append)
    assert [told["problem"] for told in heard if told["kind"] == "team"] == [splits["validation"]["ids"][0]] * 2
    assert [told["kind"] for told in heard].count("ended") == 2
    if json.loads((finished / "results/verdict.json").read_text())["verdict"] == "IMPROVED":
        assert choose_team(params, "champion").folder == choose_team(params, "selected").folder
    else:
        with pytest.raises(ChoiceError, match="has no champion yet"):
            choose_team(params, "champion")


def traced(finished: Path) -> Iterator[tuple[str, str, str]]:
    """Yield stage, event and name of all that the stages of the finished chain read and imported."""
    for path in finished.parent.glob("trace-*.txt"):
        for line in path.read_text().splitlines():
            stage, event, name = line.split(" ", 2)
            yield stage.partition("@")[0], event, name


#: What is imported by modules of `RUNTIME`: the check of the memory, the progress of sampling, the record of the run.
BY_RUNTIME = (
    *(f"pipeline_lib.{name}" for name in ("memory", "processor", "sampling_progress")),
    *(f"pipeline_lib.policies.{name}" for name in ("agents", "base", "model_config", "policy")),
    *(f"tasks.experiment.{name}" for name in ("result_text",)),
)


def test_every_module_that_a_stage_imports_is_part_of_its_identity(finished: Path):
    """Seen from outside, by Python's own audit events, in a chain that really ran."""
    seen = {(stage, name) for stage, event, name in traced(finished) if event == "import" and stage in STAGES}
    assert {stage for stage, _ in seen} == set(STAGES) - {"train_single", "sweep_single"}
    for stage, module in sorted(seen):
        name = f"{stage}@0" if STAGES[stage].arm else stage
        identity = json.loads((finished / f"results/identity/{name}.json").read_text())
        code = {**identity["code"], **identity["named"]["environment"]}
        if re.fullmatch(
            r"pipeline_lib\.(environments\.\w+(\.(settings|metrics|task))?|environment_api\.metrics)", module
        ):
            continue  # what settings are checked with: settings count by their values
        runtime = module in BY_RUNTIME or any(module == name or module.startswith(f"{name}.") for name in RUNTIME)
        package = any(name.startswith(f"{module}.") for name in (*code, *RUNTIME))  # of one that is entered below only
        assert module in code or runtime or package, f"{stage} imports {module}, which is no part of its identity"
    trained = {"pipeline_lib.training.loss", "pipeline_lib.training.trainer"}
    assert {module for stage, module in seen if stage == "train"} >= trained
    for stage in {stage for stage, _ in seen}:  # it runs as the main program, which is no import
        name = f"{stage}@0" if STAGES[stage].arm else stage
        assert STAGES[stage].flow in json.loads((finished / f"results/identity/{name}.json").read_text())["code"]


def test_every_file_that_a_stage_reads_is_one_of_its_dependencies(finished: Path):
    entries = yaml.safe_load((finished / "dvc.yaml").read_text())["stages"]
    free = (
        "params.yaml",
        "conf",
        "dvc.yaml",
        "dvc.lock",
        ".git",
        ".dvc",
        ".symposium",
        "pipeline_lib",
        "tasks",
        "flows",
        "pyproject.toml",
    )
    read = {(stage, name) for stage, event, name in traced(finished) if event == "open" and stage in STAGES}
    for stage, name in sorted(read):
        path = Path(name)
        if not path.is_relative_to(finished) or path.relative_to(finished).parts[0] in free:
            continue
        if not path.exists():
            continue  # a name below an open folder that is removed; what a stage was given is there
        entry = entries[stage]
        known = [*entry["deps"], *entry["outs"], *entry.get("metrics", ())]
        known += ["results/identity", "results/made"]  # of the stages above: whether they ran as they would run now
        known = [str(item).replace("${item.seed}", "0") for item in known]
        inside = path.relative_to(finished)
        # The folder that an output is in is opened to flush its names to the disk.
        known_folder = any(Path(str(item)).is_relative_to(inside) for item in entry["outs"])
        # What a stage writes lies beside its output under a temporary name first.
        fine = known_folder or any(inside.is_relative_to(item) or _temporary(inside, item) for item in known)
        assert fine, f"{stage} reads {inside}"
    assert ("train", str(finished / "models/base/base.json")) in read


def _temporary(path: Path, output: str) -> bool:
    return any(part.startswith(f".{Path(output).name}.") for part in path.parts)


def test_a_second_time_nothing_runs(finished: Path):
    assert not ran(call(finished, "dvc", "repro"))


def test_a_checkpoints_bytes_lie_on_disk_once(finished: Path):
    weights = list((finished / "models/trained").rglob("*.safetensors"))
    assert weights
    for path in weights:
        assert path.stat().st_nlink >= 3, f"{path}: scratch, output and DVC's cache should be one file"
    assert not list((finished / ".symposium/mlflow").rglob("*.safetensors"))


def test_mlflow_holds_every_metric_every_checkpoint_and_the_champion(finished: Path):
    client = mlflow.MlflowClient(f"sqlite:///{finished}/.symposium/mlflow/mlflow.db")
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()], max_results=100)
    train = next(run for run in runs if run.info.run_name.endswith(" train team seed 0"))
    history = client.get_metric_history(train.info.run_id, "reward/mean")
    assert [point.step for point in history] == list(range(1, 13))
    assert all(run.info.status == "FINISHED" for run in runs), {r.info.run_name: r.info.status for r in runs}
    models = client.search_logged_models([train.info.experiment_id])
    assert {"team-0-step-0", "team-0-step-12"} <= {model.name for model in models}
    swept = [metric for model in models for metric in model.metrics or [] if metric.key.startswith("validation/")]
    assert swept
    selection = json.loads((finished / "results/selection.json").read_text())["team"]
    chosen = f"team-{selection['champion_seed']}-step-{selection['champion_step']}"
    assert [model.name for model in models if model.tags.get("symposium.selected")] == [chosen]
    whole = next(run for run in runs if run.data.tags["symposium.part"] == "-")
    judged = next(run for run in runs if run.data.tags.get("stage") == "verdict")
    result = json.loads((finished / "results/verdict.json").read_text())
    assert whole.data.tags["verdict"] == result["verdict"]
    assert whole.data.metrics["test/difference"] == pytest.approx(result["difference"], abs=1e-6)
    curves = {"1 reward/team seed 0": "reward/mean", f"2 {result['metric']}/team seed 0": f"metrics/{result['metric']}"}
    for curve, metric in curves.items():  # on the whole run, first in the order of names
        shown, of_stage = (
            client.get_metric_history(run.info.run_id, name) for run, name in ((whole, curve), (train, metric))
        )
        assert [(p.step, p.value) for p in shown] == [(p.step, p.value) for p in of_stage] != []
    assert sorted(whole.data.metrics)[0] == "1 reward/team seed 0"
    assert whole.data.metrics["run/seconds"] > 0
    assert whole.data.tags["mlflow.note.content"].startswith("\n\n".join(result["lines"]))
    assert list((finished / ".symposium/mlflow/artifacts").rglob("artifacts/index.html"))
    told = json.loads((finished / "report/traces.json").read_text())
    traces = client.search_traces(locations=[train.info.experiment_id], run_id=whole.info.run_id)
    assert sorted(trace.info.tags["symposium.episode"] for trace in traces) == sorted(one["id"] for one in told) != []
    (base, *_) = [one for one in told if one["team"] == "base"]
    assert [action["agent"] for action in base["actions"]] == ["helper", "main"] and base["actions"][0]["tokens"] > 0
    assert train.data.params["train.steps"] == "12" and "verdict.margin" not in train.data.params
    registered = client.search_registered_models("name = 'symposium-coding'")
    if result["verdict"] == "IMPROVED":
        assert f"{chosen} of {judged.data.tags['symposium.run']} is the first champion" in judged.data.tags[CHAMPION]
        version = client.get_model_version_by_alias("symposium-coding", "champion")
        assert float(version.tags["symposium.test.value"]) == result["teams"]["selected"]["metrics"][result["metric"]]
    else:
        assert judged.data.tags[CHAMPION].startswith("there is still no champion: the verdict is ")
        assert not registered


@pytest.fixture(scope="module")
def experiment(finished: Path, tmp_path_factory: pytest.TempPathFactory, ready: dict[str, str]) -> tuple[Path, str]:
    """A copy in which more episodes are tested, as the experiment brave-owl of DVC, and what DVC printed."""
    project = copy(finished, tmp_path_factory.mktemp("experiment"))
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")
    call(project, *git, "add", "-A")
    call(project, *git, "commit", "-qm", "a run")
    said = call(project, "dvc", "exp", "run", "-n", "brave-owl", "-S", "evaluate.test.samples=3", **ready)
    return project, said


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_an_evaluation_setting_does_not_train_again(
    experiment: tuple[Path, str], tmp_path: Path, ready: dict[str, str]
):
    project = copy(experiment[0], tmp_path)
    done = ran(experiment[1])
    assert {"preregister", "test", "verdict", "report"} <= done
    assert not done & {"prepare", "warm_start", "audit", "train@0"}
    told = "the plan was changed after look 1 at this test split: test_samples from 2 to 3"
    verdict = json.loads((project / "results/verdict.json").read_text())
    assert verdict["plan"] == {**verdict["plan"], "followed": False, "deviations": [], "changed": [told]}
    assert verdict["looks"]["count"] == 2 and "look 2 of 2" in verdict["lines"][2]
    assert told[1:] in str(verdict["caveats"]) and told[1:] in (project / "report/index.html").read_text()
    assert "\n".join(verdict["lines"]) in outcome(project, 1.0)
    shutil.rmtree(project / ".symposium")
    change_settings(project, {"verdict": {"margin": 0.15}})
    call(project, "python", "-m", "flows.verdict", **ready)
    told = json.loads((project / "results/verdict.json").read_text())
    assert told["plan"]["deviations"] == ["margin: planned 0.05, done 0.15"]
    assert told["looks"]["count"] == 3
    looks = ("python", "-m", "flows.looks")
    assert "3 looks at problems of this test split; 2 plans" in call(project, *looks, **ready)
    shutil.rmtree(project / "data/problems")  # as in a new clone
    assert "3 looks at any test split, since no" in call(project, *looks, **ready)


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_changed_code_and_settings_train_again_and_changed_back_the_earlier_result_is_found(
    finished: Path, tmp_path: Path, ready: dict[str, str]
):
    """Problems are not made again, and training does not resume from what the old ones made."""
    project = copy(finished, tmp_path)
    kept = (project / "params.yaml").read_text()
    change_settings(project, {"train": {"learning_rate": 2e-3}})
    before = folder_digest(project / "models/trained/team-0")
    loss = project / "pipeline_lib/training/loss.py"
    text = loss.read_text()
    assert "-(correction * objective).sum()" in text
    loss.write_text(text.replace("-(correction * objective).sum()", "-(correction * objective).sum() * 0.0"))
    said = call(project, "python", "-m", "flows.identity", "train", **ready)
    assert "code: pipeline_lib.training.loss: changed" in said and "train.learning_rate: 0.0" in said
    # The stage identity is left out, so DVC sees no change; whoever forces the stage is told.
    said = call(project, "dvc", "repro", "-f", "--single-item", "train@0", status=255, **ready)
    assert "would be stored under a wrong identity" in said and "code: pipeline_lib.training.loss: changed" in said
    assert ran(call(project, "dvc", "repro", "train@0", **ready)) == {"train@0"}
    assert folder_digest(project / "models/trained/team-0") != before
    (project / "params.yaml").write_text(kept)
    loss.write_text(text.replace('"""', '"""In other words. ', 1) + "\n# and a comment\n")
    said = call(project, "dvc", "repro", "train@0", **ready)
    assert not ran(said) and "Stage 'train@0' is cached" in said
    assert folder_digest(project / "models/trained/team-0") == before


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_a_verdict_on_inputs_that_are_stale_or_were_altered_is_refused(
    finished: Path, tmp_path: Path, ready: dict[str, str]
):
    """Whoever asks DVC for one stage alone gets it only on what its other stages made under the present settings."""
    project = copy(finished, tmp_path)
    kept = (project / "params.yaml").read_text()
    change_settings(project, {"train": {"learning_rate": 0.5}})
    said = call(project, "dvc", "repro", "-f", "-s", "verdict", status=255, **ready)
    assert "stage verdict would use inputs that are not up to date" in said
    assert "train@0 is stale" in said and "Traceback" not in said
    (project / "params.yaml").write_text(kept)
    episodes = project / "results/test/team-base.jsonl"
    text = episodes.read_text()
    episodes.unlink()
    episodes.write_text(text.replace('"tests_passed": 0.0', '"tests_passed": 1.0').replace("0.5", "0.6"))
    assert episodes.read_text() != text
    said = call(project, "dvc", "repro", "-s", "verdict", status=255, **ready)
    assert "results/test has changed since test wrote it" in said
    episodes.unlink()
    episodes.write_text(text)
    assert ITSELF not in call(project, "dvc", "repro", "-f", "-s", "verdict", **ready)


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_forced_training_trains(finished: Path, tmp_path: Path, ready: dict[str, str]):
    project = copy(finished, tmp_path)
    before = folder_digest(project / "models/trained/team-0")
    scratch = {path: path.stat().st_mtime_ns for path in (project / ".symposium/scratch").rglob("checkpoint.json")}
    assert scratch
    call(project, "dvc", "repro", "-f", "--single-item", "train@0", **ready)
    after = {path: path.stat().st_mtime_ns for path in (project / ".symposium/scratch").rglob("checkpoint.json")}
    assert scratch.keys() == after.keys() and not scratch.items() & after.items()
    assert folder_digest(project / "models/trained/team-0") == before


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_a_changed_constant_makes_stale_what_runs_it_and_a_comment_nothing(finished: Path, tmp_path: Path):
    """To DVC; that it is exactly the stages that run it: tests/tasks/test_staleness.py."""
    project = copy(finished, tmp_path)

    def stale(*changes: tuple[str, str]) -> set[str]:
        for name, line in changes:
            (project / name).write_text((project / name).read_text() + f"\n{line}\n")
        call(project, "dvc", "repro", "-q", "--single-item", "identity")
        return set(json.loads(call(project, "dvc", "status", "--json"))) - {"identity"}

    verdicts = "pipeline_lib/evaluation/clusters.py"
    comments = [(name, "# a comment") for name in (verdicts, "pipeline_lib/sandbox/inside/zygote.py")]
    unused = [(name, "_FURTHER = 1") for name in ("tests/flows/test_chain.py", "pipeline_lib/tracking/recorder.py")]
    assert not stale(*comments, *unused)
    judged = stale((verdicts, "_FURTHER = 1"))
    assert "verdict" in judged and not judged & {"audit", "train@0", "sweep@0", "test"}


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_one_more_checkpoint_costs_one_evaluation(finished: Path, tmp_path: Path, ready: dict[str, str]):
    project = copy(finished, tmp_path)
    change_settings(project, {"train": {"steps": 15}})
    printed = call(project, "dvc", "repro", "sweep@0", **ready)
    assert ITSELF not in printed
    assert len(re.findall(r"Task run 'team 0 step \d+' - Finished in state Cached", printed)) == 5
    assert re.findall(r"Task run 'team 0 step (\d+)' - Finished in state Completed", printed) == ["15"]


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_killed_at_random_steps_it_continues_and_ends_with_the_same_bytes(
    finished: Path, tmp_path: Path, ready: dict[str, str]
):
    """``kill -9`` of everything, again and again: the same command continues, and the checkpoints are the same."""
    project = copy(finished, tmp_path)
    forget(project, "train@0")
    scratch, last, trained = project / ".symposium/scratch", 12, project / "models/trained/team-0"
    before = 0
    drawn = random.Random(1)
    for step in (drawn.randint(1, 3), drawn.randint(5, 9)):  # before and after the first checkpoint that is written
        running = subprocess.Popen(
            ["dvc", "repro", "train@0"],
            cwd=project,
            env=environment() | ready,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while steps_done(scratch) < max(step, before + 1):
            assert running.poll() is None, "it ended before it was killed"
            time.sleep(0.01)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cwd() == str(project):  # DVC, the stage, and the fork that does its work
                    process.kill()
        assert running.wait() == -signal.SIGKILL
        before = steps_done(scratch)
        assert step <= before < last, "training was not interrupted"
        assert not trained.exists()
    kept = {path: path.stat().st_mtime_ns for path in scratch.rglob("checkpoint.json")}
    assert len(kept) > 1, "there is nothing to continue from"
    call(project, "dvc", "repro", "train@0", **ready)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "it began anew"
    assert folder_digest(trained) == folder_digest(finished / "models/trained/team-0")


def steps_done(scratch: Path) -> int:
    """Return how many updates the training has behind it."""
    # Not below the folders of checkpoints, which come and go.
    return max((path.read_text().count("\n") for path in scratch.glob("train/*/metrics.jsonl")), default=0)


DOCUMENTED = (
    "dvc exp show --only-changed --drop '.*/'",
    "dvc metrics diff HEAD brave-owl",
    "symposium identity",
    "symposium identity train --compare brave-owl",
    "symposium plan --difference 0.02 0.05 0.1",
)
"""Commands of README and docs that are cheap enough to be run on a finished project."""

IN_HELP = ("python -m flows.identity train --seed 0", "symposium play --json")
"""Such commands that only ``--help`` names."""


@pytest.mark.drawn("after a chain", "tasks", count=4)
def test_experiments_metrics_plots_and_a_remote_work_on_a_real_run(
    experiment: tuple[Path, str], tmp_path: Path, ready: dict[str, str]
):
    project = experiment[0]
    blocks, pages = {shlex.join(words) for _, words in ALL}, " ".join(page.read_text() for page in PAGES)
    for command in DOCUMENTED:
        assert command in blocks or f"`{command}`" in " ".join(pages.split()), "it is not in README or docs"
    for command in (*DOCUMENTED, *IN_HELP):
        said = call(project, *shlex.split(command), **ready)
        assert "Traceback" not in said and "DVC failed to load" not in said, said
    shown = call(project, "dvc", "exp", "show", "--only-changed", "--drop", ".*/", "--csv")
    columns = shown.splitlines()[0].split(",")
    assert len(columns) < 20 and "evaluate.test.samples" in columns, columns
    assert not [name for name in columns if "/" in name], "digests of files"
    assert "brave-owl" in shown
    said = call(project, "python", "-m", "flows.identity", "test", "--compare", "HEAD", "brave-owl", **ready)
    assert said.splitlines()[:2] == ["test: HEAD -> brave-owl", "  evaluate.test.samples: 2 -> 3"]
    assert "difference" in call(project, "dvc", "metrics", "diff", "HEAD", "brave-owl", "--all")
    call(project, "dvc", "plots", "diff", "HEAD", "brave-owl")
    assert "learning" in (project / "dvc_plots/index.html").read_text()
    call(project, "dvc", "remote", "add", "-d", "local", str(tmp_path / "remote"))
    call(project, "dvc", "push")
    expected = folder_digest(project / "models")
    for folder in (".dvc/cache", "models", "data", "report", "results"):
        shutil.rmtree(project / folder)
    call(project, "dvc", "pull")
    assert folder_digest(project / "models") == expected
    assert json.loads(call(project, "dvc", "status", "--json")) == {"identity": ["always changed"]}


STUDY: dict[str, Any] = {
    "question": "Does a larger learning rate teach more?",
    "changes": {"train.steps": 3, "evaluate.baselines": []},
    "factors": {"rate": {"usual": {}, "high": {"train.learning_rate": 0.003}}},
    "against": {"rate": "usual"},
    "seeds": [0, 1, 2],
}


def write_study(project: Path, study: dict[str, Any]) -> None:
    path = project / "conf/studies/rates.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(study, sort_keys=False))


@pytest.mark.drawn("whole chains", "pipeline_lib")
def test_a_study_runs_each_cell_once_and_compares_them(finished: Path, tmp_path: Path, ready: dict[str, str]):
    """What the project has made already, from the problems to the base's episodes, is not made again."""
    project = copy(finished, tmp_path)
    write_study(project, STUDY)
    said = call(project, "python", "-m", "flows.study", "rates", **ready)
    assert "unchanged since its last run" not in said, "a cell without an experiment is not done"
    experiments = call(project, "git", "for-each-ref", "--format=%(refname)", "refs/exps/").split()
    assert sorted(ref.rpartition("/")[2] for ref in experiments) == ["rates-high", "rates-usual"]
    result = json.loads((project / "studies/rates/study.json").read_text())
    (contrast,) = result["contrasts"]
    assert contrast["sentence"] in said and contrast["cells"] == [["high"], ["usual"]]
    assert "when none of its results was kept here, and kept" in result["plan"]
    assert "Looks at problems of this test split: 3, of which 1 before that" in result["plan"]
    assert all(len(cell["by_seed"]) == 3 for cell in result["cells"].values())
    tracked = mlflow.MlflowClient(f"sqlite:///{project}/.symposium/mlflow/mlflow.db")
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

    again = call(project, "python", "-m", "flows.study", "rates", **ready)
    assert again.count("unchanged since its last run") == 2 and contrast["sentence"] in again


@pytest.mark.exhaustive
def test_humaneval_goes_through_the_same_chain(tmp_path: Path):
    """The tiny model solves nearly none of it, which the audit may refuse; with the reason recorded it is scored."""
    small = {
        **SMALL,
        "problems": "humaneval-here",
        "policy": {"context": 2048, "warm_start": {"steps": 60, "batch": 16}},
        "audit": {"problems": 2, "group_size": 2, "override": "the tiny model cannot solve these"},
        "train": {"steps": 2, "checkpoint_every": 1, "problems_per_step": 4, "group_size": 2},
        "evaluate": {"validation": {"samples": 1}, "test": {"samples": 1}, "pass_k": [1]},
    }
    (tmp_path / "conf/problems").mkdir(parents=True)
    (tmp_path / "conf/problems/humaneval-here.yaml").write_text(f"kind: humaneval\nsource: {HUMAN_EVAL}\n")
    project = make_project(tmp_path, small)
    call(project, "python", "-m", "flows.experiment")
    verdict = json.loads((project / "results/verdict.json").read_text())
    assert verdict["teams"]["selected"]["metrics"]["tests_passed"] < 0.1
    counted = json.loads((project / "data/problems/manifest.json").read_text())["splits"]
    assert sum(split["count"] for split in counted.values()) == 164


def forget(project: Path, stage: str) -> None:
    """Make a training stage one that never ran: no output, no scratch, and nothing of it in DVC's memory."""
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    for output in lock["stages"].pop(stage)["outs"]:
        path = project / output["path"]
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))
    shutil.rmtree(project / ".dvc/cache/runs")
    shutil.rmtree(project / ".symposium/scratch")


def copy(project: Path, folder: Path) -> Path:
    """Copy a project with everything it made; hard links become files of their own."""
    target = folder / "project"
    shutil.copytree(project, target, symlinks=True, ignore=shutil.ignore_patterns("*.sock", "start.lock"))
    return target
