"""Philosophers through the interface `Environment`."""

import pytest

from pipeline_lib.environments.philosophers.runtime import PhilosophersEnvironment
from pipeline_lib.environments.philosophers.scenarios import make_scenario
from pipeline_lib.environments.philosophers.settings import PhilosophersSettings


def environment(**settings) -> PhilosophersEnvironment:
    return PhilosophersEnvironment(PhilosophersSettings.model_validate(settings))


def test_turn_rewards_sum_up_to_the_reward_of_the_episode():
    table = environment(reward={"kind": "terms", "weights": {"no_deadlock_vacuous": 0.5, "meals": 1.0}})
    state, total, terms = table.start(make_scenario("ring", 3)), 0.0, {"no_deadlock_vacuous": 0.0, "meals": 0.0}
    for turn in range(30):
        reply = ["ACTION: GRAB_LEFT" if turn % 3 == 0 else "ACTION: GRAB_RIGHT", "WAIT", "WAIT"]
        [outcome] = table.step([state], [reply])
        assert sum(outcome.terms.values()) == pytest.approx(outcome.reward)
        low, high = table.reward_bounds
        assert low <= outcome.reward <= high
        total, state = total + outcome.reward, outcome.state
        terms = {name: terms[name] + value for name, value in outcome.terms.items()}
    assert outcome.done
    assert terms == pytest.approx({"no_deadlock_vacuous": 0.5, "meals": 10 / 15})
    assert total == pytest.approx(sum(terms.values()))


def test_states_are_values_and_may_be_continued_several_ways():
    table = environment()
    start = table.start(make_scenario("ring", 3))
    before = [table.observe(start, i) for i in range(3)]
    left, wait = ["ACTION: GRAB_LEFT"] * 3, ["ACTION: WAIT"] * 3
    outcomes = table.step([start, start, start], [left, wait, left])
    assert [outcome.done for outcome in outcomes] == [True, False, True]
    assert [table.observe(start, i) for i in range(3)] == before
    again = table.step([outcomes[1].state], [left])[0]
    assert again.done and again.details["time_to_deadlock"] == 2


def test_scenarios_of_different_tables_step_together():
    table = environment(prompt="compact")
    scenarios = [
        make_scenario("ring", 3),
        make_scenario("chain", 5),
        make_scenario("ring", 3),
        make_scenario("ring", 2),
    ]
    states = [table.start(scenario) for scenario in scenarios]
    outcomes = table.step(states, [["L"] * s.philosophers for s in scenarios])
    assert [o.state.scenario.id for o in outcomes] == [s.id for s in scenarios]
    assert [o.done for o in outcomes] == [True, False, True, True]
    assert table.observe(outcomes[1].state, 0) == "m t h 0 0"


def test_nothing_and_nonsense_are_counted_apart_from_waiting():
    table = environment()
    [outcome] = table.step(
        [table.start(make_scenario("ring", 4))], [["", "ACTION: WAIT", "ACTION: DANCE", "x" * 50_000]]
    )
    assert outcome.metrics["invalid_share"] == 0.75 and outcome.metrics["wait_share"] == 0.25
    assert outcome.reward == pytest.approx(-1.0 * 3 / 120)


def test_in_sequential_mode_only_the_mover_counts():
    table = environment(mode="sequential", prompt="compact")
    state = table.start(make_scenario("ring", 3, priority=(1, 0, 2)))
    assert table.acting(state) == (1,)
    [outcome] = table.step([state], [["", "L", ""]])
    assert outcome.metrics["invalid_share"] == 0 and outcome.state.table.left[1, 0]
    assert table.acting(outcome.state) == (0,)


