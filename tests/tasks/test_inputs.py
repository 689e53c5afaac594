"""A stage does not start on inputs of which DVC does not remember who made them."""

import json
from pathlib import Path

import pytest

from tasks.identity import files
from tests.flows.project import ROOT


@pytest.mark.parametrize(
    ("lock", "words"),
    [
        (None, "results/test: no stage in dvc.lock has written it"),
        ("stages: {", "dvc.lock cannot be read"),
        ("stages: {}", "results/plan.json: no stage in dvc.lock has written it"),
    ],
)
def test_without_a_record_of_them_inputs_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str | None, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "_PAUSE_S", 0.0)
    Path("dvc.yaml").write_bytes((ROOT / "dvc.yaml").read_bytes())
    if lock is not None:
        Path("dvc.lock").write_text(lock)
    assert words in files.wrong_inputs("verdict", {})
    assert lock == "stages: {" or files.wrong_inputs("prepare", {}) == []


def test_seeds_that_were_taken_out_are_no_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "_PAUSE_S", 0.0)
    Path("dvc.yaml").write_bytes((ROOT / "dvc.yaml").read_bytes())
    outs = {f"sweep@{seed}": {"outs": [{"path": f"results/sweep/team-{seed}", "md5": "0"}]} for seed in (0, 2)}
    outs["sweep_single@0"] = {"outs": [{"path": "results/sweep/single-0", "md5": "0"}]}
    Path("dvc.lock").write_text(json.dumps({"stages": outs}))
    Path("params.yaml").write_text("seeds: {train: [0], single_agent: []}")
    lines = "\n".join(files.wrong_inputs("select", {}))
    assert "team-0 has changed" in lines and "team-2" not in lines and "single-0" not in lines
    Path("params.yaml").write_text("seeds: {train: [0, 2], single_agent: [0]}")
    lines = "\n".join(files.wrong_inputs("select", {}))
    assert "team-2 has changed" in lines and "single-0 has changed" in lines
