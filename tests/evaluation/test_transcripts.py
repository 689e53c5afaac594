"""What agents read is kept as they read it, with the source of every part."""

import pytest

from pipeline_lib.environment_api.environment import Part
from pipeline_lib.evaluation.run import OTHER, attributed, evaluate_team
from pipeline_lib.play import Player
from pipeline_lib.protocols import make_protocol
from tests.protocols.world import SAMPLING, Listening, Talk, Talking, make_team

PARTS = (
    Part("task", "a task\n"),
    Part("own code", "\nx = 1\n"),
    Part("tests", "- 1\n"),
    Part("tests", "- 2\n"),
    Part("", "Go."),
)
WHOLE = [("task", "a task\n"), ("own code", "\nx = 1\n"), ("tests", "- 1\n- 2\n"), ("", "Go.")]
CUT = [("task", "a task\n"), ("tests", "- 2\n"), ("", "Go."), (OTHER, "\n\nThe other wrote: x = 1\n")]


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        ("a task\n\nx = 1\n- 1\n- 2\nGo.", WHOLE),
        ("<user>a task\nGo.<end>", [(OTHER, "<user>"), ("task", "a task\n"), ("", "Go."), (OTHER, "<end>")]),
        ("a task\n- 2\nGo.\n\nThe other wrote: x = 1\n", CUT),
        ("", []),
    ],
)
def test_every_part_of_a_prompt_has_a_source(prompt: str, found: list[tuple[str, str]]) -> None:
    assert attributed(prompt, PARTS) == found
    assert "".join(text for _, text in found) == prompt


@pytest.mark.parametrize("protocol", ["decentralised", "one_round_discussion"])
def test_prompts_and_answers_of_every_turn_are_those_of_the_engine(protocol: str) -> None:
    team, engine = make_team("one", "two"), Listening()
    engine.load(team.policies)
    player = Player(Talking(), team, engine, SAMPLING, make_protocol(protocol))
    (record,) = evaluate_team(player, [Talk("a", turns=2)], 1, 1, keep_texts=True)
    assert record.shown is not None
    seen = [one for turn in record.shown["seen"] for one in turn]
    asked = [said for call in engine.calls for said in call]
    assert [(one["agent"], "".join(t for _, t in one["prompt"]), one["answer"]) for one in seen] == asked
    assert {source for one in seen for source, _ in one["prompt"]} == (
        {"task"} if protocol == "decentralised" else {"task", OTHER}
    )


def test_one_turn_of_first_observations_keeps_no_second_copy() -> None:
    team, engine = make_team("one", "two"), Listening()
    engine.load(team.policies)
    player = Player(Talking(), team, engine, SAMPLING)
    (record,) = evaluate_team(player, [Talk("a")], 1, 1, keep_texts=True)
    assert record.shown is not None and "seen" not in record.shown
