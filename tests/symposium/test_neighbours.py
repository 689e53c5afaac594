"""Other people's packages of the same names are told, and do not hurt where they are not needed."""

import subprocess
import sys
from pathlib import Path

import pytest

from symposium.neighbours import ALL, check_neighbours

ROOT = Path(__file__).parents[2]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)


def foreign(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    return folder


def test_the_projects_own_packages_pass_from_anywhere(tmp_path: Path) -> None:
    for here in (None, ROOT, tmp_path):
        check_neighbours(*ALL, here=here)


def test_a_folder_of_that_name_which_is_no_package_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    check_neighbours(*ALL, here=tmp_path)


@pytest.mark.parametrize("name", ALL)
def test_a_package_or_module_of_somebody_else_in_the_folder_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=rf"{name}.*not Symposium's.*Rename your own"):
        check_neighbours(*ALL, here=foreign(tmp_path, name))
    (tmp_path / name / "__init__.py").unlink()
    (tmp_path / f"{name}.py").touch()
    with pytest.raises(ImportError, match=rf"{name}\.py, which is not Symposium's"):
        check_neighbours(*ALL, here=tmp_path)


def test_the_command_refuses_to_start_where_the_stages_would_import_the_wrong_package(tmp_path: Path) -> None:
    done = run(foreign(tmp_path, "tasks"), "-m", "symposium", "doctor")
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: the name 'tasks' leads to {tmp_path / 'tasks'}, which is not Symposium's")


def test_import_symposium_works_beside_others_and_without_prefect_dvc_and_mlflow(tmp_path: Path) -> None:
    foreign(foreign(tmp_path, "tasks"), "flows")
    code = (
        "import sys\n"
        "for name in ('prefect', 'dvc', 'mlflow'): sys.modules[name] = None\n"
        "import tasks, flows, symposium\n"
        "for name in symposium.__all__: getattr(symposium, name)\n"
    )
    done = run(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    foreign(tmp_path, "pipeline_lib")
    done = run(tmp_path, "-c", "import symposium; symposium.train")
    assert done.returncode == 1 and "ImportError: the name 'pipeline_lib' leads to" in done.stderr


def test_the_installed_command_finds_an_environment_in_the_projects_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from pipeline_lib.environments.coding.task import CodingTask\n\n\nclass Mine(CodingTask):\n    pass\n"
    )
    (tmp_path / "params.yaml").write_text(
        "environment: {kind: mine:Mine}\nseeds: {train: [0, 1, 2], single_agent: [0]}\n"
    )
    command = Path(sys.executable).parent / "symposium"
    done = run(tmp_path, str(command), "identity", "--changed")
    assert done.returncode == 0, done.stderr
