"""dvc.yaml and tasks/identity/stages.py speak of the same stages."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.chain.graph import IDENTITY
from tasks.identity.stages import STAGES, identity_of
from tests.flows.project import ROOT

_CONTENT = yaml.safe_load((ROOT / "dvc.yaml").read_text())
FILE: dict[str, dict[str, Any]] = _CONTENT["stages"]
ARTIFACTS: dict[str, Any] = _CONTENT["artifacts"]


def test_every_stage_has_an_identity_and_every_identity_a_stage():
    assert list(FILE) == [IDENTITY, *STAGES]
    assert FILE[IDENTITY]["always_changed"] is True


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_its_identity_and_on_outputs_of_others_only(stage: str):
    entry = FILE[stage]
    assert re.match(rf"python -m {re.escape(STAGES[stage].flow)}\b", entry["cmd"])
    own, *others = entry["deps"]
    seed = "@${item.seed}" if "matrix" in entry else ""
    assert own == f"results/identity/{stage}{seed}.json"
    outputs = [path for name, other in FILE.items() if name != stage for path in _outputs(other)]
    for path in others:
        assert any(Path(out).is_relative_to(path) or Path(path).is_relative_to(out) for out in outputs), path
    assert "params" not in entry, "settings count by what they resolve to, which is in the identity"
    assert all(isinstance(path, str) for path in _outputs(entry)), "what a run made is DVC's as a whole: all is cached"


def _outputs(entry: dict[str, Any]) -> list[str]:
    return [*entry.get("outs", ()), *entry.get("metrics", ())]


def test_the_programs_of_the_sandbox_count_where_programs_are_judged():
    inside = {path.stem for path in (ROOT / "pipeline_lib/sandbox/inside").glob("[a-z]*.py")}
    for stage in ("audit", "train", "sweep", "test"):
        code = set(identity_of(stage)["code"])
        assert {f"pipeline_lib.sandbox.inside.{name}" for name in inside} <= code
        assert {f"pipeline_lib.sandbox.{name}" for name in ("judge", "runner", "proxy", "time_limits", "local")} <= code
    assert not any("sandbox" in module for module in identity_of("verdict")["code"])


def test_another_project_gets_the_exported_team(empty_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(empty_project, ours := tmp_path / "ours")
    monkeypatch.chdir(ours)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "t")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "t@localhost")
    (ours / "dvc.yaml").write_text(yaml.safe_dump({"artifacts": ARTIFACTS}))
    (ours / "team/helper").mkdir(parents=True)
    (ours / "team/helper/model.safetensors").write_bytes(b"weights")
    for command in (
        "dvc add -q team",
        "git add -A",
        "git commit -q -m run",
        "git tag -a team@v1.0.0 -m first",
    ):
        subprocess.run([*command.split()], check=True, capture_output=True)
    (tmp_path / "theirs").mkdir()
    got = ["dvc", "artifacts", "get", "-q", str(ours), "team", "-o", "team"]
    subprocess.run(got, cwd=tmp_path / "theirs", check=True, capture_output=True)
    assert (tmp_path / "theirs/team/helper/model.safetensors").read_bytes() == b"weights"
