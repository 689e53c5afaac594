"""Somebody else's environment, in a package of its own outside of the project: from problems to verdict and page."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.audit.examiner import ScriptedPlay
from pipeline_lib.environment_api.registry import UnknownEnvironmentError, find, names, task_class
from pipeline_lib.settings import SettingsError
from pipeline_lib.settings.compose import validate_params
from tasks.identity.stages import identity_of
from tests.flows.project import SMALL, call, lay_tracking, make_project

PACKAGE = Path(__file__).parent / "third"

SETTINGS: dict[str, Any] = {
    **{section: values for section, values in SMALL.items() if section != "seeds"},
    "environment": "halves",  # a preset, see below
    "problems": {"sizes": {"train": 64, "validation": 10, "test": 12}},
    "policy": {
        "hidden_size": 32, "mlp_size": 64, "vocabulary": 280, "context": 64, "warm_start": {"steps": 60, "batch": 16},
    },
    "rollouts": {"max_new_tokens": 1},
    "train": {"steps": 12, "checkpoint_every": 6, "problems_per_step": 16, "group_size": 8, "learning_rate": 5e-3},
    "evaluate": {
        "baselines": [], "pass_k": [1, 2], "validation": {"samples": 2}, "test": {"samples": 2},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the project into which pip has installed the package."""
    source, target = (tmp_path_factory.mktemp(name) for name in ("source", "installed"))
    shutil.copytree(PACKAGE, source, dirs_exist_ok=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True)
    shutil.rmtree(source)
    return target


@pytest.fixture
def known(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same, with the package importable here."""
    monkeypatch.syspath_prepend(str(installed))
    task_class.cache_clear()
    yield installed
    task_class.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "matching_halves"]:
        del sys.modules[name]


def params_of(**environment: Any) -> Any:
    return validate_params({"environment": environment, "problems": {"sizes": {"train": 40}}}, Path("params.yaml"))


def test_an_installed_package_is_found_by_its_entry_point_and_by_its_import_path(known: Path):
    assert names()[-1] == "halves" and {"coding", "philosophers"} <= set(names()[:-1])
    assert find("halves").primary == find("matching_halves.task:HalvesTask").primary == "match"
    params = params_of(kind="halves", turns=2)
    assert (params.environment.kind, params.environment.turns, params.environment.match) == ("halves", 2, 1.0)
    assert params.problems.kind == "words" and params.problems.sizes.train == 40
    assert params.evaluate.metric == "match" and [guard.metric for guard in params.evaluate.guards] == ["letters"]
    assert params_of(kind="matching_halves.task").problems == params.problems
    with pytest.raises(UnknownEnvironmentError, match="contains: none"):
        find("matching_halves.game")


@pytest.mark.parametrize(
    ("environment", "parts"),
    [
        ({"kind": "halves", "trns": 2}, ["environment.trns", "unknown key", "kind, match, turns", "'turns'"]),
        ({"kind": "halves", "turns": 9}, ["environment.turns", "got 9", "less than or equal to 4"]),
        (
            {"kind": "halvs"},
            ["environment.kind", "no environment 'halvs'", "modules, pettingzoo, philosophers", "halves"],
        ),
    ],
)
def test_its_own_settings_are_checked_in_words(known: Path, environment: dict[str, Any], parts: list[str]):
    with pytest.raises(SettingsError) as caught:
        params_of(**environment)
    for part in ["params.yaml", *parts]:
        assert part in str(caught.value)


def test_its_whole_source_is_part_of_every_identity(known: Path, tmp_path: Path, monkeypatch: Any):
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / ".symposium"))
    params = params_of(kind="halves")

    def named(stage: str) -> dict[str, str]:
        return identity_of(stage, params.model_copy(update={"seeds": params.seeds}))["named"]["environment"]

    stages = ("prepare", "warm_start", "audit", "test", "verdict", "report")
    before = {stage: named(stage) for stage in stages}
    assert len({json.dumps(found, sort_keys=True) for found in before.values()}) == 1, "the same for every stage"
    for file in ("game.py", "examiner.py", "measures.py", "figures.py", "task.py", "settings.py"):
        path = known / "matching_halves" / file
        text = path.read_text()
        path.write_text(text + "\nANOTHER = 1\n")
        stage = next(iter(before))
        assert named(stage) != before.pop(stage), f"{file} is no part of the identity of {stage}"
        path.write_text(text)
    assert not before


def test_scripted_teams_play_all_turns(known: Path):
    task = find("halves")
    environment = task.make(params_of(kind="halves", turns=3).environment, lambda: None)
    (word, other, *_) = task.make_problems(params_of(kind="halves").problems)["train"]
    played = ScriptedPlay(environment, [word, other], task.audit().teams, None)
    assert played.bounds == (0.0, pytest.approx(3.6))
    rungs = {rung.name: rung.reward for rung in played.rungs("match")}
    assert rungs["always x"] == pytest.approx(1.2), "a match ends the episode"
    assert rungs["apart"] == pytest.approx(3 * 0.2), "three times two letters that differ"


@pytest.mark.service
@pytest.mark.drawn("whole chains", "pipeline_lib")
def test_the_whole_chain_ends_in_a_verdict_and_a_page(
    installed: Path, tmp_path: Path, server: dict[str, str], empty_database: Path
):
    """One preset is all that the project gets; what coding has by default gives way to the environment's own."""
    project = make_project(tmp_path / "project", SETTINGS)
    lay_tracking(project, empty_database)
    # DVC plans the default's seeds, the preset has one; what DVC plans for the others writes empty files.
    preset = "kind: halves\nform: 0.2\nwith: {seeds: {train: [0], single_agent: []}}\n"
    (project / "conf/environment/halves.yaml").write_text(preset)
    told = call(project, "python", "-m", "flows.experiment", PYTHONPATH=str(installed), **server)
    verdict = json.loads((project / "results/verdict.json").read_text())
    assert list(json.loads((project / "results/selection.json").read_text())["team"]["seeds"]) == ["0"]
    assert verdict["metric"] == "match" and verdict["verdict"] in told
    assert "Halves that match: " in verdict["lines"][0]
    base, selected = (verdict["teams"][team]["metrics"]["match"] for team in ("base", "selected"))
    assert selected > base + 0.2, "two agents that may write any letter agree on one"
    assert json.loads((project / "results/audit.json").read_text())["status"] != "FAIL"
    page = (project / "report/index.html").read_text()
    for text in ("halves that match", "pairs of single letters", "The letter agreed on", "always x", "pass@2"):
        assert text in page, text
    plots = project / "report/plots"
    assert {path.stem for path in (plots / "terms").iterdir()} == {"match", "form"}
    assert (plots / "learning.csv").read_text().startswith("step,reward,primary")
    assert (plots / "letters.csv").read_text().startswith("letter,share")
    shown = json.loads(call(project, "dvc", "plots", "show", "--json", PYTHONPATH=str(installed)).split("\n")[-2])
    call(project, "dvc", "repro", "sweep@1", PYTHONPATH=str(installed), **server)
    assert (project / "models/trained/team-1/left-out.txt").exists()
    assert shown.get("errors", []) == [] and len(shown["data"]) >= 4
