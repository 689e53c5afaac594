"""The environment as teams play it: observations, turns, feedback, metrics, the single-agent form."""

import pytest

from pipeline_lib.environments.writing.runtime import WritingEnvironment, split_texts
from pipeline_lib.environments.writing.settings import PaperWritingReward
from pipeline_lib.environments.writing.settings import WritingSettings as Settings
from pipeline_lib.environments.writing.task import METRICS
from tests.environments.writing.help import problems, world_of


def play(problem, texts, **settings):
    environment = WritingEnvironment(Settings(**settings))
    return environment, environment.step([environment.start(problem)], [texts])[0]


def test_the_reference_is_full_marks_in_every_metric_that_can_be():
    problem = problems("summary")[0]
    environment, outcome = play(problem, problem.reference)
    assert outcome.done and outcome.reward == pytest.approx(environment.reward_bounds[1])
    assert outcome.metrics.keys() == METRICS.keys()
    for name in ("coverage", "all_told", "fitting", "complete", "style", "joints"):
        assert outcome.metrics[name] == 1.0, name
    assert outcome.metrics["inventions"] == outcome.metrics["copied"] == 0.0
    assert outcome.details["texts"] == list(problem.reference)
    assert sum(outcome.terms.values()) == pytest.approx(outcome.reward)


def test_each_writer_is_shown_its_part_and_nothing_of_the_other():
    problem = problems("summary")[1]
    environment = WritingEnvironment(Settings(turns=3))
    state = environment.start(problem)
    assert environment.agents(problem) == ("first", "second")
    shown = [environment.observe(state, number) for number in range(2)]
    assert shown == [problem.observations["first"], problem.observations["second"]]
    outcome = environment.step([state], [("Mine it is.", "Yours it was.")])[0]
    assert not outcome.done
    again = [environment.observe(outcome.state, number) for number in range(2)]
    for number, (own, others) in enumerate([("Mine it is.", "Yours"), ("Yours it was.", "Mine")]):
        assert again[number].startswith(shown[number].rstrip("\n")) and own in again[number]
        assert others not in again[number]
        assert "- sentences that do not follow from what you saw: 1" in again[number]
        assert "- facts told: 0 of" in again[number]


def test_turns_end_with_the_last_or_with_everything_told_and_each_has_its_reward():
    problem = problems("summary")[2]
    environment = WritingEnvironment(Settings(turns=3, feedback="plain"))
    first = environment.step([environment.start(problem)], [("", problem.reference[1])])[0]
    assert "- " not in environment.observe(first.state, 0).replace(problem.observations["first"], "")
    second = environment.step([first.state], [problem.reference])[0]
    assert not first.done and second.done
    assert second.details["reward_of_turn_1"] == first.reward
    assert second.details["reward_of_turn_2"] == second.reward == pytest.approx(environment.reward_bounds[1])
    assert first.state.turns == second.state.turns[:1], "states are values"
    third = environment.step([environment.step([first.state], [("", "")])[0].state], [("", "")])[0]
    assert third.done and len(third.state.turns) == 3


def test_one_agent_writes_both_texts_with_an_empty_line_between_them():
    problem = problems("introduction")[0]
    environment, outcome = play(problem, ["\n\n".join(problem.reference)], team="single")
    assert environment.agents(problem) == ("single",)
    assert outcome.reward == pytest.approx(environment.reward_bounds[1])
    assert environment.observe(environment.start(problem), 0) == problem.observations["single"]
    notes = outcome.state.turns[0].notes
    assert len(notes) == 1 and sum("facts told" in note for note in notes[0]) == 2


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("", ("", "")),
        ("One.", ("One.", "")),
        ("One.\nStill one.", ("One.\nStill one.", "")),
        ("One.\n \t\n\nTwo.\n\nTwo too.", ("One.", "Two.\n\nTwo too.")),
        ("\n\nOne.\n\nTwo.", ("One.", "Two.")),
    ],
)
def test_how_a_single_agents_texts_are_told_apart(text, texts):
    assert split_texts(text) == texts


def test_a_wrong_number_of_actions_is_refused():
    with pytest.raises(ValueError, match="got 1 actions for the 2 agents"):
        play(problems("summary")[0], ["one"])


def test_the_metrics_of_the_source_are_those_of_its_paper():
    problem = problems("summary")[0]
    eight, twelve = "blark blemp bland blorv gnozt gnurk kvaze kvemp", "blark blemp trzark trzemp trzand trzorv so"
    _, outcome = play(problem, [eight, f"{twelve} trzirk trzimp trzind trzilv trzizt trzurk trzump trzund trzulv"])
    metrics = outcome.metrics
    assert metrics["published_structure"] == pytest.approx(1.0)
    assert metrics["published_coherence"] == pytest.approx(0.4), "one category"
    assert metrics["published_consistency"] == pytest.approx(1.0), "two shared words of 22"
    assert metrics["published"] == pytest.approx((0.5 + 1 + 0.5 + 0.16 + 0.6) / 2.98)
    assert metrics["coverage"] == 0.0
    _, paid = play(problem, problem.reference, reward=PaperWritingReward())
    assert paid.reward == pytest.approx(2.98 * paid.metrics["published"])


def test_texts_in_two_tenses_cost_style_and_nothing_else():
    problem = problems("summary")[0]
    world = world_of(problem)
    second = " ".join(world.state(problem.facts[i], problem.hero, 0, "present") for i in problem.parts[1])
    _, outcome = play(problem, [problem.reference[0], second])
    assert outcome.metrics["style"] == pytest.approx(4 / 6)
    assert {name for name in ("coverage", "all_told", "fitting", "joints") if outcome.metrics[name] != 1.0} == set()
