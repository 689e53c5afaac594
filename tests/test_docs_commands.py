"""Every command of README and docs is one that its program accepts, with settings that are valid.

The commands of ``sh`` blocks are read as a shell reads them and given to the parsers of their programs, which stop
before they do anything.  The cheap ones are run for real on a finished project in ``tests/flows/test_chain.py``.
"""

import argparse
import importlib.util
import itertools
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_lib.settings import load_params
from pipeline_lib.settings.load import changed_params
from symposium.cli import PROGRAMS
from tasks.chain.form import requested_changes
from tasks.chain.graph import check_targets

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

EXCEPTIONS = {
    "source .venv/bin/activate": "a command of the shell",
    "cd team": "a command of the shell",
    "export PREFECT_API_URL=http://server:4200/api MLFLOW_TRACKING_URI=http://server:5000": "a command of the shell",
    "set -a": "a command of the shell",
    "install -m 600 /dev/null cluster.env": "a command of the system",
    "install -m 600 /dev/null backup.tar": "a command of the system",
    "docker compose exec -T servers tar -cC /data backup": "a command of the system, in the container",
    "docker compose run --rm -T --entrypoint tar servers -xC /data < backup.tar": "the same",
    "export SYMPOSIUM_NAME=lab SYMPOSIUM_ADDRESS=0.0.0.0": "a command of the shell; compose.yaml reads them",
    ". ./cluster.env": "a command of the shell; tests/flows/test_pool.py sets what the file holds",
    "pip install dvc-s3==3.3.0": "requirements-team.lock has it",
    "python load.py": "the file is made by `symposium export`; tests/flows/test_chain.py runs it",
    "python -c import secrets; print(secrets.token_urlsafe())": "the standard library's, with its output in a file",
    "pip install symposium-0.1.0-py3-none-any.whl": "tests/symposium/test_packaging.py makes and installs the wheel",
}
"""Commands that are not parsed here, with the reason."""

ACCEPTED = 77


def commands(text: str) -> Iterator[list[str]]:
    """Yield the commands in the ``sh`` blocks of a page, each as its words, without what the shell takes out."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            reader = shlex.shlex(line, posix=True, punctuation_chars=True)
            reader.whitespace_split = True
            words = list(reader)
            ends = [number for number, word in enumerate(words) if word in (";", "&&", "|")]
            for start, end in itertools.pairwise([-1, *ends, len(words)]):
                command = words[start + 1 : end]
                command = command[: command.index(">")] if ">" in command else command
                if command:
                    yield list(itertools.dropwhile(lambda word: "=" in word, command))


ALL = [(page.relative_to(ROOT).as_posix(), words) for page in PAGES for words in commands(page.read_text())]


@pytest.mark.parametrize(("page", "words"), ALL, ids=[f"{page}: {shlex.join(words)}" for page, words in ALL])
def test_a_documented_command_is_accepted_by_its_program(
    page: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if " ".join(words) in EXCEPTIONS:
        return
    monkeypatch.chdir(ROOT)
    program, *arguments = words
    if program == "make":
        done = subprocess.run(["make", "-n", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    elif program == "dvc":
        accepted_by_dvc(arguments, tmp_path)
    elif program == "prefect":
        command = [sys.executable, "-m", "prefect", *arguments[:2], "--help"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert all(word in said for word in arguments if word.startswith("--"))
    elif program == "docker":  # what follows the name of the image, or of the service, are words for our program
        for name in {"symposium-servers", "servers"} & set(arguments):
            ours = arguments[arguments.index(name) + 1 :]
            if ours and "build" not in arguments:
                ours = ours[2:] if ours[:2] == ["symposium", "cluster"] else ours
                accepted_by(PROGRAMS["cluster"][0], ours, monkeypatch, tmp_path)
    elif program == "symposium":
        assert arguments[0] in PROGRAMS
        accepted_by(PROGRAMS[arguments[0]][0], arguments[1:], monkeypatch, tmp_path)
    else:
        assert words[:2] == ["python", "-m"], "what is it? EXCEPTIONS holds commands that cannot be tried"
        accepted_by(arguments[1], arguments[2:], monkeypatch, tmp_path)


def test_files_of_the_project_that_a_page_names_exist() -> None:
    folders = "|".join(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != ".")
    named = re.compile(rf"`((?:{folders})/[\w./-]+\.\w+)`")
    made = {"conf/problems/mine.yaml"}  # by the reader
    missing = [
        f"{page.name}: {name}"
        for page in PAGES
        for name in named.findall(page.read_text())
        if not (ROOT / name).exists() and name not in made and not name.startswith(("results/", "report/", "models/"))
    ]
    assert not missing


def accepted_by(module: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Start a program, and stop it as soon as it has read its command line."""
    parse = argparse.ArgumentParser.parse_args

    read: list[argparse.Namespace] = []

    def parse_and_stop(self: argparse.ArgumentParser, *given: object) -> object:
        read.append(parse(self))
        raise SystemExit(ACCEPTED)

    monkeypatch.setattr(sys, "argv", [module, *arguments])
    if "problem.json" in arguments:  # the reader's own file, which the program looks for at once
        monkeypatch.chdir(tmp_path)
        (tmp_path / "problem.json").write_text("{}")
    found = importlib.util.find_spec(module)
    assert found is not None, "there is no such module"
    program = importlib.import_module(f"{module}.__main__" if found.submodule_search_locations else module)
    if "argparse" not in Path(str(program.__file__)).read_text():
        assert not [word for word in arguments if "=" not in word], "it takes no options"
        return
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == ACCEPTED
    if "set_param" in read[0]:  # the settings and stages that it would refuse before it does anything
        monkeypatch.syspath_prepend(ROOT / "docs/examples")
        changes = requested_changes({}, {}, read[0].set_param)
        changed_params(changes, ROOT / "params.yaml", ROOT / "conf", "-S")
        check_targets(ROOT, getattr(read[0], "targets", ()))


def accepted_by_dvc(arguments: list[str], folder: Path) -> None:
    """Have DVC read its command line, and the settings read what ``-S`` makes of params.yaml."""
    from dvc.cli import parse_args
    from dvc.utils.hydra import apply_overrides

    asked = parse_args(arguments)
    if overrides := getattr(asked, "set_param", None):
        shutil.copy(ROOT / "params.yaml", folder / "params.yaml")
        apply_overrides(str(folder / "params.yaml"), list(overrides))
        load_params(folder / "params.yaml", ROOT / "conf")


def test_no_exception_is_out_of_date() -> None:
    assert set(EXCEPTIONS) <= {" ".join(words) for _, words in ALL}


def test_the_commands_of_a_block_are_found_as_a_shell_finds_them() -> None:
    text = "```sh\nA=1 b -c 'd e' # f\ng && h; i > j\nk \\\n  l\n```\n```yaml\nm\n```\n"
    assert list(commands(text)) == [["b", "-c", "d e"], ["g"], ["h"], ["i"], ["k", "l"]]
