"""Trying costs nothing: the preset for trying shares no test problem with the default settings."""

from __future__ import annotations

import yaml

from pipeline_lib.environment_api.registry import find
from pipeline_lib.environments.coding.settings import GeneratedProblems
from pipeline_lib.settings import load_params
from tests.flows.project import ROOT


def test_the_preset_for_trying_sees_no_test_problem_of_the_default_settings() -> None:
    preset = yaml.safe_load((ROOT / "conf/problems/coding-quick.yaml").read_text(encoding="utf-8"))
    default, task = load_params(ROOT / "params.yaml").problems, find("coding")
    quick = task.make_problems(GeneratedProblems.model_validate(preset))
    tested = {problem.content_hash for problem in task.make_problems(default)["test"]}
    seen = {problem.content_hash for split in ("test", "validation") for problem in quick[split]}
    assert len(tested) == 128 and len(seen) == 40 and not tested & seen
