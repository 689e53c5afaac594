"""The command `symposium`: quick help, commands that are the programs of `flows`, statuses as documented."""

import importlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from symposium.cli import PROGRAMS, main
from tests.programs import command

ROOT = Path(__file__).parents[2]


def test_threads_of_a_large_model_do_not_spin_in_python_either() -> None:
    """The variables are read when torch loads."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    shown = f"import os, symposium; symposium.Experiment; print([os.environ[name] for name in {names}])"
    given = {key: value for key, value in os.environ.items() if key not in names}
    for more, expected in (({}, ["passive", "3000"]), ({"OMP_WAIT_POLICY": "active"}, ["active", "3000"])):
        command = [sys.executable, "-c", shown]
        done = subprocess.run(command, cwd=ROOT, env={**given, **more}, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(expected)


def symposium(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "symposium", *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_help_names_every_command_in_full_and_imports_nothing_of_the_project() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "symposium", "--help"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name, (_, text) in PROGRAMS.items():
        assert f"  {name} " in done.stdout
        assert "".join(text.split()) in "".join(done.stdout.split())
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert not [name for name in imported if name.partition(".")[0] in {"flows", "tasks", "pipeline_lib", "torch"}]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_command_has_help_under_its_own_name_with_an_example(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, out, err = command(ROOT, name, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"usage: symposium {name} ")
    assert f"symposium {name}" in out.partition("\n\n")[2], "no example"
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.sample("name", "flows", count=3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_a_process_that_has_loaded_nothing_the_help_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = symposium(name, "--help")
    assert (done.returncode, done.stdout, done.stderr) == command(ROOT, name, "--help")


def test_programs_are_also_modules() -> None:
    for module, _ in PROGRAMS.values():
        assert callable(importlib.import_module(module).main)
        assert importlib.import_module(module).parser().prog.startswith("python -m flows.")


def test_a_command_that_is_not_there_and_an_argument_that_is_wrong_end_with_status_2() -> None:
    wrong = symposium("rnu")
    assert wrong.returncode == 2 and "there is no command 'rnu'; did you mean run?" in wrong.stderr
    wrong = symposium("study", "kl", "--jobs", "two")
    assert wrong.returncode == 2
    assert "symposium study: error: argument --jobs: got 'two'; give a whole number, 1 or more" in wrong.stderr


def test_what_cannot_be_done_ends_with_status_1_and_says_why(tmp_path: Path) -> None:
    for name in ("dvc.yaml", "params.yaml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    done = symposium("export", "team", folder=tmp_path)
    assert done.returncode == 1
    said = "error: results/selection.json: no checkpoint was selected yet; run `symposium run` first"
    assert done.stderr.startswith(said)


def test_ctrl_c_while_a_command_is_loaded_ends_it_as_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interrupted_import.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("sys.argv", [])
    monkeypatch.setitem(PROGRAMS, "play", ("interrupted_import", ""))
    done = CliRunner().invoke(main, ["play"])
    assert (done.stderr, done.exit_code) == ("interrupted; run the same command again to continue\n", 130)


def test_a_folder_that_cannot_be_made_is_said_before_a_team_is_exported_to_it(tmp_path: Path) -> None:
    (tmp_path / "models/trained/team-0/step-00010").mkdir(parents=True)
    (tmp_path / "file").touch()
    ended = command(tmp_path, "export", "file/team", "--seed", 0, "--step", 10)
    assert ended.status == 2 and ended.err == "error: file/team: Not a directory; give a folder that can be made\n"


def test_completion_offers_commands_options_and_values() -> None:
    def offered(words: str, at: int) -> set[str]:
        environment = {"_SYMPOSIUM_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        found = CliRunner().invoke(main, prog_name="symposium", env=environment)
        return {line.partition(",")[2] for line in found.output.splitlines()}

    assert offered("symposium ", 1) == set(PROGRAMS)
    assert {"--seed", "--compare", "--json"} <= offered("symposium identity --", 2)
    assert {"train", "train_single"} == offered("symposium identity tra", 2)


def test_output_that_nobody_reads_to_its_end_is_no_error() -> None:
    command = f"{sys.executable} -m symposium identity train --json | head -1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_what_is_printed_fits_a_terminal_and_words_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The looks of a repository, the models, an identity, and an error that a person reads."""
    project = tmp_path / "project"
    (project / "data/problems").mkdir(parents=True)
    splits = {name: {"ids": [], "hashes": []} for name in ("train", "validation", "test")}
    manifest = {"environment": "coding", "splits": splits}
    (project / "data/problems/manifest.json").write_text(json.dumps(manifest))
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    monkeypatch.setenv("COLUMNS", "80")
    said = {name: command(project, name) for name in ("looks", "models")}
    said["identity"] = command(ROOT, "identity", "train")
    for name, ended in said.items():
        assert (ended.status, ended.err) == (0, ""), name
        assert [line for line in ended.out.splitlines() if len(line) > 80] == [], name
    assert "it has no remote origin, where looks could have been made" in " ".join(said["looks"].out.split())
    assert "\n  symposium models get" not in said["models"].out, "a command on one line can be copied"
    assert "named environment pipeline_lib.environments.coding.audit " in said["identity"].out

    person, terminal = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "symposium", "identity", "train", "--compare", "nothing"],
        cwd=ROOT, stderr=terminal, check=False,
    )  # fmt: skip
    os.close(terminal)
    told = os.read(person, 65_536).decode().splitlines()
    os.close(person)
    assert done.returncode == 2 and told[0].startswith("error: nothing: there is no experiment, branch")
    assert len(told) > 1 and max(map(len, told)) <= 80


def test_the_next_command_that_init_names_works_as_it_is(tmp_path: Path) -> None:
    done = symposium("init", "Anna's lab", folder=tmp_path)
    shown = done.stdout.partition("Next: ")[2].partition(" && ")[0]
    subprocess.run(["sh", "-c", f"{shown} && test -f params.yaml"], cwd=tmp_path, check=True)
