"""``symposium run -S``: settings that are changed for a run, a preset and keys of it together."""

import shutil
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from flows.experiment import alone, change, main, parser
from pipeline_lib.settings import SettingsError, load_params
from tasks.chain.side_by_side import ChainRun
from tests.flows.project import ROOT


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("order", [1, -1])
def test_a_preset_and_a_key_of_it_are_changed_together_in_any_order(
    project: Path, order: int, capsys: pytest.CaptureFixture[str]
):
    wanted = ["problems=humaneval", "problems.source=/data/mine.jsonl"][::order]
    words = [word for text in [*wanted, "train.steps=20", "audit.override=to try"] for word in ("-S", text)]
    change(parser().parse_args(words).set_param, [])
    found = load_params()
    assert (found.problems.kind, found.problems.source, found.train.steps) == ("humaneval", "/data/mine.jsonl", 20)
    assert found.problems.seed == load_params(ROOT / "params.yaml", ROOT / "conf").problems.seed
    assert "train: # MAGRPO" in (project / "params.yaml").read_text(), "comments are lost"
    before = load_params(ROOT / "params.yaml", ROOT / "conf").train.steps
    assert f"params.yaml: train.steps: {before} -> 20\n" in capsys.readouterr().out


def test_a_wrong_change_changes_nothing(project: Path):
    before = (project / "params.yaml").read_text()
    with pytest.raises(SettingsError, match=r"problems.sourse: unknown key; .*did you mean 'source'"):
        change(["train.steps=20", "problems=humaneval", "problems.sourse=x"], [])
    assert (project / "params.yaml").read_text() == before


def test_a_change_with_which_the_run_could_not_end_well_changes_nothing(project: Path):
    before = (project / "params.yaml").read_text()
    with pytest.raises(SettingsError, match="the embedded model cannot play this environment"):
        change(["problems=humaneval", "problems.source=mine.jsonl"], [])
    with pytest.raises(SettingsError, match=r"override .=3.: expected section\.key=value"):
        change(["=3"], [])
    assert (project / "params.yaml").read_text() == before


@pytest.mark.parametrize("written", ["", "train: {gradient_clip: 1.0}\n", "seeds: {single_agent: []}\n"])
def test_without_seeds_in_the_file_nothing_is_changed(project: Path, written: str):
    file = project / "params.yaml"
    file.write_text(written)
    with pytest.raises(
        SettingsError, match=r"seeds\.train: DVC plans one stage per seed, so the seeds must be .*; there are none"
    ):
        change(["train.gradient_clip=2.5"], [])
    assert file.read_text() == written
    change(["train.gradient_clip=2.5", "seeds.train=[3]", "seeds.single_agent=[]"], [])
    found = load_params()
    assert (found.train.gradient_clip, found.seeds.train, found.seeds.single_agent) == (2.5, (3,), ())


def test_a_value_of_what_a_preset_has_in_the_place_of_null_is_written_on_one_line(project: Path):
    change(["environment=documents-tools", "environment.tools.calls=3"], [])
    assert "\n  tools: {calls: 3} " in (project / "params.yaml").read_text()
    tools = load_params().environment.tools
    assert (tools.calls, tools.tokens) == (3, 64)


def test_the_reward_of_the_docs_is_set_by_its_command(project: Path, monkeypatch: pytest.MonkeyPatch):
    """docs/rewards.md."""
    monkeypatch.syspath_prepend(str(project))  # as the command does
    shutil.copy(ROOT / "docs/examples/careful_reward.py", project)
    change(['environment.reward={kind: custom, path: "careful_reward:Careful", options: {power: 2}}'], [])
    reward = load_params().environment.reward
    assert (reward.kind, reward.path, reward.options) == ("custom", "careful_reward:Careful", {"power": 2})


def test_what_a_run_took_counts_from_the_start_of_the_command(project: Path, monkeypatch: pytest.MonkeyPatch):
    runs, ready = list[ChainRun](), list[float]()
    monkeypatch.setattr("sys.argv", ["symposium run", "prepare"])
    monkeypatch.setattr("flows.experiment.check_targets", lambda *given: None)
    monkeypatch.setattr("flows.experiment.chain_and_stale", lambda *given: ({}, {"prepare"}))
    monkeypatch.setattr("flows.experiment.start_side_by_side", lambda processes: None)
    monkeypatch.setattr("flows.experiment.starting_prefect_server", lambda: nullcontext(ready.append(time.monotonic())))
    monkeypatch.setattr("flows.experiment.preloaded", lambda *given: nullcontext(dict))
    monkeypatch.setattr("flows.chain.run_on_terminal", lambda run, *given: runs.append(run))
    main()
    assert runs[0].began < ready[0]


def test_a_second_run_in_the_same_folder_changes_nothing_under_the_first_one(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    before = (project / "params.yaml").read_text()
    monkeypatch.setattr("sys.argv", ["symposium run", "-S", "train.steps=20"])
    with alone(), pytest.raises(SystemExit, match="1"):
        main()
    assert "another `symposium run` works in this folder" in capsys.readouterr().err
    assert (project / "params.yaml").read_text() == before
