"""dvc.yaml says exactly what each stage needs: code that exists, settings that exist, and every preset folder."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline_lib.settings import Params

ROOT = Path(__file__).parents[2]
STAGES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
PRESETS = {path.name for path in (ROOT / "conf").iterdir()}


def dependencies(stage: str) -> list[str]:
    return [str(item) for item in STAGES[stage]["deps"]]


@pytest.mark.parametrize("stage", STAGES)
def test_the_command_is_the_stages_flow(stage: str):
    module = re.match(r"python -m (flows\.\w+)", STAGES[stage]["cmd"])
    assert module
    path = module[1].replace(".", "/") + ".py"
    assert (ROOT / path).is_file()
    assert path in dependencies(stage)


@pytest.mark.parametrize("stage", STAGES)
def test_code_and_presets_it_depends_on_exist(stage: str):
    produced = ("data/", "models/", "results/")
    for path in dependencies(stage):
        assert path.startswith(produced) or (ROOT / path).exists(), path


@pytest.mark.parametrize("stage", STAGES)
def test_settings_it_depends_on_exist_and_bring_their_presets(stage: str):
    for name in STAGES[stage].get("params", []):
        model: Any = Params
        section, *rest = name.split(".")
        assert section in Params.model_fields, name
        if rest:
            model = Params.model_fields[section].annotation
            assert rest[0] in model.model_fields, name
            # A single value of these two is enough: they come as presets only with the environment's.
            assert section not in PRESETS - {"evaluate", "seeds"}, f"{name}: what may be a preset is read as a whole"


@pytest.mark.parametrize("stage", [name for name in STAGES if "params" in STAGES[name]])
def test_a_stage_that_reads_a_section_depends_on_its_presets(stage: str):
    sections = {name.partition(".")[0] for name in STAGES[stage]["params"]}
    missing = {f"conf/{name}" for name in sections & PRESETS} - set(dependencies(stage))
    assert not missing, f"{stage} reads sections whose presets it does not depend on: {sorted(missing)}"
    assert "environment" in sections, f"{stage} does not see that a preset of environment brings others along"


@pytest.mark.parametrize("stage", STAGES)
def test_the_code_it_imports_is_among_its_dependencies(stage: str):
    """What flow and tasks import is covered by a dependency, so that changed code runs the stage again."""
    covered = [path.removesuffix(".py") for path in dependencies(stage)]
    flow = STAGES[stage]["cmd"].split()[2].replace(".", "/") + ".py"
    # What names, starts, shows and records a run changes no result.
    neutral = ["pipeline_lib/settings", "pipeline_lib/storage", "pipeline_lib/tracking", "pipeline_lib/locks"]
    neutral += [
        f"tasks/{name}"
        for name in (
            "arguments", "caching", "companions", "endings", "environment", "identity", "processes", "progress", "stage"
        )
    ]  # fmt: skip
    seen: set[str] = set()
    waiting = [flow]
    while waiting:
        path = waiting.pop()
        for name in imported(ROOT / path) - seen:
            seen.add(name)
            if name.startswith("tasks/") and name not in neutral:
                waiting.append(name + ".py")
    assert seen
    for name in sorted(seen):
        known = any(name == path or name.startswith(path + "/") for path in [*covered, *neutral])
        assert known, f"{stage} uses {name}, which is not among its dependencies"


def imported(path: Path) -> set[str]:
    """Return the project's modules that a file imports, as paths without ending; type checking does not count."""
    found: set[str] = set()
    tree = ast.parse(path.read_text())
    for block in ast.walk(tree):
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test):
            block.body = []
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.replace(".", "/") for name in names if name.startswith(("tasks.", "pipeline_lib."))}
    return found
