import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.evaluation.plan import Plan, check_plan, make_plan, read_plan, refuse_overlap
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.selection import select
from pipeline_lib.settings.evaluate import EvaluateSettings, SampleSettings, VerdictSettings
from pipeline_lib.storage import CorruptFileError, digest
from tests.evaluation.build import GUARDS, team

EVALUATE = EvaluateSettings(metric="tests_passed", guards=GUARDS, validation=SampleSettings(samples=2))
VERDICT = VerdictSettings(resamples=200)
CHECKPOINTS = {0: [10, 20], 1: [10, 20]}
PROBLEMS = {"train": ["t1"], "validation": ["p000", "p001", "p002"], "test": ["q1", "q2"]}
CONTENTS = {"validation": "v", "test": "t"}
PLAY = {"sampling": {"temperature": 1.0}}


@pytest.fixture
def plan() -> Plan:
    return make_plan(EVALUATE, VERDICT, CHECKPOINTS, PROBLEMS, CONTENTS, PLAY)


def sweep(samples: int = 2, steps: tuple[int, ...] = (10, 20)) -> dict[str, Any]:
    records = {seed: {step: team([0.1, 0.5, 0.9], samples, 10 * seed + step) for step in steps} for seed in (0, 1)}
    return select(records, [], EVALUATE, VERDICT).to_json()


def test_written_and_read_back(plan: Plan, tmp_path: Path) -> None:
    plan.write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    assert read_plan(tmp_path / "plan.json").digest == plan.digest
    content = json.loads((tmp_path / "plan.json").read_text())
    assert (content["version"], content["stop_rule"], content["correction"]) == (4, "fixed", "holm")


def test_a_plan_edited_after_it_was_written_is_refused(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan.write(path)
    content = json.loads(path.read_text())
    content["margin"] = 0.2
    path.write_text(json.dumps(content))
    with pytest.raises(EvaluationError, match="changed after it was written"):
        read_plan(path)
    for edited in (json.dumps({**content, "margin": math.nan}), json.dumps({**content, "margin": math.inf})):
        path.write_text(edited)
        with pytest.raises(EvaluationError, match="changed after it was written"):
            read_plan(path)
    plan.write(path)
    path.write_text(path.read_text().replace("{", '{"margin": 0.9, ', 1))
    with pytest.raises(CorruptFileError, match="the key 'margin' occurs twice"):
        read_plan(path)
    path.write_text(json.dumps({**content, "version": 99}))
    with pytest.raises(EvaluationError, match="not a plan of version 4"):
        read_plan(path)
    body = {key: value for key, value in plan.to_json().items() if key not in ("digest", "guards")}
    path.write_text(json.dumps({**body, "digest": digest(body)}))
    with pytest.raises(EvaluationError, match=r"not a plan of this version \(guards\)"):
        read_plan(path)
    with pytest.raises(EvaluationError, match="there is no plan"):
        read_plan(tmp_path / "nowhere.json")


def done(plan: Plan, design: Mapping[str, Any]) -> Plan:
    """What was done, as a plan: as planned, but for what a result shows."""
    fields = {field.name for field in dataclasses.fields(Plan)}
    return dataclasses.replace(plan, **{key: value for key, value in design.items() if key in fields})


def test_a_sweep_that_follows_its_plan(plan: Plan) -> None:
    found = check_plan(done(plan, sweep()["design"]), plan)
    assert found.followed, found.deviations
    assert found.followed


def test_deviations_are_named(plan: Plan) -> None:
    found = check_plan(done(plan, sweep(samples=3, steps=(10, 20, 30))["design"]), plan)
    assert not found.followed
    text = "; ".join(found.deviations)
    assert "validation_samples: planned 2, done 3" in text
    assert "checkpoints.0: planned [10,20], done [10,20,30]" in text


def test_an_unplanned_step_and_what_was_made_under_another_plan_are_named(plan: Plan) -> None:
    changed = dataclasses.replace(plan, margin=0.2, test_content="0" * 64)
    carried = {"the sweep": plan.to_json(), "the test": plan.to_json(), "the selection": changed.to_json()}
    text = "; ".join(check_plan(changed, changed, {"0": 20, "1": 35}, carried).deviations)
    assert "step 35 of training seed 1 is not among the planned checkpoints" in text
    assert "made under another plan (the sweep, the test): margin was 0.05 then and is 0.2 now" in text
    assert "test_content was t then and is the problems 000000000000 now" in text
    assert "the selection" not in text
    told = check_plan(plan, plan, changed=["the plan was changed"])
    assert (told.followed, told.changed) == (False, ("the plan was changed",))


def other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, Mapping):
        return {**value, "9": [1]}
    return (*value, "new") if isinstance(value, tuple) else value + 1


def test_whatever_field_is_changed_is_part_of_the_digest_and_is_told(plan: Plan) -> None:
    for field in dataclasses.fields(plan):
        different = dataclasses.replace(plan, **{field.name: other(getattr(plan, field.name))})
        assert different.digest != plan.digest, field.name
        (told,) = check_plan(different, plan).deviations
        assert told.startswith(field.name), told
        (told,) = check_plan(plan, plan, carried={"the test": different.to_json()}).deviations
        assert field.name in told


def test_a_field_that_somebody_adds_is_compared_without_being_named_anywhere(plan: Plan) -> None:
    added = dataclasses.make_dataclass(
        "Added", [("new_rule", str)], bases=(Plan,), frozen=True, slots=True, kw_only=True
    )
    values = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    planned, acted = added(**values, new_rule="a"), added(**values, new_rule="b")
    assert planned.digest != acted.digest
    assert check_plan(acted, planned).deviations == ("new_rule: planned a, done b",)
    old = check_plan(planned, planned, carried={"the test": plan.to_json()})
    assert old.deviations == ("made under another plan (the test): new_rule was nothing then and is a now",)


def test_of_long_lists_only_what_differs_is_quoted(plan: Plan) -> None:
    fewer = dataclasses.replace(plan, guards=plan.guards[1:])
    (told,) = check_plan(fewer, plan).deviations
    assert told == "guards: planned (metric syntax, better higher, slack 0.05), done nothing"
    (told,) = check_plan(dataclasses.replace(plan, guards=()), plan).deviations
    assert told.endswith("done nothing") and told.count("metric") == 4
    (told,) = check_plan(dataclasses.replace(plan, guards=plan.guards[::-1]), plan).deviations
    assert told.count("metric") == 8, "another order is shown as a whole"


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
        make_plan(EVALUATE, VERDICT, checkpoints, problems, CONTENTS, PLAY)


def test_disjoint_splits_pass() -> None:
    refuse_overlap(PROBLEMS)


def test_a_run_that_a_planned_monitor_ended_follows_the_plan_and_any_other_short_run_does_not(plan: Plan) -> None:
    short = {"checkpoints": {"0": [10], "1": [10, 20]}}
    watched = dataclasses.replace(plan, stop_training_when=("reward_hacking",))
    assert not check_plan(dataclasses.replace(plan, **short), plan).followed
    assert check_plan(dataclasses.replace(watched, **short), watched).followed
    later = {"checkpoints": {"0": [20], "1": [10, 20]}}
    assert not check_plan(dataclasses.replace(watched, **later), watched).followed
    assert not check_plan(dataclasses.replace(watched, **short), plan).followed
