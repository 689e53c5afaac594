"""The audit of coding rewards, on programs that really run."""

import dataclasses
import functools

import numpy as np
import pytest

from pipeline_lib.audit.result import Status, make_rung
from pipeline_lib.audit.run import audit
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.environments.coding.audit import SHOWS, CodingExaminer, learn, process_check, teams
from pipeline_lib.environments.coding.generated import generate
from pipeline_lib.environments.coding.settings import (
    CodingSettings,
    FineCodingReward,
    GeneratedProblems,
    PaperCodingReward,
    SoundCodingReward,
)
from pipeline_lib.settings.problems import SplitSizes
from pipeline_lib.settings.sandbox import ProcessSandbox

PROBLEMS = tuple(generate(GeneratedProblems(sizes=SplitSizes(train=4, validation=1, test=1)))["train"])


@functools.cache
def audited(section: CodingSettings, problems=PROBLEMS):
    environment = make_environment(section, ProcessSandbox())
    try:
        return audit(section, environment, problems)
    finally:
        environment.close()


@pytest.mark.parametrize(
    "team", ["pair", pytest.param("single", marks=pytest.mark.drawn("audits of coding", "pipeline_lib"))]
)
def test_the_sound_reward_passes(team):
    result = audited(CodingSettings(team=team))
    assert result.status is Status.PASS, result.summary
    rewards = {rung.name: rung.reward for rung in result.ladder}
    assert result.ladder[0].name == "reference"
    assert rewards["empty"] == rewards["copied_prompt"] == rewards["keywords"] == 0
    if team == "pair":
        assert rewards["reference"] == pytest.approx(2.0) and rewards["solo"] == pytest.approx(1.6)
        assert rewards["wrong_helper"] < rewards["solo"], "a team that works past each other"


def test_the_published_reward_is_refused_because_a_show_of_teamwork_pays():
    result = audited(CodingSettings(reward=PaperCodingReward()))
    check = next(c for c in result.checks if c.name == "teamwork")
    assert result.status is Status.FAIL and check.status is Status.FAIL
    assert check.numbers["solo"] == 2.5 and check.numbers["solo_useless_call"] == 4.0
    for told in ("'coding / paper'", "'solo_useless_call'", "To fix it: pay for cooperation only where fewer tests"):
        assert told in result.summary


@pytest.mark.drawn("audits of coding", "pipeline_lib")
def test_the_fine_reward_passes_and_attempts_at_its_terms_earn_less_than_the_reference():
    result = audited(CodingSettings(reward=FineCodingReward()))
    assert result.status is Status.PASS, result.summary
    rungs = {rung.name: rung for rung in result.ladder}
    assert rungs["reference"].reward == pytest.approx(2.3)
    for name in ("helper_with_tautologies", "helper_that_checks_itself", "helper_with_dead_code"):
        assert rungs[name].outcome == 1.0 and rungs[name].terms["mutation"] < 0.2
    unused = rungs["right_helper_unused"].terms
    assert unused["contract"] == pytest.approx(0.3) and unused["mutation"] == unused["ablation"] == 0
    for name in (*SHOWS, "solo"):
        assert rungs[name].terms["ablation"] == rungs[name].terms["mutation"] == 0
    assert rungs["visible_answers"].outcome < 0.2 and rungs["visible_answers"].terms["mutation"] == 0
    check = next(c for c in result.checks if c.name == "process")
    assert check.status is Status.PASS and check.numbers["gain"] < 0 and check.numbers["share"] < 0.5
    assert not any(c.name == "process" for c in audited(CodingSettings()).checks), "the default needs no such teams"


@pytest.mark.parametrize(
    ("padded", "only", "status"),
    [(2.0, 0.5, Status.PASS), (2.2, 0.5, Status.FAIL), (2.0, 1.1, Status.WARN), (2.0, 1.5, Status.FAIL)],
)
def test_pay_for_the_helpers_process_alone_is_refused(padded, only, status):
    earned = {"reference": 2.0, "empty": 0.0, "right_helper_only": only, "helper_with_tautologies": padded}
    rungs = [make_rung(name, "other", [reward], [1.0], [{}], [{}]) for name, reward in earned.items()]
    (check,) = process_check(rungs)
    assert check.status is status and "helper_with_tautologies" in check.sentence


def test_no_show_of_needing_the_helper_earns_more_than_working_alone():
    rungs = {rung.name: rung for rung in audited(CodingSettings()).ladder}
    for name in SHOWS:
        assert rungs[name].outcome == 1.0, "it solves everything"
        assert rungs[name].reward == pytest.approx(rungs["solo"].reward) and rungs[name].metrics["cooperation"] == 0


@pytest.mark.drawn("audits of coding", "pipeline_lib")
@pytest.mark.parametrize(
    "weights",
    [{"structure": 5.0, "syntax": 1.0, "tests": 0.2, "cooperation": 0.0}, {"structure": 1, "syntax": 1, "tests": 0.3}],
)
def test_a_reward_that_pays_for_form_is_refused_and_the_team_named(weights):
    result = audited(CodingSettings(reward=SoundCodingReward(**weights)))
    check = next(c for c in result.checks if c.name == "form")
    assert result.status is Status.FAIL and check.status is Status.FAIL
    assert check.numbers["team"] in ("useless_call", "constant_zero", "constant_true", "wrapper_only")
    assert f"'{check.numbers['team']}', with tests passed 0." in result.summary


def test_the_menu_is_searched_for_what_the_reward_likes_best():
    check = next(c for c in audited(CodingSettings()).checks if c.name == "search")
    assert check.status is Status.PASS
    assert check.numbers["favourite"] == "helper 'reference', main 'reference'"
    assert check.numbers["learned_passed"] > 0.8


def test_agents_that_choose_learn_what_pays():
    rewards = np.zeros((2, 3, 4))
    rewards[:, 1, 2] = 1.0
    assert set(learn(rewards, seed=0)) == {(1, 2)}


def test_problems_whose_reference_fails_are_named():
    wrong = dataclasses.replace(
        PROBLEMS[1], hidden_tests="def check(candidate):\n    assert candidate([1, 2]) == 'never'\n"
    )
    result = audited.__wrapped__(CodingSettings(), (PROBLEMS[0], wrong))
    check = next(c for c in result.checks if c.name == "reference")
    assert check.status is Status.FAIL and wrong.id in check.sentence


def test_problems_without_reference_leave_the_ladder_incomplete():
    bare = [dataclasses.replace(problem, reference={}) for problem in PROBLEMS[:2]]
    environment = make_environment(CodingSettings(), ProcessSandbox())
    try:
        rungs, checks = CodingExaminer().examine(environment, bare, 0, lambda done, total, text: None)
        assert {rung.role for rung in rungs} == {"degenerate"}
        assert {c.name: c.status for c in checks}["ladder"] is Status.WARN
        single = teams(PROBLEMS[0], PROBLEMS[1], ("single",), environment)
        assert all(len(texts) == 1 for _, texts in single.values())
    finally:
        environment.close()
