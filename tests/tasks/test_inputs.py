"""A stage does not start on inputs of which DVC does not remember who made them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.identity import inputs
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
    monkeypatch.setattr(inputs, "_PAUSE_S", 0.0)
    Path("dvc.yaml").write_bytes((ROOT / "dvc.yaml").read_bytes())
    if lock is not None:
        Path("dvc.lock").write_text(lock)
    assert words in inputs.wrong_inputs("verdict", {})
    assert lock == "stages: {" or inputs.wrong_inputs("prepare", {}) == []
