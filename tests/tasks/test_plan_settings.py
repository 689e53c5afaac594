"""The plan holds what decides how teams answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_lib.problems.prepare import prepare
from pipeline_lib.settings.compose import validate_params
from tasks.experiment.arms import PROBLEMS
from tasks.experiment.plans import plan_of
from tasks.identity.stages import identity_of


def test_a_change_of_one_agents_temperature_changes_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "home"))

    def params(**agents: object):  # type: ignore[no-untyped-def]
        sizes = {"train": 32, "validation": 2, "test": 2}
        policy = {"kind": "embedded", "agents": agents}
        return validate_params({"problems": {"sizes": sizes}, "policy": policy}, Path("params.yaml"))

    alike, cooler = params(), params(main={"temperature": 0.5})
    prepare("coding", alike.problems, PROBLEMS)
    assert plan_of(cooler).play["sampling"]["agents"] == {"main": 0.5}
    assert plan_of(params(main={"learning_rate": 0.01})).play == plan_of(alike).play
    for stage in ("preregister", "select", "verdict"):
        assert identity_of(stage, cooler)["settings"] != identity_of(stage, alike)["settings"]