def test_whoever_eats_is_not_asked():
    table = environment(prompt="compact")
    state = table.start(make_scenario("ring", 3))
    assert list(table.acting(state)) == [0, 1, 2]
    for letter in ("L", "R"):
        [outcome] = table.step([state], [[letter, "W", "W"]])
        state = outcome.state
    assert list(table.acting(state)) == [1, 2]
    [outcome] = table.step([state], [["", "W", "W"]])
    assert outcome.metrics["invalid_share"] == 0 and list(table.acting(outcome.state)) == [0, 1, 2]
    talking = environment(message_rounds=1)
    assert talking.acting(talking.start(make_scenario("ring", 3))) is None


def test_agents_are_named_by_seat_and_go_by_their_labels():
    table = environment()
    scenario = make_scenario("ring", 3, labels=(7, 2, 11))
    assert table.agents(scenario) == ("P0", "P1", "P2")
    assert "P11" in table.observe(table.start(scenario), 2)
    anonymous = make_scenario("ring", 3, labels=())
    assert len({table.observe(table.start(anonymous), i) for i in range(3)}) == 1


def test_single_round_messages_are_read_in_the_next_step():
    table = environment(message_rounds=1, message_limit=12)
    state = table.start(make_scenario("ring", 4))
    said = [
        "MESSAGE: going left\nACTION: GRAB_LEFT",
        "MESSAGE: " + "y" * 40 + "\nACTION: WAIT",
        "ACTION: WAIT",
        "nothing",
    ]
    [outcome] = table.step([state], [said])
    heard = table.observe(outcome.state, 1)
    assert 'P0 says: "going left"' in heard and "P3 says" not in heard, "P1 hears its neighbours P0 and P2 only"
    assert f'P1 says: "{"y" * 12}"' in table.observe(outcome.state, 2)
    assert outcome.metrics["message_consistency"] == 1.0
    assert outcome.state.cut == 1


def test_message_rounds_come_before_the_action_and_move_nobody():
    table = environment(message_rounds=3)
    state = table.start(make_scenario("ring", 3))
    for _ in range(2):
        assert "ACTION: <" not in table.observe(state, 0)
        [outcome] = table.step([state], [["MESSAGE: I wait"] * 3])
        assert outcome.reward == 0 and not outcome.done and set(outcome.terms.values()) == {0.0}
        assert outcome.state.table.time[0] == 0
        state = outcome.state
    assert "ACTION: <" in table.observe(state, 0) and 'says: "I wait"' in table.observe(state, 0)
    [outcome] = table.step([state], [["MESSAGE: I wait\nACTION: GRAB_LEFT"] * 3])
    assert outcome.done and outcome.metrics["message_consistency"] == 0.0


@pytest.mark.parametrize("view", ["own", "everybody"])
def test_memory_shows_the_last_steps_and_only_what_it_should(view):
    table = environment(memory=2, memory_view=view)
    state = table.start(make_scenario("ring", 3))
    for _ in range(3):
        [outcome] = table.step([state], [["ACTION: GRAB_LEFT", "ACTION: WAIT", "ACTION: WAIT"]])
        state = outcome.state
    seen = table.observe(state, 2)
    assert "step 0" not in seen and "step 1" in seen and "step 2" in seen
    assert ("P1 hungry" in seen) == (view == "everybody")
    assert ("you chose WAIT" in seen) == (view == "own")


def test_a_deadlock_can_be_played_on():
    table = environment(deadlock_ends=False)
    [outcome] = table.step([table.start(make_scenario("ring", 3))], [["ACTION: GRAB_LEFT"] * 3])
    assert not outcome.done and outcome.metrics["deadlock"] == 1.0 and outcome.metrics["deadlocks"] == 1.0


def test_compact_prompts_have_no_room_for_messages():
    with pytest.raises(ValueError, match="compact has no space for messages"):
        PhilosophersSettings(prompt="compact", message_rounds=1)


def test_an_episode_ends_within_the_bounds_of_its_reward_and_a_turn_moves_it_at_most_by_their_width():
    table = environment(prompt="compact")
    least, greatest = table.reward.bounds
    assert table.episode_bounds == (least, greatest)
    assert table.reward_bounds == (min(least, least - greatest), max(greatest, greatest - least))
