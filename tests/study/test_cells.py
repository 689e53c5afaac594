"""What the cells of a study leave is used again only while it is whole and the same would come out."""

import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import studies
from flows.study_cells import same_commit
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.looks import Look
from pipeline_lib.settings import Params, SettingsError
from pipeline_lib.settings.study import StudySettings
from pipeline_lib.storage import read_json, write_json, write_jsonl
from tasks.chain.graph import ChainError
from tasks.chain.study import (
    alone,
    cell_folder,
    check_same_evaluation,
    fix_plan,
    keep,
    kept,
    known_cells,
    plan_history,
    read_study,
    refuse_equal,
    write_page,
)
from tasks.chain.workspaces import git, slug
from tasks.experiment import episode_files
from tasks.experiment.arms import PLAN_FILE, RESULTS, TEAM
from tasks.looks.records import LOOKS, record
from tests.needs import ROOT

SEEDS = (0, 1)
STUDY = StudySettings(
    question="Which?",
    factors={"rate": {"low": {}, "high": {"train.learning_rate": 0.01}}},
    against={"rate": "low"},
    seeds=(0, 1, 2),
)

WRITTEN = [{"written": "2026-11-02 10:00:00 UTC", "known": [], "plan": {}}]
CELLS = {
    name: Params.model_validate({"train": {"learning_rate": rate}}) for name, rate in (("low", 0.001), ("high", 0.01))
}
OTHER = Params.model_validate({"train": {"learning_rate": 0.1}})


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "home"))
    place = tmp_path / "workspace"
    names = [RESULTS / "verdict.json", PLAN_FILE, RESULTS / "test/team-base.jsonl", RESULTS / "test/reward_bounds.json"]
    names += [RESULTS / f"test/team-selected-{seed}.jsonl" for seed in SEEDS]
    names += [RESULTS / f"train/team-{seed}.jsonl" for seed in SEEDS]
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text('{"x": 1}\n')
    return place


def test_a_kept_cell_is_used_for_the_same_identity_and_seeds_only(workspace: Path) -> None:
    folder = cell_folder("study", "a, b")
    assert not kept(folder, "id", SEEDS) and known_cells("study", CELLS) == []
    keep(workspace, "study", "a, b", "id", SEEDS, "study-a-b", OTHER)
    assert kept(folder, "id", SEEDS) and known_cells("study", CELLS) == ["a, b"]
    assert not kept(folder, "other", SEEDS) and not kept(folder, "id", (0,)) and not kept(folder, "id", (0, 1, 2))


@pytest.mark.parametrize("harm", ["changed", "removed", "no list"])
def test_a_damaged_cell_is_run_again(workspace: Path, harm: str) -> None:
    keep(workspace, "study", "a", "id", SEEDS, "study-a", OTHER)
    folder = cell_folder("study", "a")
    file = folder / ("kept.json" if harm == "no list" else "test/team-selected-1.jsonl")
    file.unlink() if harm == "removed" else file.write_text("{}\n")
    assert not kept(folder, "id", SEEDS)
    assert known_cells("study", CELLS) == [folder.name if harm == "no list" else "a"], (
        "its results were known all the same"
    )


def test_a_study_that_is_running_is_not_started_a_second_time(workspace: Path) -> None:
    code = "import time; from tasks.chain.study import alone\nwith alone('rates'): print(flush=True); time.sleep(100)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "\n"
        with alone("another"), pytest.raises(ChainError, match="the study rates is running already"), alone("rates"):
            pass
        other.kill()
    with alone("rates"):
        pass


def test_a_cell_that_lacks_a_file_keeps_nothing(workspace: Path) -> None:
    keep(workspace, "study", "a", "old", SEEDS, "study-a", OTHER)
    (workspace / RESULTS / "train/team-1.jsonl").unlink()
    with pytest.raises(FileNotFoundError):
        keep(workspace, "study", "a", "new", SEEDS, "study-a-2", OTHER)
    assert kept(cell_folder("study", "a"), "old", SEEDS)


def test_cells_of_one_slug_do_not_share_a_folder() -> None:
    assert slug("A b") == slug("a, b") and cell_folder("s", "A b") != cell_folder("s", "a, b")


