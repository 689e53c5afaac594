"""The dialogue: what is told, read, proven and paid, against the truth in plain Python."""

import random
import re

import pytest

from pipeline_lib.environment_kit.dialogue import price_of
from pipeline_lib.environments.documents.demonstrations import asker_says, holder_says, right_answer
from pipeline_lib.environments.documents.problem import ENTITIES, RELATIONS, DocumentsProblem
from pipeline_lib.environments.documents.reading import read_answer, told
from pipeline_lib.environments.documents.runtime import DocumentsEnvironment
from pipeline_lib.environments.documents.settings import DocumentsSettings, SoundDocumentsReward
from tests.environments.documents.help import questions, truth

KINDS = ("supported", "unread", "contradicted", "invented")


def environment(**given: object) -> DocumentsEnvironment:
    return DocumentsEnvironment(DocumentsSettings(**given))


def random_statement(problem: DocumentsProblem, rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(problem.facts).label
    who = rng.choice([rng.choice(problem.facts).title, rng.choice(ENTITIES["person"])])
    relations = next(relations for kind, relations in RELATIONS.items() if who in ENTITIES[kind])
    return f"{who} {rng.choice([*relations])} {rng.choice(ENTITIES['city'])}"


def test_support_contradiction_and_invention_are_exact() -> None:
    rng = random.Random(0)
    seen = dict.fromkeys(KINDS, 0)
    for problem in questions()["train"] * 5:
        read = {*problem.held(0), *rng.sample(range(len(problem.facts)), 4)}
        said = [random_statement(problem, rng) for _ in range(rng.randrange(5))]
        text = "; ".join([*said, f" Answer: {rng.choice([problem.answer, problem.answer.upper(), 'nobody'])}."])
        answer = read_answer(problem, text, read)
        expected = [truth(problem, statement, read) for statement in set(said)]
        assert {kind: getattr(answer, kind) for kind in KINDS} == {kind: expected.count(kind) for kind in KINDS}
        needed = {problem.facts[number].text for number in problem.support}
        proving = {one for one in set(said) & needed if truth(problem, one, read) == "supported"}
        assert answer.support == pytest.approx(len(proving) / len(set(said) | needed))
        assert answer.right == ("nobody" not in text)
        for kind in KINDS:
            seen[kind] += expected.count(kind)
    assert min(seen.values()) > 50


def test_what_is_no_answer_is_a_message() -> None:
    problem = questions()["test"][0]
    assert read_answer(problem, "the answer is oslo", set()) is None and read_answer(problem, "answers", set()) is None
    for order in ("answer oslo; anna boss carl", "anna boss carl; answer oslo", "Anna boss Carl.;\nANSWER: the Oslo!"):
        found = read_answer(problem, order, set())
        assert found is not None and found.named == 1 and found.text.lower().strip("! the") == "oslo"


def test_a_dialogue_of_those_who_know_how_is_read_priced_and_rewarded_exactly() -> None:
    weights = SoundDocumentsReward()
    for problem in questions()["test"]:
        played = environment(turns=8)
        state, done, prices, reward, turns = played.start(problem), False, 0, 0.0, 0
        while not done:
            said = [asker_says(state, whole=True), *(holder_says(state, agent) for agent in (1, 2))]
            before = state
            [outcome] = played.step([state], [said])
            assert before.turns == state.turns, "states are values"
            state, done, turns = outcome.state, outcome.done, turns + 1
            final = "answer" in said[0]
            prices += sum(len(re.findall(r"\w{1,8}|[;?]", text)) for text in said[final:])
            reward += outcome.reward
            assert outcome.reward == pytest.approx(sum(outcome.terms.values()))
        assert outcome.metrics["all_proven"] == outcome.metrics["proven"] == 1.0
        assert outcome.metrics["useless_talk"] == 0.0 and outcome.metrics["message_tokens"] == prices
        expected = weights.answer + weights.support - weights.token * prices - weights.turn * turns
        assert reward == pytest.approx(expected)
        assert played.episode_bounds[0] <= reward <= played.episode_bounds[1]


def test_the_bounds_are_those_of_the_worst_and_of_the_best_episode() -> None:
    alone, problem = environment(team="single"), questions()["test"][0]
    [best] = alone.step([alone.start(problem)], [[right_answer(problem)]])
    assert best.reward == pytest.approx(alone.episode_bounds[1])
    team = environment()
    state, reward = team.start(problem), 0.0
    for turn in range(team.turns):
        text = "anna boss anna; answer nobody" if turn == team.turns - 1 else "so it is " * 20
        [outcome] = team.step([state], [[text, text, ""]])
        state, reward = outcome.state, reward + outcome.reward
    assert outcome.done and reward == pytest.approx(team.episode_bounds[0])
    team.refuse_unusable_bounds()


def test_only_the_asker_is_told_the_question_and_all_read_every_message() -> None:
    played, problem = environment(), questions()["test"][1]
    state = played.start(problem)
    for agent in range(3):
        seen = played.observe(state, agent)
        assert (problem.question in seen) == (agent == 0)
        assert [fact.text in seen for fact in problem.facts] == [fact.holder == agent for fact in problem.facts]
    [outcome] = played.step([state], [["who?\n  knows ", "...", "anna boss carl"]])
    for agent in range(3):
        assert "asker: who? knows\nsecond: anna boss carl\nturn 2\n" in played.observe(outcome.state, agent)
        assert played.shortened(outcome.state, agent, 1) is None
    assert outcome.metrics["message_tokens"] == 3 + 3 and not outcome.done
    [outcome] = played.step([outcome.state], [["", "answer oslo", ""]])
    assert not outcome.done and outcome.metrics["answered"] == 0.0, "the others only talk"
    assert played.shortened(outcome.state, 0, 1).endswith("first: answer oslo\nturn 3\nasker:")


def test_an_agent_without_words_says_nothing_and_pays_nothing() -> None:
    assert (price_of("anna boss?"), price_of("annabosscarl"), price_of("a" * 17)) == (3, 2, 3)
    played = environment()
    [outcome] = played.step([played.start(questions()["test"][0])], [[" - ", "...!", ""]])
    assert outcome.metrics["message_tokens"] == 0.0 and outcome.state.turns == (("", "", ""),)
    with pytest.raises(ValueError, match="got 1 actions for the 3 agents"):
        played.step([played.start(questions()["test"][0])], [["one"]])


def test_useless_talk_is_what_tells_or_asks_nothing_that_is_still_needed() -> None:
    played = environment()
    problem = next(p for p in questions()["test"] if len(p.support) == 1)
    state, [needed] = played.start(problem), problem.support
    teller = problem.facts[needed].holder
    other = next(number for number in problem.held(teller) if number != needed)
    said = ["", "", ""]
    said[teller] = problem.facts[other].label
    [outcome] = played.step([state], [[problem.question, *said[1:]]])
    name = played.agents(problem)[teller]
    assert outcome.metrics["useless_asker"] == 0.0 and outcome.metrics[f"useless_{name}"] == 1.0
    said[teller] = f"as I said, {problem.facts[needed].label}!"
    [outcome] = played.step([outcome.state], [said])
    assert needed in outcome.state.read and outcome.metrics[f"useless_{name}"] == pytest.approx(3 / 11), (
        "it read a mark, too"
    )
    [outcome] = played.step([outcome.state], [[problem.question, *said[1:]]])
    assert outcome.metrics["useless_asker"] == 0.5, "nobody needs it any more"


def test_facts_are_told_by_whole_words_only() -> None:
    problem = questions()["test"][0]
    text = problem.facts[0].text
    assert told(problem, f"I know: {text.upper()}.") == {0}
    assert not told(problem, f"{text}x") and not told(problem, " ".join(reversed(text.split())))


def test_what_is_shown_is_the_answer_with_its_checks() -> None:
    played, problem = environment(), questions()["test"][0]
    state = played.start(problem)
    shown = played.exhibit(state, [right_answer(problem), "", ""])
    assert [check.passed for check in shown.checks] == [True, False], "the support was not read"
    assert problem.question in shown.text and not played.exhibit(state, ["who?", "", ""]).checks
