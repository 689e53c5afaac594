"""Who is asked what in each protocol, and that all of it is paid for."""

import pytest

from pipeline_lib.environments.coding.problem import CodingProblem
from pipeline_lib.environments.coding.runtime import CodingEnvironment
from pipeline_lib.environments.coding.settings import CodingSettings
from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.play import Player
from pipeline_lib.protocols import PROTOCOLS, make_protocol
from pipeline_lib.protocols.protocol import MAX_QUOTE, quote
from pipeline_lib.rollouts import EngineError
from pipeline_lib.sandbox import Executor
from tests.protocols.world import SAMPLING, Listening, Talk, Talking, make_team

TWO_TURNS = Talk("t", turns=2)


def play(name, problems=(TWO_TURNS,), samples=2, in_turns=False):
    """Return the records, and every call of the engine as (policy, prompt, answer)."""
    team = make_team("one", "two", "three")
    engine = Listening(team)
    environment = Talking(in_turns)
    player = Player(environment, team, engine, SAMPLING, make_protocol(name))
    return evaluate_team(player, problems, samples, 1), engine


@pytest.mark.parametrize("name", sorted(set(PROTOCOLS) - {"single_model"}))
def test_all_of_it_is_paid_for(name):
    records, engine = play(name, [TWO_TURNS, Talk("u", ("one", "two", "three"))])
    assert sum(r.tokens for r in records) == engine.counters.generated_tokens
    assert sum(r.details["requests"] for r in records) == engine.counters.actions
    assert sum(r.details["prompt_tokens"] for r in records) == sum(len(r.prompt) for r in engine.requests)
    assert len({request.seed for request in engine.requests}) == len(engine.requests)
    for record in records:
        assert record.details["critical_path_tokens"] <= record.tokens


@pytest.mark.parametrize("name", sorted(set(PROTOCOLS) - {"single_model"}))
def test_first_answers_are_paired_between_protocols(name):
    _, engine = play(name)
    _, reference = play("decentralised")
    assert engine.calls[0][0] == reference.calls[0][0]


def test_decentralised_agents_see_their_observations_and_nothing_else():
    records, engine = play("decentralised")
    prompts = [[prompt for _, prompt, _ in call] for call in engine.calls]
    assert prompts == [
        ["one of t, turn 0\n", "two of t, turn 0\n"] * 2,
        ["one of t, turn 1\n", "two of t, turn 1\n"] * 2,
    ]
    assert records[1].details["said"] == [[answer for *_, answer in call[2:]] for call in engine.calls]


def test_naive_concatenation_is_one_turn():
    records, engine = play("naive_concatenation")
    decentralised, _ = play("decentralised")
    assert [r.turns for r in records] == [1, 1]
    assert [r.details["said"] for r in records] == [r.details["said"][:1] for r in decentralised]
    assert len(engine.calls) == 1


def test_in_a_pipeline_everybody_reads_those_before():
    records, engine = play("sequential_pipeline", [Talk("u", ("one", "two", "three"))])
    assert [[policy for policy, *_ in call] for call in engine.calls] == [["one"] * 2, ["two"] * 2, ["three"] * 2]
    for number, record in enumerate(records):
        one, two, three = (call[number] for call in engine.calls)
        assert one[1] == "one of u, turn 0\n"
        assert two[1] == f"two of u, turn 0\n\none wrote:\n{one[2].strip()}\n\nWrite your part.\n"
        assert f"one wrote:\n{one[2].strip()}\n\ntwo wrote:\n{two[2].strip()}\n\n" in three[1]
        assert record.details["said"] == [[one[2], two[2], three[2]]]
        assert record.details["critical_path_tokens"] == record.tokens  # one after the other


def test_a_discussion_executes_the_second_answers_and_pays_for_both():
    records, engine = play("one_round_discussion", [Talk("u")])
    drafts, finals = engine.calls
    assert [prompt for _, prompt, _ in drafts] == ["one of u, turn 0\n", "two of u, turn 0\n"] * 2
    for number, record in enumerate(records):
        (one, two), (one_again, two_again) = drafts[2 * number : 2 * number + 2], finals[2 * number : 2 * number + 2]
        assert f"one of u, turn 0\n\nYou wrote:\n{one[2].strip()}\n\ntwo wrote:\n{two[2].strip()}\n\n" in one_again[1]
        assert f"two of u, turn 0\n\nYou wrote:\n{two[2].strip()}\n\none wrote:\n{one[2].strip()}\n\n" in two_again[1]
        assert record.details["said"] == [[one_again[2], two_again[2]]]
        assert record.details["requests"] == 4
        assert record.turns == 1


