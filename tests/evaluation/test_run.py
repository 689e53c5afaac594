"""Episodes are played side by side, paired by seed, and accounted for; with a real model and engine."""

import dataclasses
import json

import pytest

from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.play import Player, join, paired
from pipeline_lib.play.roots import derive
from pipeline_lib.training.summary import experience_metrics
from tests.protocols.world import SAMPLING, Listening, Talk, Talking, make_team

PROBLEMS = [Talk("a"), Talk("b", turns=3), Talk("c", ("two", "one", "two"), turns=2)]


@pytest.fixture
def team():
    return make_team("one", "two")


def play(team, problems=PROBLEMS, samples=3, seed=1, environment=None, engine=None, **more):
    engine = engine or Listening()
    engine.load(team.policies)
    player = Player(environment or Talking(), team, engine, SAMPLING, **more)
    return evaluate_team(player, problems, samples, seed)


def test_one_record_per_episode_in_order(team):
    records = play(team)
    assert [(r.problem, r.sample) for r in records] == [(p.id, j) for p in PROBLEMS for j in range(3)]
    assert {r.family for r in records} == {"talk"}
    assert [r.turns for r in records] == [1] * 3 + [3] * 3 + [2] * 3


def test_rewards_and_terms_are_sums_over_turns_and_metrics_the_last_turns(team):
    for record in play(team):
        said = record.details["said"]
        vowels = sum(letter in "aeiou" for turn in said for text in turn for letter in text)
        assert record.terms == {"vowels": vowels, "turn": record.turns}
        assert record.reward == sum(record.terms.values())
        assert record.metrics == {"turn": record.turns - 1}


def test_turns_that_are_attempts_are_recorded_one_by_one(team):
    assert all(record.attempts == () for record in play(team)), "here they are not"
    environment = Talking()
    environment.retries = True
    for record in play(team, environment=environment):
        assert len(record.attempts) == (record.turns if record.turns > 1 else 0)
        if record.attempts:
            assert record.attempts[-1]["reward"] == record.reward
            assert [attempt["turn"] for attempt in record.attempts] == list(range(record.turns))


def test_every_token_is_counted(team):
    engine = Listening()
    records = play(team, engine=engine)
    assert sum(r.tokens for r in records) == engine.counters.generated_tokens > 0
    assert sum(r.details["requests"] for r in records) == engine.counters.actions == len(engine.requests)
    assert sum(r.details["prompt_tokens"] for r in records) == sum(len(request.prompt) for request in engine.requests)
    assert all(0 < r.details["critical_path_tokens"] < r.tokens for r in records if r.tokens > 2 * r.turns)
    cut = sum(r.details["cut_off"] for r in records)
    assert 0 < cut < len(engine.requests)


def test_the_critical_path_is_the_longest_action_of_each_turn(team):
    (alone,) = play(team, [Talk("x", ("one",))], samples=1)
    assert alone.details["critical_path_tokens"] == alone.tokens
    (both,) = play(team, [Talk("x", ("one", "two"))], samples=1)
    lengths = sorted((alone.tokens, both.tokens - alone.tokens))  # agent 0 draws the same alone
    assert both.details["critical_path_tokens"] == lengths[1]


class Paying(Talking):
    """Talking that costs something outside this project."""

    def step(self, states, joint_actions):
        return [
            dataclasses.replace(outcome, details={**outcome.details, "costs": {"asked": 2.0}})
            for outcome in super().step(states, joint_actions)
        ]


def test_what_an_environment_pays_is_summed_over_turns(team):
    records = play(team, environment=Paying())
    assert [record.details["asked"] for record in records] == [2.0 * record.turns for record in records]
    assert not any("costs" in record.details for record in records)
    engine = Listening()
    engine.load(team.policies)
    experience = Player(Paying(), team, engine, SAMPLING).play(paired(PROBLEMS, 2, 1))
    assert join([experience, experience]).costs == {"asked": 2 * 2.0 * len(experience.decisions)}
    assert experience_metrics(experience, [], 0.0)["costs/asked"] == 2.0 * len(experience.decisions)


def test_all_episodes_are_played_side_by_side(team):
    engine, environment = Listening(), Talking()
    play(team, engine=engine, environment=environment)
    assert len(engine.calls) == 3  # the longest episode has three turns
    assert [len(call) for call in engine.calls] == [3 * 2 + 3 * 2 + 3 * 3, 3 * 2 + 3 * 3, 3 * 2]
    assert environment.steps == [9, 6, 3]


def test_the_same_seed_gives_the_same_episodes(team):
    assert play(team) == play(team)
    assert [r.details["said"] for r in play(team)] != [r.details["said"] for r in play(team, seed=2)]


def test_a_record_tells_episodes_apart_by_what_was_written(team):
    records, again = play(team), play(team)
    assert [r.wrote for r in records] == [r.wrote for r in again] and all(r.wrote for r in records)
    said = {r.wrote: [[text.strip() for text in turn] for turn in r.details["said"]] for r in records}
    assert len(said) == len({str(texts) for texts in said.values()}) > 1


