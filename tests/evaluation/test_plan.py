from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.evaluation.plan import Plan, check_plan, make_plan, read_plan, refuse_overlap
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.selection import select
from pipeline_lib.settings.evaluate import EvaluateSettings, SampleSettings, VerdictSettings
from tests.evaluation.build import team

EVALUATE = EvaluateSettings(validation=SampleSettings(samples=2))
VERDICT = VerdictSettings(resamples=200)
CHECKPOINTS = {0: [10, 20], 1: [10, 20]}
PROBLEMS = {"train": ["t1"], "validation": ["p000", "p001", "p002"], "test": ["q1", "q2"]}


@pytest.fixture
def plan() -> Plan:
    return make_plan(EVALUATE, VERDICT, CHECKPOINTS, PROBLEMS)


def sweep(samples: int = 2, steps: tuple[int, ...] = (10, 20)) -> dict[str, Any]:
    records = {seed: {step: team([0.1, 0.5, 0.9], samples, 10 * seed + step) for step in steps} for seed in (0, 1)}
    return select(records, [], EVALUATE, VERDICT).to_json()


def test_written_and_read_back(plan: Plan, tmp_path: Path) -> None:
    plan.write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    assert read_plan(tmp_path / "plan.json").digest == plan.digest
    content = json.loads((tmp_path / "plan.json").read_text())
    assert (content["version"], content["stop_rule"], content["correction"]) == (1, "fixed", "holm")


def test_a_plan_edited_after_it_was_written_is_refused(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan.write(path)
    content = json.loads(path.read_text())
    content["margin"] = 0.2
    path.write_text(json.dumps(content))
    with pytest.raises(EvaluationError, match="changed after it was written"):
        read_plan(path)
    path.write_text(json.dumps({**content, "version": 99}))
    with pytest.raises(EvaluationError, match="not a plan of version 1"):
        read_plan(path)
    with pytest.raises(EvaluationError, match="there is no plan"):
        read_plan(tmp_path / "nowhere.json")


def test_a_sweep_that_follows_its_plan(plan: Plan) -> None:
    found = check_plan(sweep(), plan)
    assert found.followed, found.deviations


def test_deviations_are_named(plan: Plan) -> None:
    found = check_plan(sweep(samples=3, steps=(10, 20, 30)), plan)
    assert not found.followed
    text = "; ".join(found.deviations)
    assert "validation_samples: planned 2, done 3" in text
    assert 'checkpoints: planned {"0":[10,20],"1":[10,20]}, done' in text


def test_other_problems_a_changed_plan_and_an_unplanned_step_are_named(plan: Plan) -> None:
    changed = dataclasses.replace(plan, margin=0.2)
    result = {"plan": plan.digest, "design": {"margin": 0.05, "selected": {"0": 20, "1": 35}, "looks": 2}}
    text = "; ".join(check_plan(result, changed).deviations)
    assert "the plan was changed after the sweep" in text
    assert "margin: planned 0.2, done 0.05" in text
    assert "step 35 of training seed 1 is not among the planned checkpoints" in text
    assert "looks: 2 was not planned at all" in text
    other = {"design": {"test_problems": "0" * 64}}
    assert "test_problems: planned the problems" in check_plan(other, plan).deviations[0]
    assert check_plan({}, plan).deviations == ("the result does not say how it was made",)


def test_every_field_is_part_of_the_digest(plan: Plan) -> None:
    changed = {
        "metric": "reward", "select": "one_standard_error", "guards": (), "identical_share": 0.5,
        "training_seeds": (0,), "checkpoints": {"0": [10]}, "comparisons": ("base",), "correction": "none",
        "stop_rule": "never", "validation_problems": "x", "test_problems": "x",
    }  # fmt: skip
    for field in dataclasses.fields(plan):
        value = changed.get(field.name, 77)
        assert dataclasses.replace(plan, **{field.name: value}).digest != plan.digest, field.name


@pytest.mark.parametrize(
    ("checkpoints", "problems", "words"),
    [
        ({}, PROBLEMS, "no checkpoints to plan for; train first"),
        ({0: []}, PROBLEMS, "no checkpoints to plan for"),
        (CHECKPOINTS, {"validation": ["a"], "test": []}, "the test split has no problems"),
        (CHECKPOINTS, {"validation": ["a", "b"], "test": ["b"]}, "are in both validation and test, for example b"),
        (CHECKPOINTS, {**PROBLEMS, "train": ["q2"]}, "in both train and test, for example q2"),
    ],
)  # fmt: skip
def test_impossible_plans_are_refused(checkpoints: Any, problems: Any, words: str) -> None:
    with pytest.raises(EvaluationError, match=words):
        make_plan(EVALUATE, VERDICT, checkpoints, problems)


def test_disjoint_splits_pass() -> None:
    refuse_overlap(PROBLEMS)