@pytest.mark.parametrize(
    ("changes", "section"),
    [
        ({"sandbox": {"limits": {"cpu_s": 9.0}}}, "sandbox"),
        ({"evaluate": {"metric": "reward"}, "environment": {"turns": 2}}, "environment"),
        ({"sandbox": {"slots": 3}}, ""),
        ({"environment": {"turns": 2}}, ""),
    ],
)
def test_cells_must_be_judged_alike_by_sandbox_and_reward_too(changes: dict[str, Any], section: str) -> None:
    def params(**sections: Any) -> Params:
        content = Params().model_dump(mode="json")
        for name, values in sections.items():
            for key, value in values.items():
                content[name][key] = {**content[name][key], **value} if isinstance(value, dict) else value
        return Params.model_validate(content)

    shared = {"evaluate": changes["evaluate"]} if "evaluate" in changes else {}
    cells = {"one": params(**shared), "two": params(**changes)}
    if not section:
        check_same_evaluation(cells)
        return
    with pytest.raises(SettingsError, match=f"differ in {section}"):
        check_same_evaluation(cells)


def test_a_study_whose_cells_are_judged_differently_is_refused_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    study = STUDY.model_dump(mode="json")
    for key, value, refused in (("train.learning_rate", 0.003, ""), ("evaluate.test.samples", 9, "differ in evaluate")):
        study["factors"] = {"rate": {"low": {}, "high": {key: value}}}
        (tmp_path / "conf/studies/mine.yaml").write_text(yaml.safe_dump(study))
        with pytest.raises(SettingsError, match=refused) if refused else nullcontext():
            assert set(read_study("mine")[2]) == {"low", "high"}
            (tmp_path / "conf/studies/mine.yaml").rename(tmp_path / "mine.yml")
            assert read_study("mine.yml")[0] == "mine"
    with pytest.raises(SettingsError, match=r"no such study; studies there: .*conf/studies.*mine"):
        read_study("other")


def test_cells_with_the_same_settings_are_refused() -> None:
    slower = Params.model_validate({"sandbox": {"kind": "process", "slots": 3}})  # the same results, on another machine
    with pytest.raises(SettingsError, match="'one' and 'two' have the same settings"):
        refuse_equal({"one": Params(), "two": slower})


