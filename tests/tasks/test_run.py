"""What ties a run to a commit, to the settings of the project and to the person who started it."""

import subprocess
from pathlib import Path

import pytest

from pipeline_lib.settings import SettingsError
from tasks.identity.run import NOTE, RUN, TITLE, call, checked_name, run_name, told


def git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True)


def test_what_differs_from_the_commits_settings_is_named_as_it_is_written(tmp_path: Path) -> None:
    settings = tmp_path / "params.yaml"
    settings.write_text("environment: coding\ntrain: {steps: 80, loss: {kl: 0.0}}\n")
    assert told(tmp_path) == {}, "there is no commit to compare with"
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "start")
    assert told(tmp_path) == {"changes": ""}
    settings.write_text("environment: coding-quick\ntrain: {steps: 20, loss: {kl: 0.0}}\n")
    assert told(tmp_path) == {"changes": "environment=coding-quick, train.steps=20"}


@pytest.fixture
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a run, whose environment is restored afterwards."""
    for variable in (RUN, TITLE, NOTE, "DVC_EXP_NAME"):
        monkeypatch.setenv(variable, "")


def test_a_name_that_a_person_gave_is_that_of_the_run_and_a_note_is_told_without_a_commit(
    unnamed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_EXP_NAME", "brave-owl")
    assert run_name({}) == "brave-owl" and told(tmp_path) == {}
    call("longer warm start", "  does it learn\nto add? ")
    assert run_name({}) == "longer warm start"
    assert told(tmp_path) == {"note": "does it learn to add?"}
    call("", "")  # as if neither were given
    assert run_name({}) == "longer warm start"


@pytest.mark.parametrize("name", ["a", "longer warm start", "Größe 8 (G=4), lr 1e-3", "x" * 80])
def test_a_name_is_in_words(name: str) -> None:
    assert checked_name(f" {name} ") == name


@pytest.mark.parametrize(
    "name", ["", " ", "../x", "a/b", "it's", 'a"b', "{run}", "[bold]", ".x", "-x", "x" * 81, "a\nb"]
)
def test_a_name_that_files_or_servers_would_read_otherwise_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"name of the run: got .*; give 1 to 80 letters"):
        checked_name(name)
