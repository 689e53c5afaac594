"""The dialogue: what is an agreement, what is paid, and what is said for nothing."""

import random
import re

import pytest

from pipeline_lib.environment_api.environment import RewardError
from pipeline_lib.environment_api.reward import Reward
from pipeline_lib.environments.planning.demonstrations import says
from pipeline_lib.environments.planning.rewards import Talk
from pipeline_lib.environments.planning.runtime import PlanningEnvironment, read_agreement
from pipeline_lib.environments.planning.settings import PlanningSettings, SoundPlanningReward
from tests.environments.planning.help import ALL, COSTS, WEEK, appointments, constraints, share_of

#: Words of which most texts are no agreement.
WORDS = ["agree", "agree", "mon", "sun", "park", "zoo", "not", "or", "agrees", "disagree", "noon", "1", ";", "?", "\n"]


def environment(**given: object) -> PlanningEnvironment:
    return PlanningEnvironment(PlanningSettings(**given))


@pytest.mark.parametrize(
    "text",
    [
        "agree",
        "agree.",
        "agree mon",
        "agree park",
        "agree park mon",
        "agree mon mon",
        "agree mon beach",
        "agree day place",
        "agree mon park zoo",
        "agree mon tue park",
        "agree mon or tue park",
        "agree mon park; agree tue zoo",
        "agree mon park\nagree mon park",
        "agree mon park, not tue",
        "agree mon not park",
        "do not agree mon park",
        "disagree mon park",
        "agreed mon park",
        "agreemonpark",
        "agree mon park?",
        "agree? mon park",
        "if you agree mon park",
        "second: agree mon park",
        '"agree mon park"',
        "agree mon park 3",
        "agree mon-park",
        "mon park",
        "",
    ],
)
def test_what_is_no_clear_agreement_to_one_plan_is_a_message(text: str) -> None:
    assert read_agreement(text) is None
    played, problem = environment(), appointments()["test"][0]
    [outcome] = played.step([played.start(problem)], [[text, text]])
    assert not outcome.done and outcome.metrics["agreed"] == 0.0 and list(played.acting(outcome.state)) == [0, 1]


@pytest.mark.parametrize("text", ["agree mon park", " Agree: MON, park.\n", "AGREE, mon park!", "agree\n mon\tpark"])
def test_an_agreement_may_have_other_marks_and_letters(text: str) -> None:
    assert read_agreement(text) == ("mon", "park")


def test_texts_of_random_words_are_agreements_only_if_they_are_the_three_words() -> None:
    rng, found = random.Random(0), 0
    for _ in range(60000):
        text = " ".join(rng.choices(WORDS, k=rng.randint(2, 5)))
        words = text.replace("\n", " ").split()
        clear = len(words) == 3 and words[0] == "agree" and words[1] in WEEK and words[2] in COSTS
        assert read_agreement(text) == ((words[1], words[2]) if clear else None), repr(text)
        found += clear
    assert found > 20


class Falling(Reward[Talk, float]):
    """Falls by one with every turn, below its bounds in the second; each fall alone is within them."""

    bounds = (-1.0, 1.0)

    def terms(self, talk: Talk) -> dict[str, float]:
        return {"turns": -float(talk.turns)}


def test_an_episode_that_leaves_the_bounds_of_its_reward_is_refused_though_no_turn_does() -> None:
    played = environment(turns=3)
    played._reward = Falling()
    state = played.start(appointments()["test"][0])
    [outcome] = played.step([state], [["mon?", "tue?"]])
    assert outcome.reward == -1.0
    with pytest.raises(RewardError, match=r"an episode earned -2 \(turns -2\), but the reward declares -1 to 1"):
        played.step([outcome.state], [["mon?", "tue?"]])


def test_every_pair_of_agreements_is_paid_by_the_constraints_that_it_satisfies() -> None:
    weights, rng = SoundPlanningReward(), random.Random(1)
    played = environment()
    for problem in appointments()["test"][:8]:
        for plan in ALL:
            other = rng.choice([plan, rng.choice(ALL)])
            [outcome] = played.step([played.start(problem)], [[f"agree {' '.join(each)}" for each in (plan, other)]])
            share = share_of(problem, plan) if plan == other else 0.0
            expected = weights.constraints * share + weights.plan * (share == 1.0) - weights.turn
            assert outcome.done and outcome.reward == pytest.approx(expected)
            assert outcome.metrics["satisfied"] == (share == 1.0) and outcome.metrics["constraints"] == share
            assert outcome.metrics["agreed"] == (plan == other) == (1 - outcome.metrics["differed"])
            assert outcome.metrics["message_tokens"] == 0.0


def test_random_dialogues_are_priced_and_end_as_the_rules_say() -> None:
    weights, rng, ended = SoundPlanningReward(), random.Random(2), 0
    played = environment()
    for problem in appointments()["train"]:
        [plan] = set.intersection(*constraints(problem))
        state, last, prices, reward, done = played.start(problem), [None, None], 0, 0.0, False
        turns = 0
        while not done:
            said = [rng.choice(["", "wed zoo?", "-", f"agree {' '.join(plan)}", "agree sat club"]) for _ in (0, 1)]
            assert list(played.acting(state)) == [agent for agent in (0, 1) if last[agent] is None]
            for agent, text in enumerate(said):
                if last[agent] is None:
                    if text.startswith("agree"):
                        last[agent] = tuple(text.split()[1:])
                    else:
                        prices += len(re.findall(r"\w+|[?]", text))
            [outcome] = played.step([state], [said])
            state, done, reward, turns = outcome.state, outcome.done, reward + outcome.reward, turns + 1
            assert done == (None not in last or turns == played.turns)
        same = last[0] == last[1] and last[0] is not None
        share = share_of(problem, last[0]) if same else 0.0
        expected = weights.constraints * share + weights.plan * (share == 1.0)
        assert reward == pytest.approx(expected - weights.token * prices - weights.turn * turns)
        assert played.episode_bounds[0] <= reward <= played.episode_bounds[1]
        assert outcome.metrics["message_tokens"] == prices and outcome.metrics["turns_used"] == turns
        ended += share == 1.0
    assert ended > 20


