"""The audit of writing rewards: the published one is refused for what it pays, the sound one passes."""

import random

import pytest

from pipeline_lib.audit.result import Status
from pipeline_lib.audit.run import audit
from pipeline_lib.environments.writing.audit import WritingExaminer
from pipeline_lib.environments.writing.runtime import WritingEnvironment
from pipeline_lib.environments.writing.settings import PaperWritingReward, SoundWritingReward, WritingReward
from pipeline_lib.environments.writing.settings import WritingSettings as Settings
from pipeline_lib.settings.environment import CustomReward
from tests.environments.writing.help import problems

TASKS = ["summary", "introduction"]


def audited(task: str, reward: WritingReward, team: str = "pair"):
    settings = Settings(reward=reward, team=team)
    return audit(settings, WritingEnvironment(settings), list(problems(task)))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("team", ["pair", "single"])
def test_the_sound_reward_passes(task: str, team: str):
    found = audited(task, SoundWritingReward(), team)
    assert found.status is Status.PASS, found.summary
    assert found.ladder[0].role == "working" and found.ladder[0].outcome == 1.0
    names = {rung.name for rung in found.ladder if rung.role == "degenerate"}
    assert len(names) >= 12 and {"nonsense_with_connectives", "copied_source", "white_space", "copied_prompt"} <= names


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("variant", ["paper", "later"])
def test_the_published_reward_is_refused_for_nonsense(task: str, variant: str):
    found = audited(task, PaperWritingReward(variant=variant))
    assert found.status is Status.FAIL
    assert found.ladder[0].name == "nonsense_with_connectives" and found.ladder[0].outcome == 0.0
    if (task, variant) != ("introduction", "later"):  # there a copy has to be longer than what it copies
        assert found.ladder[0].reward == pytest.approx(2.98)
    assert "'nonsense_with_connectives' earns most" in found.summary
    assert {check.name for check in found.checks if check.status is Status.FAIL} >= {"best", "ladder", "form"}


def test_a_reward_of_ones_own_is_audited_by_what_it_pays(own_rewards: None):
    good, bad = (CustomReward(path=f"writing_rewards:{name}") for name in ("Told", "Long"))
    assert audited("summary", good).status is Status.PASS
    refused = audited("summary", bad)
    assert refused.status is Status.FAIL and refused.identity["reward"] != audited("summary", good).identity["reward"]


def test_half_of_the_facts_earn_about_half_and_another_source_less_than_silence():
    rungs = {rung.name: rung.reward for rung in audited("summary", SoundWritingReward()).ladder}
    assert 0.4 * rungs["reference"] < rungs["half_the_facts"] < 0.6 * rungs["reference"]
    assert rungs["another_source"] < rungs["nonsense"] < rungs["empty"] == 0.0
    assert rungs["reference"] >= rungs["with_connectives"] > rungs["both_tell_all_they_see"] > rungs["told_twice"]


def test_scripted_texts_are_what_their_names_say():
    problem, other = random.Random(0).sample(problems("summary"), 2)
    environment = WritingEnvironment(Settings())
    found = {name: texts for name, (_, texts) in WritingExaminer().teams(environment, problem, other).items()}
    assert found["copied_prompt"] == [problem.observations["first"], problem.observations["second"]]
    assert found["copied_source"][0] == problem.text and not "".join(found["white_space"]).strip()
    assert problem.hero not in " ".join(found["wrong_hero"])
    assert all(len(texts) == 2 for texts in found.values())
