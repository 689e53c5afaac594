"""Edits are played on three problems: what is luck on these must not decide."""

import pytest

from pipeline_lib.audit.examiner import Edited, judge
from pipeline_lib.audit.result import Check, Rung, Status, make_rung


def team(name: str, role: str, passed: list[float], form: float = 0.6) -> Rung:
    """Return a team that is paid for form, and for tests passed."""
    return make_rung(name, role, [form + share for share in passed], passed, [{"tests": share} for share in passed])


def judged(rungs: list[Rung], edited: list[Edited], again: list[Rung]) -> dict[str, Check]:
    return {check.name: check for check in judge(rungs, edited, "tests passed", (0.0, 1.6), again)}


RIGHT = [1.0] * 3
EVERYWHERE = [team("reference", "working", [1.0] * 32), team("zero", "degenerate", [0.1] * 32)]


def test_a_constant_that_is_lucky_on_these_problems_is_no_reason_to_refuse() -> None:
    """It passes 40 % of their tests and 10 % of all: 0.7 of 1.6, not 1.0."""
    lucky = team("zero", "degenerate", [1.0, 0.1, 0.1])
    edited = [Edited("reference", team("reference", "working", RIGHT)), Edited("zero", lucky)]
    found = judged(EVERYWHERE, edited, [edited[0].rung])
    assert found["form"].numbers["share"] == pytest.approx(0.7 / 1.6) and found["form"].status is not Status.FAIL


def test_what_an_edit_adds_is_added_to_what_its_team_earns_everywhere() -> None:
    """By hand: 0.7 of all problems, and 0.5 that exclamation marks add on these: 1.2 of 1.6, more than half."""
    lucky = team("zero", "degenerate", [0.4, 0.0, 0.0])
    marks = team("zero with exclamation marks", "degenerate", [0.4, 0.0, 0.0], form=1.1)
    edited = [Edited("reference", team("reference", "working", RIGHT)), Edited("zero", lucky), Edited("zero", marks)]
    found = judged(EVERYWHERE, edited, [edited[0].rung])["form"]
    assert found.status is Status.FAIL and found.numbers["team"] == marks.name
    assert found.numbers["share"] == pytest.approx(1.2 / 1.6)


def test_an_edit_that_breaks_two_of_three_programs_earns_less_if_the_same_texts_always_earn_the_same() -> None:
    reference = team("reference", "working", RIGHT)
    broken = team("reference with small letters", "working", [1.0, 0.0, 0.0])
    edited = [Edited("reference", reference), Edited("reference", broken)]
    assert judged(EVERYWHERE, edited, [reference])["edits"].status is Status.PASS
    for unsteady in (team("reference", "working", [1.0, 1.0, 0.5]), None):  # then three episodes tell little
        found = judged(EVERYWHERE, edited, [] if unsteady is None else [unsteady])
        assert found["edits"].numbers["best"] == broken.name and found["edits"].status is Status.FAIL