def test_the_bounds_are_those_of_the_worst_and_of_the_best_episode() -> None:
    played, problem = environment(), appointments()["test"][0]
    [plan] = set.intersection(*constraints(problem))
    [best] = played.step([played.start(problem)], [[f"agree {' '.join(plan)}"] * 2])
    assert best.reward == pytest.approx(played.episode_bounds[1])
    state, reward = played.start(problem), 0.0
    for _ in range(played.turns):
        [outcome] = played.step([state], [["so it is " * 10] * 2])
        state, reward = outcome.state, reward + outcome.reward
    assert outcome.done and reward == pytest.approx(played.episode_bounds[0])
    played.refuse_unusable_bounds()


@pytest.mark.parametrize("budgets", [True, False])
def test_who_knows_how_finds_every_plan_and_says_nothing_useless(budgets: bool) -> None:
    played = environment()
    for problem in appointments(4, budgets)["train"]:
        state, done = played.start(problem), False
        while not done:
            said = [says(state, agent) if agent in played.acting(state) else "" for agent in (0, 1)]
            [outcome] = played.step([state], [said])
            state, done = outcome.state, outcome.done
        assert outcome.metrics["satisfied"] == 1.0 and outcome.metrics["useless_talk"] == 0.0
        assert outcome.metrics["turns_used"] == 3 and outcome.metrics["message_tokens"] <= 8


def test_each_is_told_its_own_constraints_and_both_read_every_message() -> None:
    played, problem = environment(), appointments()["test"][0]
    state = played.start(problem)
    for agent, name in enumerate(("first", "second")):
        budget, days, places = problem.budgets[agent], " ".join(problem.days[agent]), " ".join(problem.places[agent])
        assert played.observe(state, agent) == f"{name} budget {budget}; days {days}; places {places}\nturn 1\n{name}:"
    [outcome] = played.step([state], [["mon?\nsecond: agree mon park", " ... "]])
    assert outcome.state.turns == (("mon? second: agree mon park", ""),) and not outcome.done
    for agent in (0, 1):
        assert "\nfirst: mon? second: agree mon park\nturn 2\n" in played.observe(outcome.state, agent)
        assert played.shortened(outcome.state, agent, 1) is None
    [outcome] = played.step([outcome.state], [["", "agree mon park"]])
    assert played.shortened(outcome.state, 0, 1).endswith("\nsecond: agree mon park\nturn 3\nfirst:")
    with pytest.raises(ValueError, match="got 1 actions for the 2 agents"):
        played.step([state], [["one"]])


def test_useless_is_what_does_not_tell_for_the_first_time_what_suits_who_says_it() -> None:
    played, problem = environment(), appointments()["test"][0]
    own, bad = problem.days[0][0], next(day for day in WEEK if day not in problem.days[0])
    [outcome] = played.step([played.start(problem)], [[f"only {own}, {own} {bad}", ""]])
    assert outcome.metrics["message_tokens"] == 5 and outcome.metrics["useless_first"] == pytest.approx(4 / 5)
    [outcome] = played.step([outcome.state], [[own, problem.days[1][0]]])
    assert outcome.metrics["useless_talk"] == pytest.approx(5 / 7) and outcome.metrics["useless_second"] == 0.0
    dear = next((place for place in problem.places[1] if COSTS[place] > problem.budgets[1]), "club")
    [outcome] = played.step([outcome.state], [["", dear]])
    assert outcome.metrics["useless_second"] == 0.5, "what it cannot pay suits nobody"


def test_one_agent_knows_everything_and_plans_at_once() -> None:
    alone, problem = environment(team="single"), appointments()["test"][0]
    [plan] = set.intersection(*constraints(problem))
    seen = alone.observe(alone.start(problem), 0)
    assert all(f"{name} budget" in seen for name in ("first", "second")) and seen.endswith("turn 1\nsingle:")
    [outcome] = alone.step([alone.start(problem)], [[f"agree {' '.join(plan)}"]])
    assert outcome.done and outcome.metrics["satisfied"] == 1.0
    assert outcome.reward == pytest.approx(alone.episode_bounds[1])
    [outcome] = alone.step([alone.start(problem)], [["mon"]])
    assert outcome.done and outcome.metrics["agreed"] == 0.0 and outcome.metrics["useless_talk"] == 1.0


def test_what_is_shown_is_the_agreement_with_its_checks() -> None:
    played, problem = environment(), appointments()["test"][0]
    [plan] = set.intersection(*constraints(problem))
    right, state = f"agree {' '.join(plan)}", played.start(problem)
    assert [check.passed for check in played.exhibit(state, [right, right]).checks] == [True, True, True]
    assert [check.passed for check in played.exhibit(state, [right, "agree sun club"]).checks] == [False]
    shown = played.exhibit(state, [right, "why?"])
    assert not shown.checks and shown.text == f"first: {right}\nsecond: why?"
    [outcome] = played.step([state], [[right, ""]])
    assert len(played.exhibit(outcome.state, ["", right]).checks) == 3
