"""The wheel works outside of the checkout: `symposium init` makes a project, and commands run there."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tasks.services.new_project import FILES
from tests.flows.project import ROOT, environment, lay_tracking

PARTS = ("flows", "pipeline_lib", "symposium", "tasks")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from what a checkout holds."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in (*PARTS, *FILES, "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, source / name)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", build, str(folder)], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel, and the libraries of this one, but not this checkout."""
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next((folder / "lib").iterdir()) / "site-packages"
    with zipfile.ZipFile(wheel) as content:
        content.extractall(packages)
    shared = {sysconfig.get_path("purelib"), *(entry for entry in sys.path if entry.endswith("site-packages"))}
    (packages / "shared.pth").write_text("\n".join(sorted(shared)) + "\n")
    return folder / "bin/python"


def run(python: Path, folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in environment().items() if name != "PYTHONPATH"} | variables
    return subprocess.run([str(python), *words], cwd=folder, env=kept, capture_output=True, text=True, check=False)


def test_a_project_is_made_in_an_empty_folder_and_commands_run_there(installed: Path, tmp_path: Path):
    where = run(installed, tmp_path, "-c", "import flows, tasks, pipeline_lib, symposium as s; print(flows.__file__)")
    assert Path(where.stdout.strip()).is_relative_to(installed.parents[1]), where.stderr
    made = run(installed, tmp_path, "-m", "symposium", "init", "mine")
    assert made.returncode == 0, made.stderr
    mine = tmp_path / "mine"
    for name in FILES:
        if (ROOT / name).is_dir():
            assert {path.relative_to(mine / name): path.read_text() for path in (mine / name).rglob("*.yaml")} == {
                path.relative_to(ROOT / name): path.read_text() for path in (ROOT / name).rglob("*.yaml")
            }
        else:
            assert (mine / name).read_text() == (ROOT / name).read_text()
    assert (mine / ".git").is_dir() and "symposium run" in made.stdout
    plan = run(installed, mine, "-m", "symposium", "plan", "--between", "0.05", "--within", "0.1")
    assert plan.returncode == 0 and "To detect a difference" in plan.stdout, plan.stderr
    known = run(installed, mine, "-m", "symposium", "identity", "train", "--json")
    assert known.returncode == 0 and '"pipeline_lib.training.loss"' in known.stdout, known.stderr


@pytest.mark.drawn("whole chains", "pipeline_lib")
@pytest.mark.service
def test_a_changed_setting_is_not_up_to_date_in_a_project_without_the_code(
    installed: Path, tmp_path: Path, server: dict[str, str], empty_database: Path
):
    lay_tracking(tmp_path, empty_database)
    assert run(installed, tmp_path, "-m", "symposium", "init").returncode == 0
    small = ("-S", "problems.sizes.train=64", "-S", "problems.sizes.validation=8", "-S", "problems.sizes.test=8")
    said = [
        run(installed, tmp_path, "-m", "symposium", "run", "--plain", "prepare", *changes, **server)
        for changes in (small, (), ("-S", "problems.seed=8"))
    ]
    assert [done.returncode for done in said] == [0, 0, 0], [done.stderr for done in said]
    assert ["everything is up to date" in done.stdout for done in said] == [False, True, False]


def test_nothing_is_written_over(installed: Path, tmp_path: Path):
    (tmp_path / "dvc.yaml").write_text("mine")
    refused = run(installed, tmp_path, "-m", "symposium", "init")
    assert refused.returncode == 1 and "dvc.yaml exists already; nothing was written" in refused.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"dvc.yaml", ".symposium"}
    assert (tmp_path / "dvc.yaml").read_text() == "mine"


def test_the_wheel_names_its_licence_and_holds_every_part(wheel: Path):
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        metadata = content.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert any(name.endswith("LICENSE") for name in names)
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == set(PARTS)
    assert "pipeline_lib/report/templates/page.html.j2" in names
