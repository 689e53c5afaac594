"""The chain asks the environment and contains no name of one."""

import ast
from pathlib import Path

import pytest

from pipeline_lib.environment_api.registry import find, names
from pipeline_lib.environment_kit import dialogue
from pipeline_lib.settings.environment import kinds_of
from tests.flows.project import ROOT

OWN = ROOT / "pipeline_lib/environments"
FILES = sorted(
    path for top in ("pipeline_lib", "tasks", "flows") for path in (ROOT / top).rglob("*.py") if OWN not in path.parents
)
#: The one place that says which environment it is when nobody says.
DEFAULT = ROOT / "pipeline_lib/settings/environment.py"
#: The metrics that the kit itself defines, where it does: environments have them from there.
OF_THE_KIT = {(Path(dialogue.__file__), name) for name in dialogue.talk_metrics((), "", "", 1, 1)}


def words() -> set[str]:
    """Return the names of environments, of their problems, metrics and classes."""
    found = set(names())
    for name in names():
        task = find(name)
        found |= {kind for model in task.problems for kind in kinds_of(model)} | set(task.metrics())
        found |= {type(task).__name__, task.settings.__name__, *(model.__name__ for model in task.problems)}
    return found


@pytest.mark.parametrize("top", ["pipeline_lib", "tasks", "flows"])
def test_no_module_outside_of_an_environment_names_one(top: str):
    known = words()
    assert {"coding", "philosophers", "tests_passed", "deadlock", "scenarios", "CodingTask"} <= known
    for path in FILES:
        if path.relative_to(ROOT).parts[0] != top:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            said = node.value if isinstance(node, ast.Constant) else node.id if isinstance(node, ast.Name) else ""
            if said in known and (isinstance(node, ast.Constant) or said != said.lower()):
                allowed = {(DEFAULT, "coding"), *OF_THE_KIT}
                assert (path, said) in allowed, f"{path.relative_to(ROOT)}:{node.lineno} names {said!r}"


def test_dvc_and_the_default_settings_name_columns_that_every_environment_has():
    plots = (ROOT / "dvc.yaml").read_text().partition("plots:")[2]
    assert not [word for word in words() if word in plots.replace(",", " ").replace("]", " ").split()]


def test_every_environment_of_the_library_is_one_folder_or_module():
    modules = {path.stem for path in OWN.glob("*.py") if path.stem != "__init__"}
    assert {path.name for path in OWN.iterdir() if (path / "task.py").exists()} | modules == set(names())
