"""The audit of rewards for answers from documents: the shipped one passes, plausible wrong ones are refused."""

import functools

import pytest

from pipeline_lib.audit.result import AuditResult, Status
from pipeline_lib.audit.run import audit
from pipeline_lib.environment_kit.dialogue import WholeEpisodes
from pipeline_lib.environments.documents.audit import DocumentsExaminer
from pipeline_lib.environments.documents.runtime import DocumentsEnvironment
from pipeline_lib.environments.documents.settings import DocumentsReward, DocumentsSettings, SoundDocumentsReward
from pipeline_lib.settings.environment import CustomReward
from tests.environments.documents.help import questions


def audited(
    reward: DocumentsReward, team: str = "team", agents: int = 3, hops: tuple[int, ...] = (1, 2)
) -> AuditResult:
    settings = DocumentsSettings(reward=reward, team=team)
    return audit(settings, DocumentsEnvironment(settings), questions(agents, hops)["test"])


@pytest.mark.drawn("sizes of documents", "pipeline_lib", count=3)
@pytest.mark.parametrize("agents", [2, 3, 4])
@pytest.mark.parametrize("hops", [(1, 2), (1, 2, 3)])
def test_the_sound_reward_passes(agents: int, hops: tuple[int, ...]) -> None:
    found = audited(SoundDocumentsReward(), "team", agents, hops)
    assert found.status is Status.PASS, found.summary
    assert found.ladder[0].name == "told" and found.ladder[0].outcome == 1.0
    assert {"relay", "by_hop"} <= {rung.name for rung in found.ladder if rung.role == "working"}
    assert len([rung for rung in found.ladder if rung.role == "degenerate"]) >= 11 and len(found.ladder) >= 20


def test_the_sound_reward_passes_for_one_agent_with_all_documents() -> None:
    found = audited(SoundDocumentsReward(), "single")
    assert found.status is Status.PASS, found.summary


@functools.cache
def rewards() -> dict[str, float]:
    return {rung.name: rung.reward for rung in audited(SoundDocumentsReward(), hops=(1, 2, 3)).ladder}


def test_teams_earn_in_the_order_of_what_they_are_worth() -> None:
    found = rewards()
    assert found["told"] > found["relay"] > found["all_text_copied"] > found["without_support"]
    assert found["told"] > found["late"] > found["silent"] > found["asker_asks_for_everything"]
    assert found["without_support"] > found["right_with_made_up_support"] > found["guess_by_frequency"]
    assert found["guess_by_frequency"] > found["guess_with_made_up_support"]
    assert found["silent"] > max(found["useless_talk"], found["copied_prompt"], found["another_question"])


@pytest.mark.parametrize(
    "name", ["AnyAnswer", "AnyTrueFact", "Talkative", "Quick", "Slow", "ManyFacts", "Dear", "SupportOnly", "Silence"]
)
def test_plausible_wrong_rewards_are_refused(own_rewards: None, name: str) -> None:
    found = audited(CustomReward(path=f"documents_rewards:{name}"))
    assert found.status is Status.FAIL, f"{name}: {found.summary}"


def test_a_sound_reward_of_ones_own_is_accepted(own_rewards: None) -> None:
    assert audited(CustomReward(path="documents_rewards:Proven", options={"turn": 0.05})).status is not Status.FAIL


def test_scripted_teams_are_what_their_names_say() -> None:
    environment = DocumentsEnvironment(DocumentsSettings())
    problem, other = questions()["test"][2:4]
    teams = DocumentsExaminer().teams(WholeEpisodes(environment), problem, other)
    assert all(len(texts) == 3 for _, texts in teams.values()) and teams["silent"][1] == ["", "", ""]
    copied = " ".join(teams["all_text_copied"][1])
    assert all(fact.text in copied for fact in problem.facts if fact.holder)
    useless = " ".join(teams["useless_talk"][1])
    assert not any(problem.facts[number].text in useless for number in problem.support)
    [outcome] = WholeEpisodes(environment).step([environment.start(problem)], [teams["relay"][1]])
    assert outcome.done and outcome.metrics["all_proven"] == 1.0 and outcome.metrics["useless_talk"] == 0.0