def test_cells_evaluated_on_different_problems_get_no_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "home"))
    for cell, test in (("low", "old"), ("high", "new")):
        write_json(cell_folder("rates", cell) / "plan.json", {"validation_content": "same", "test_content": test})
    with pytest.raises(ChainError, match="'low' and 'high' were evaluated on different problems"):
        write_page("rates", STUDY, {"low": Params(), "high": Params()}, WRITTEN, tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_the_page_shows_what_the_comparisons_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other metrics of the tested teams, and the monitors that fired: in numbers, and on the page."""
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "home"))
    for cell, extra in (("low", {}), ("high", {"mutants_noticed": 0.75})):
        place = cell_folder("rates", cell)
        write_json(place / "plan.json", {"validation_content": "same", "test_content": "same"})
        write_json(place / "kept.json", {"run": f"rates-{cell}"})
        write_json(place / "test/reward_bounds.json", {"low": 0.0, "high": 4.0})
        for name in ("base.jsonl", *(episode_files.tested_file(TEAM, "selected", seed).name for seed in STUDY.seeds)):
            rows = [
                EpisodeRecord(
                    *(f"p{i}", f"f{i}", 0, 1.0 + i, 1, {}),
                    {"tests_passed": 0.5, "all_passed": float(i == 0), "cooperation": 1.0, **extra},
                    1,
                ).to_json()
                for i in range(4)
            ]
            write_jsonl(place / "test" / name, rows)
        for seed in STUDY.seeds:
            hacked = {"monitors/reward_hacking": float(cell == "high")}
            row = {
                "step": 1.0,
                "metrics/tests_passed": 0.5,
                "actions/tokens": 9,
                "executions/count": 4,
                "time/step_s": 1,
            }
            write_jsonl(place / f"train/{seed}.jsonl", [row | hacked])
    page = write_page("rates", STUDY, {"low": Params(), "high": Params()}, WRITTEN, tmp_path / "rates")
    cells = read_json(page.parent / "study.json")["cells"]
    assert cells["low"]["further"] == {"reward": 2.5, "all_passed": 0.25, "cooperation": 1.0}
    assert cells["high"]["further"]["mutants_noticed"] == 0.75
    assert cells["low"]["alarms"] == [] and len(cells["high"]["alarms"]) == 3
    text = page.read_text()
    assert "Other metrics" in text and "helper&#39;s mutants noticed" in text and "75.0 %" in text
    assert "Seed 2, reward hacking: fired first at update 1" in text and "none fired" in text
    monkeypatch.setattr(studies, "KEPT", tmp_path / "kept")
    studies.keep(page.parent)
    low = read_json(tmp_path / "kept/rates.json")["cells"]["low"]
    assert low["updates_to_90_percent"] == [None] * 3 and low["end_of_training"] == {"executed joint actions": 4}
    assert studies.updates([0.8, 1.0, 0.9, 0.9, 0.8, 1.0], 0.9) == 6, "the mean of five"
    assert (tmp_path / "kept/rates.svg").read_text() in text


def test_the_plan_names_a_later_change_of_how_teams_are_judged(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"

    def known(params: Params, cells: list[str]) -> list[list[str]]:
        return [version["known"] for version in fix_plan(path, STUDY, params, cells)]

    assert known(Params(), []) == [[]]
    assert known(Params.model_validate({"sandbox": {"kind": "process", "slots": 3}}), ["low"]) == [[]]
    assert known(Params.model_validate({"evaluate": {"test": {"samples": 16}}}), ["low"]) == [[], ["low"]]


def test_cells_of_a_study_with_another_name_are_known_by_what_they_are(workspace: Path) -> None:
    keep(workspace, "first", "a name", "id", SEEDS, "first-a", CELLS["low"])
    judged = {"evaluate": {"metric": "reward"}, "verdict": {"alpha": 0.01}, "seeds": {"train": [7, 8, 9]}}
    again = {
        name: Params.model_validate({**params.model_dump(mode="json"), **judged}) for name, params in CELLS.items()
    }
    assert known_cells("second", again) == ["low"]
    assert known_cells("second", {"high": CELLS["high"], "other": OTHER}) == []


def test_a_commit_made_while_a_study_runs_ends_it(tmp_path: Path) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    git(tmp_path, "init", "-q")
    git(tmp_path, *who, "commit", "-q", "--allow-empty", "-m", "start")
    before = git(tmp_path, "rev-parse", "HEAD")
    same_commit(tmp_path, before)
    git(tmp_path, *who, "commit", "-q", "--allow-empty", "-m", "other code")
    with pytest.raises(ChainError, match="changed from"):
        same_commit(tmp_path, before)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "params.yaml").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_plan_that_was_changed_after_cells_were_known_says_so(repository: Path) -> None:
    said = plan_history(WRITTEN, "t")
    assert (
        "on 2026-11-02 10:00:00 UTC, before any cell was run, and kept. Looks at problems of this test split: 0" in said
    )
    changed = {"written": "2026-11-03 10:00:00 UTC", "known": ["a", "b"], "plan": {}}
    later = plan_history([*WRITTEN, changed], "t")
    assert "changed 1 time, last on 2026-11-03 10:00:00 UTC, when 2 of its cells were known (a, b)" in later


def test_looks_at_the_test_split_are_told_whoever_made_them(repository: Path) -> None:
    """By content: of a split that shares a problem, too, and not of another one."""
    for number, (content, problems, run) in enumerate(
        [
            ("t", ("a", "b"), "brave-owl"),
            ("x", ("b", "c"), "calm-fox"),
            ("y", ("z",), "other"),
            ("t", ("a", "b"), "late"),
        ]
    ):
        time = f"2026-11-0{number + 1 if run != 'late' else 9}T10:00:00.5+00:00"
        look = Look({"test_content": content, "digest": run}, {}, problems, "e", run, "c0ffee", time)
        record(LOOKS, look.identity, look.to_json())
    said = plan_history([{**WRITTEN[0], "written": "2026-11-04 10:00:00 UTC"}], "t")
    assert "when none of its results was kept here" in said and "before any cell was run" not in said
    assert "Looks at problems of this test split: 3, of which 2 before that (by brave-owl, calm-fox)" in said
    assert "counts looks since 2026-11-01 10:00 UTC" in said