def test_samples_differ(team):
    said = [str(r.details["said"]) for r in play(team, [Talk("a")], samples=8)]
    assert len(set(said)) == 8


def test_an_episode_does_not_depend_on_what_is_played_beside_it(team):
    everything = {(r.problem, r.sample): r for r in play(team, samples=4)}
    for problem in PROBLEMS:
        for record in play(team, [problem], samples=2):
            assert record == everything[record.problem, record.sample]


def test_episodes_of_two_teams_are_paired(team):
    """Only the policy that differs makes a difference: the other agent draws the same actions."""
    other = make_team("one", "two", seed=7)
    mixed = make_team("one", "two")
    mixed.policies["two"] = other.policies["two"]
    first, second = play(team, [Talk("a")]), play(mixed, [Talk("a")])
    for a, b in zip(first, second, strict=True):
        assert a.details["said"][0][0] == b.details["said"][0][0]
        assert a.details["said"][0][1] != b.details["said"][0][1]


def test_seeds_of_requests_are_all_different_and_derived(team):
    engine = Listening()
    play(team, engine=engine)
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == len(seeds)
    assert seeds[0] == derive(1, "a", 0, 0, 0)
    assert derive(1, "a", 0, 0, 0) != derive(1, "a", 0, 0, 1)
    assert all(0 <= seed < 2**60 for seed in seeds)
    assert derive(1, "a", 0, 0, 0) == 184982901749342482  # the same in every process and version


def test_the_environments_chance_is_seeded_by_problem_and_sample(team):
    seeds = [r.details["seed"] for r in play(team)]
    assert len(set(seeds)) == len(seeds)
    assert seeds == [r.details["seed"] for r in play(make_team("one", "two", seed=3))]


def test_a_shared_policy_plays_every_part():
    engine = Listening()
    play(make_team("team"), engine=engine)
    assert {request.policy for request in engine.requests} == {"team"}


def test_only_those_who_act_are_asked(team):
    engine = Listening()
    records = play(team, [Talk("b", turns=4)], samples=2, environment=Talking(in_turns=True), engine=engine)
    assert [len(call) for call in engine.calls] == [2] * 4
    for record in records:
        for turn, texts in enumerate(record.details["said"]):
            assert texts[1 - turn % 2] == ""
            assert texts[turn % 2] != ""
        assert record.details["critical_path_tokens"] == record.tokens


def test_lost_episodes_have_no_reward_and_end(team):
    records = play(team, [Talk("a", turns=3, lost=1), Talk("b", turns=3)], samples=2)
    assert [r.reward is None for r in records] == [True, True, False, False]
    assert [r.turns for r in records] == [2, 2, 3, 3]
    assert records[0].details["status"] == "infra_error"
    assert records[0].tokens > 0
    assert records[2:] == play(team, [Talk("b", turns=3)], samples=2)


def test_records_survive_json(team):
    for record in play(team):
        assert EpisodeRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_the_weights_that_the_engine_holds_play(team):
    engine = Listening()
    before = play(team, [Talk("a")], engine=engine)
    other = make_team("one", "two", seed=5)
    after = play(other, [Talk("a")], engine=engine)
    assert before != after
    assert play(team, [Talk("a")], engine=engine) == before


def test_mistakes_are_named(team):
    with pytest.raises(ValueError, match="problem 'a' occurs more than once"):
        play(team, [Talk("a"), Talk("b"), Talk("a")])
    with pytest.raises(ValueError, match="samples is 0"):
        play(team, samples=0)


def test_no_problems_no_records(team):
    assert play(team, []) == []


def test_texts_are_kept_of_the_first_episode_on_each_problem_and_change_nothing_else(team):
    plain = play(team)
    player = Player(Talking(), team, Listening(), SAMPLING)
    player.engine.load(team.policies)
    kept = evaluate_team(player, PROBLEMS, 3, 1, keep_texts=True)
    assert [dataclasses.replace(record, shown=None) for record in kept] == plain
    assert all(record.shown is not None for record in kept)
    for record, problem in zip(kept[::3], PROBLEMS, strict=True):
        shown = record.shown
        assert shown["turns"] == [list(turn) for turn in record.details["said"]]
        assert len(shown["told"]) == len(shown["agents"]) == len(Talking().agents(problem))
        assert sum(tokens for turn in shown["sampled"] for _, tokens, _ in turn) == record.tokens
        assert all(-1000 < logprob <= 0 for turn in shown["sampled"] for _, _, logprob in turn)
        assert shown["text"] == "\n\n".join(text.strip("\n") for text in shown["turns"][-1] if text.strip())
    assert "shown" not in plain[0].to_json()
    for record in (plain[0], kept[0]):
        assert EpisodeRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