def test_a_single_model_is_one_agent():
    records, _ = play("single_model", [Talk("s", ("one",), turns=2)])
    assert [r.turns for r in records] == [2, 2]
    with pytest.raises(ValueError, match=r"for one agent, the environment has 2 \(one, two\); set environment.team"):
        play("single_model")


@pytest.mark.parametrize("name", ["sequential_pipeline", "one_round_discussion"])
def test_agents_that_do_not_act_are_neither_asked_nor_quoted(name):
    records, engine = play(name, [Talk("t", turns=2)], in_turns=True)
    assert {policy for call in engine.calls[: len(engine.calls) // 2] for policy, *_ in call} == {"one"}
    assert not any("two wrote" in prompt for call in engine.calls for _, prompt, _ in call)
    assert [texts.count("") for texts in records[0].details["said"]] == [1, 1]


def test_quotes_are_cut():
    text = quote("observation\n", [("she wrote", "x" * 2 * MAX_QUOTE)], "Go on.")
    assert text == f"observation\n\nshe wrote:\n{'x' * MAX_QUOTE}\n\nGo on.\n"


def test_an_agent_with_no_room_for_what_was_added_to_its_prompt_writes_nothing():
    """The episode goes on, nothing is sampled for such a prompt, and it is counted; the first answers are not hurt."""
    team = make_team("one", "two")
    for policy in team.policies.values():
        policy.model.config.max_position_embeddings = 30
    played = {}
    for name in ("decentralised", "sequential_pipeline", "one_round_discussion"):
        engine = Listening(team)
        player = Player(Talking(), team, engine, SAMPLING, make_protocol(name))
        (record,) = evaluate_team(player, [Talk("u")], 1, 1)
        assert record.details["requests"] == engine.counters.actions
        assert record.tokens == engine.counters.generated_tokens
        played[name] = record
    alone, pipeline, discussion = played.values()
    ((one, _),) = alone.details["said"]
    assert [record.details["unread"] for record in played.values()] == [0, 1, 2]
    assert pipeline.details["said"] == [[one, ""]]
    assert discussion.details["said"] == [["", ""]]
    assert discussion.tokens == alone.tokens


def test_an_observation_that_has_no_room_by_itself_is_refused():
    team = make_team("one", "two")
    team.policies["two"].model.config.max_position_embeddings = 10
    with pytest.raises(EngineError, match="its context is 10"):
        evaluate_team(Player(Talking(), team, Listening(team), SAMPLING), [Talk("u")], 1, 1)


def test_protocols_are_found_by_name():
    for name in PROTOCOLS:
        assert make_protocol(name).name == name
    with pytest.raises(ValueError, match=r"unknown protocol 'debate'; accepted: decentralised, single_model"):
        make_protocol("debate")


@pytest.fixture(scope="module")
def executor():
    with Executor(slots=1) as made:
        yield made


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_every_protocol_plays_the_coding_environment(name, executor):
    tests = "def check(candidate):\n    assert candidate(2) == 4\n"
    observations = {"helper": "aux: doubles\n", "main": "main: twice\n", "single": "both\n"}
    problem = CodingProblem("test/double", "test", "double", 1, "main", observations, "", tests, tests)
    kind = "single" if name == "single_model" else "pair"
    environment = CodingEnvironment(CodingSettings(team=kind, turns=2), lambda: executor)
    team = make_team(*environment.agents(problem))
    player = Player(environment, team, Listening(team), SAMPLING, make_protocol(name))
    (record, _) = evaluate_team(player, [problem], 2, 0)
    assert record.turns == (1 if name == "naive_concatenation" else 2)
    assert record.reward == pytest.approx(sum(record.terms.values()))
    assert record.metrics["tests_passed"] == 0.0
    assert record.details["status"] == "missing"
