"""What philosophers read and write."""

import pytest

from pipeline_lib.environments.philosophers import text
from pipeline_lib.environments.philosophers.table import INVALID, LEFT, RELEASE, RIGHT, WAIT
from pipeline_lib.environments.philosophers.text import intent, read_reply


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("THINKING: hm\nACTION: GRAB_LEFT", LEFT),
        ("action: grab right", RIGHT),
        ("**ACTION:** `RELEASE`.", RELEASE),
        ("ACTION = GRABLEFT", LEFT),
        ("ACTION: WAIT\nwait, better:\nACTION: GRAB-RIGHT", RIGHT),
        ("L", LEFT),
        (" R\n", RIGHT),
        ("D", RELEASE),
        ("wait", WAIT),
        ("", INVALID),
        ("I will not grab left; I would rather not release either", INVALID),
        ("ACTION: EAT", INVALID),
        ("ACTION:", INVALID),
        ("left right", INVALID),
        ("\x00\ud800" * 50, INVALID),
        ("x" * 1_000_000 + "\nACTION: WAIT", INVALID),
    ],
)
def test_actions_are_read_from_their_field_and_from_nowhere_else(reply, action):
    assert read_reply(reply).action == action


def test_messages_are_read_when_there_are_messages_and_cut_at_the_limit():
    reply = "THINKING: x\nMESSAGE: I   take left\nACTION: GRAB_LEFT"
    assert read_reply(reply).message == ""
    assert read_reply(reply, 200).message == "I take left" and not read_reply(reply, 200).message_cut
    long = read_reply("MESSAGE: " + "a" * 300 + "\nACTION: WAIT", 200)
    assert len(long.message) == 200 and long.message_cut and long.action == WAIT


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        ("taking LEFT now", LEFT),
        ("I release the right one", RIGHT),
        ("releasing", RELEASE),
        ("I wait", WAIT),
        ("hi", None),
    ],
)
def test_intents(message, meant):
    assert intent(message) == meant


VIEW = text.View(label=2, philosophers=5, left="free", right="taken", eating=False, meals=3, idle=9)


def test_the_compact_line():
    assert text.compact(VIEW) == "f t h 5 2"
    anonymous = text.View(label=None, philosophers=5, left="mine", right="mine", eating=True, meals=3, idle=0)
    assert text.compact(anonymous) == "m m e 0 -"


def test_prompt_variants_say_what_they_should():
    prompts = {name: text.full(VIEW, name) for name in ("default", "minimal", *text._ADVICE)}
    assert len(set(prompts.values())) == 5
    assert "deadlock" not in prompts["minimal"] and "deadlock" in prompts["default"]
    assert "even" in prompts["resource_ordering"] and "wait" in prompts["symmetry_breaking"]
    for prompt in prompts.values():
        assert "P2" in prompt and "Left fork: free" in prompt and "Right fork: taken" in prompt
        assert "MESSAGE" not in prompt and "ACTION" in prompt


def test_wordings_differ_and_carry_the_same_facts():
    worded = [text.full(VIEW, "default", wording) for wording in range(text.WORDINGS)]
    assert len(set(worded)) == text.WORDINGS
    assert all("P2" in prompt and "5" in prompt for prompt in worded)


def test_messages_and_memory_are_shown():
    prompt = text.full(
        VIEW, "default", heard=[("P1", "mine first"), ("P3", "")], remembered=["step 0: hungry"], message_limit=80
    )
    assert 'P1 says: "mine first"' in prompt and "P3 says" not in prompt
    assert "step 0: hungry" in prompt and "at most 80 characters" in prompt
    only = text.full(VIEW, "default", message_limit=80, message_only=True)
    assert "ACTION: <" not in only and "MESSAGE: <" in only
