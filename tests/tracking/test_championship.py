"""Who is champion: the rule, case by case."""

import dataclasses
from typing import Any

import pytest

from pipeline_lib.tracking.championship import Contender, decide

CHAMPION = Contender("team-0-step-80", "brave-owl", "IMPROVED", "", "a" * 64, "tests_passed", 0.5, "e" * 64)


def _other(changes: dict[str, Any]) -> dict[str, str]:
    """Another run trained other weights; the champion's own run has the champion's, if nothing else is said."""
    return {} if changes.get("run") == CHAMPION.run else {"weights": "d" * 64}


def contender(**changes: Any) -> Contender:
    return dataclasses.replace(CHAMPION, **{"run": "calm-fox", "value": 0.9, **_other(changes), **changes})


@pytest.mark.parametrize(
    ("changes", "won", "words"),
    [
        ({}, True, "team-0-step-80 of calm-fox is the new champion: tests_passed 0.9000, above the 0.5000 of "),
        ({"value": 0.5}, False, "tests_passed 0.5000 is not above its 0.5000 on the same test problems"),
        ({"value": 0.4}, False, "tests_passed 0.4000 is not above"),
        ({"verdict": "WORSE"}, False, "the verdict is WORSE, not IMPROVED"),
        ({"verdict": "EQUIVALENT"}, False, "the verdict is EQUIVALENT, not IMPROVED"),
        ({"verdict": "INCONCLUSIVE"}, False, "the verdict is INCONCLUSIVE, not IMPROVED"),
        ({"plan_faults": "another metric"}, False, "the plan was not followed (another metric)"),
        ({"problems": "b" * 64}, False, "it was tested on other problems, so the two cannot be compared"),
        ({"metric": "reward"}, False, "it was tested by tests_passed, so the two cannot be compared"),
        ({"run": "brave-owl", "value": 0.1}, True, "is the champion already: tests_passed 0.1000 on "),
        ({"run": "brave-owl", "weights": "f" * 64, "value": 0.1}, False, "tests_passed 0.1000 is not above its 0.5000"),
        ({"run": "brave-owl", "weights": "f" * 64}, True, "is the new champion: tests_passed 0.9000"),
        ({"run": "brave-owl", "problems": "b" * 64}, False, "it was tested on other problems"),
        ({"weights": "", "value": 0.1}, False, "tests_passed 0.1000 is not above its 0.5000"),
    ],
)
def test_against_a_champion(changes: dict[str, Any], won: bool, words: str) -> None:
    found, why = decide(contender(**changes), CHAMPION)
    assert found == won
    assert words in why
    assert won or why.startswith("the champion stays team-0-step-80 of brave-owl: ")


@pytest.mark.parametrize(
    ("changes", "won", "words"),
    [
        ({}, True, "is the first champion: IMPROVED, tests_passed 0.9000 on the test problems"),
        ({"verdict": "INCONCLUSIVE"}, False, "there is still no champion: the verdict is INCONCLUSIVE"),
        ({"plan_faults": "there was no plan"}, False, "there is still no champion: the plan was not followed"),
    ],
)
def test_without_a_champion(changes: dict[str, Any], won: bool, words: str) -> None:
    found, why = decide(contender(**changes), None)
    assert found == won
    assert words in why


def test_a_test_is_read_back_from_its_tags() -> None:
    assert Contender.from_tags({**CHAMPION.tags(), "other": "x"}) == CHAMPION
    assert Contender.from_tags({"symposium.run": "brave-owl"}) is None, "it was registered without a test"
