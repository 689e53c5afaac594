"""Demonstrations for the warm start of philosophers who are asked in words."""

from collections import Counter
from typing import Any

import pytest

from pipeline_lib.environments.philosophers.demonstrations import demonstrate_in_words
from pipeline_lib.environments.philosophers.runtime import PhilosophersEnvironment
from pipeline_lib.environments.philosophers.scenarios import generate_scenarios
from pipeline_lib.environments.philosophers.settings import PhilosophersSettings, ScenarioProblems
from pipeline_lib.environments.philosophers.table import INVALID, LEFT, RIGHT
from pipeline_lib.environments.philosophers.text import intent, read_reply
from pipeline_lib.policies.warm_start import later_turns
from pipeline_lib.settings import Params
from pipeline_lib.settings.policy import PretrainedPolicy

SCENARIOS = generate_scenarios(
    ScenarioProblems(
        kind="scenarios",
        seed=3,
        sizes={"train": 24, "validation": 2, "test": 2},
        family={"philosophers": [3, 5], "horizon": [12], "wordings": 3, "labels": "shuffled"},
    )
)["train"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prompt": "minimal", "mode": "sequential"},
        {"prompt": "theory_of_mind", "message_rounds": 1},
        {"message_rounds": 2, "memory": 3},
        {"message_rounds": 1, "mode": "sequential", "memory": 2, "memory_view": "everybody"},
    ],
)
def test_every_demonstration_is_a_prompt_of_the_environment_with_an_answer_that_it_reads(changes: dict[str, Any]):
    settings = PhilosophersSettings(**changes)
    shown = demonstrate_in_words(SCENARIOS, 200, 0.5, 0, settings)
    assert len(shown) == 200 and shown == demonstrate_in_words(SCENARIOS, 200, 0.5, 0, settings)
    assert shown != demonstrate_in_words(SCENARIOS, 200, 0.5, 1, settings)
    environment = PhilosophersEnvironment(settings)
    first = {environment.observe(environment.start(one), seat) for one in SCENARIOS for seat in range(one.philosophers)}
    assert first & {one.observation for one in shown}, "the first prompts of episodes occur as the environment asks"
    limit = settings.message_limit if settings.message_rounds else 0
    actions: Counter[int] = Counter()
    for one in shown:
        reply = read_reply(one.action, limit)
        if "Nobody acts yet" in one.observation:
            assert reply.message and "ACTION" not in one.action
            continue
        assert reply.action != INVALID
        assert not limit or intent(reply.message) == reply.action, "a message says what is done"
        actions[reply.action] += 1
    assert set(actions) == {0, 1, 2, 3}, "every action occurs"


def test_without_scenarios_there_is_nothing_to_show():
    with pytest.raises(ValueError, match="no scenarios"):
        demonstrate_in_words([], 8, 0.5, 0, PhilosophersSettings())


def test_without_slips_the_left_fork_comes_first_then_the_right_one():
    for one in demonstrate_in_words(SCENARIOS, 100, 0.0, 0, PhilosophersSettings()):
        held = "Left fork: in your hand" in one.observation
        assert read_reply(one.action).action == (RIGHT if held else LEFT)


def test_a_pretrained_model_is_shown_nothing_but_prompts_in_words():
    policy = PretrainedPolicy(kind="pretrained", models=("model",), warm_start={"steps": 2, "batch": 4})
    words = Params(environment={"kind": "philosophers"}, train={"groups": "episodes"}, policy=policy)
    later = later_turns(words)
    assert later is not None and later.share == 1.0
    assert all("ACTION" in one.observation for one in later.demonstrate(SCENARIOS, 8, 0.5, 0))
    compact = words.model_copy(update={"environment": PhilosophersSettings(kind="philosophers", prompt="compact")})
    assert later_turns(compact) is None
