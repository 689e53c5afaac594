"""The audit of coding rewards, on programs that really run."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline_lib.audit.coding import coding_ladder, teams
from pipeline_lib.audit.result import Status
from pipeline_lib.audit.run import audit
from pipeline_lib.environments.make import make_environment
from pipeline_lib.problems.generated import generate
from pipeline_lib.settings.environment import CodingEnvironment, PaperCodingReward, SoundCodingReward
from pipeline_lib.settings.problems import GeneratedProblems, SplitSizes
from pipeline_lib.settings.sandbox import ProcessSandbox

PROBLEMS = generate(GeneratedProblems(sizes=SplitSizes(train=6, validation=1, test=1)))["train"]


def audited(section: CodingEnvironment, problems=PROBLEMS):
    environment = make_environment(section, ProcessSandbox())
    try:
        return audit(section, environment, problems)
    finally:
        environment.close()


@pytest.mark.parametrize("team", ["pair", "single"])
def test_the_sound_reward_passes(team):
    result = audited(CodingEnvironment(team=team))
    assert result.status is Status.PASS, result.summary
    rewards = {rung.name: rung.reward for rung in result.ladder}
    assert result.ladder[0].name == "reference"
    assert rewards["empty"] == rewards["copied_prompt"] == rewards["keywords"] == 0
    if team == "pair":
        assert rewards["reference"] == pytest.approx(2.0) and rewards["solo"] == pytest.approx(1.6)
        assert rewards["wrong_helper"] < rewards["solo"], "a team that works past each other"


def test_the_published_reward_warns_that_a_show_of_teamwork_pays():
    result = audited(CodingEnvironment(reward=PaperCodingReward()))
    check = next(c for c in result.checks if c.name == "teamwork")
    assert result.status is Status.WARN and check.status is Status.WARN
    assert check.numbers == {"solo": 2.5, "solo_useless_call": 4.0}


def test_a_reward_that_pays_for_form_is_refused_and_the_team_named():
    form = SoundCodingReward(structure=5.0, syntax=1.0, tests=0.2, cooperation=0.0)
    result = audited(CodingEnvironment(reward=form))
    check = next(c for c in result.checks if c.name == "ladder")
    assert result.status is Status.FAIL and check.status is Status.FAIL
    assert check.numbers["degenerate"] in ("useless_call", "constant_zero", "constant_true", "wrapper_only")


def test_problems_whose_reference_fails_are_named():
    wrong = dataclasses.replace(
        PROBLEMS[1], hidden_tests="def check(candidate):\n    assert candidate([1, 2]) == 'never'\n"
    )
    result = audited(CodingEnvironment(), [PROBLEMS[0], wrong])
    check = next(c for c in result.checks if c.name == "reference")
    assert check.status is Status.FAIL and wrong.id in check.sentence


def test_problems_without_reference_leave_the_ladder_incomplete():
    bare = [dataclasses.replace(problem, reference={}) for problem in PROBLEMS[:2]]
    environment = make_environment(CodingEnvironment(), ProcessSandbox())
    try:
        rungs, checks = coding_ladder(environment, bare)
        assert {rung.role for rung in rungs} == {"degenerate"}
        assert {c.name: c.status for c in checks}["ladder"] is Status.WARN
        single = teams(PROBLEMS[0], PROBLEMS[1], ("single",), environment)
        assert all(len(texts) == 1 for _, texts in single.values())
    finally:
        environment.close()
