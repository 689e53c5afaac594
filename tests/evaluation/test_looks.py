import dataclasses
import itertools
from typing import Any

import pytest

from pipeline_lib.evaluation.look_correction import correct_for_looks, not_counted
from pipeline_lib.evaluation.looks import Look, Sweep, changed_plans, history, looks_at, seen_in_validation
from pipeline_lib.evaluation.plan import Plan, check_plan, make_plan
from pipeline_lib.evaluation.verdict import add_plan_and_looks
from pipeline_lib.settings.evaluate import EvaluateSettings, VerdictSettings
from tests.evaluation.build import GUARDS

SPLITS = {"validation": ["v1", "v2"], "test": ["q1", "q2", "q3"]}
PLAN = make_plan(
    EvaluateSettings(metric="tests_passed", guards=GUARDS),
    VerdictSettings(),
    {0: [10]},
    SPLITS,
    {"validation": "v", "test": "t"},
    {"sampling": {}},
)
RESULT: dict[str, Any] = {
    "verdict": "IMPROVED",
    "lines": ["Against the base.", "Against a single agent.", "Caveats: none."],
    "caveats": [],
    "comparisons": {
        "base": {
            "names": ["the selected team", "the base"],
            "verdict": "IMPROVED",
            "p_adjusted": 0.02,
            "equivalence_p_adjusted": 0.9,
        },
        "last": {"verdict": "EQUIVALENT", "p_adjusted": 0.5, "equivalence_p_adjusted": 0.01},
    },
}
_minute = itertools.count()


def look(plan: Plan = PLAN, weights: str = "w", episodes: str = "e", problems: tuple[str, ...] = ("a", "b")) -> Look:
    """A look one minute after the one before."""
    time = f"2026-01-01T10:{next(_minute) % 60:02d}:00"
    return Look(plan.to_json(), {"team-0": {"selected": weights}}, problems, episodes, "brave-owl", "c0ffee", time)


def with_(**fields: Any) -> Plan:
    return dataclasses.replace(PLAN, **fields)


def test_the_same_plan_on_the_same_bytes_is_one_look_whoever_looks_when() -> None:
    first = look()
    again = dataclasses.replace(look(), run="other", commit="other")
    assert again.identity == first.identity
    assert looks_at(("a",), [again, first]) == [first], "the first time counts"
    assert correct_for_looks([first], first, RESULT, 0.05)["count"] == 1


@pytest.mark.parametrize(
    "another",
    [
        look(with_(metric="reward")), look(with_(margin=0.15)), look(with_(guards=())), look(with_(test_seed=2001)),
        look(with_(identical_share=1.0)), look(with_(play={"t": 2})), look(weights="x"), look(episodes="f"),
    ],
)  # fmt: skip
def test_another_plan_other_weights_or_other_episodes_are_another_look(another: Look) -> None:
    assert len(looks_at(("a", "b"), [look(), another])) == 2


def test_three_looks_are_three_and_each_says_what_was_changed() -> None:
    known = [look(), look(with_(metric="reward")), look(with_(metric="reward", margin=0.15))]
    found = correct_for_looks(known, known[2], RESULT, 0.05)
    assert (found["number"], found["count"]) == (3, 3)
    assert [row["words"] for row in found["history"]] == [
        "", "metric from tests_passed to reward", "margin from 0.05 to 0.15",
    ]  # fmt: skip
    assert found["history"][2]["changed"] == [{"key": "margin", "before": 0.05, "after": 0.15}]
    assert found["p"]["base"] == {"plain": 0.02, "for_looks": pytest.approx(0.06)}
    assert found["p"]["last"] == {"plain": 0.01, "for_looks": pytest.approx(0.03)}, "equivalence rests on another p"
    assert found["sentence"] == (
        "This is look 3 of 3 at problems of this test split; corrected for 3 looks, p = 0.06, above alpha = 0.05: all "
        "looks together do not support the verdict."
    )
    assert changed_plans(known, [], known[2], []) == [
        "the plan was changed after look 1 at this test split: metric from tests_passed to reward",
        "the plan was changed after look 2 at this test split: margin from 0.05 to 0.15",
    ]


def test_going_back_to_the_first_plan_pays_for_what_was_tried_in_between() -> None:
    first, second = look(), look(with_(margin=0.15))
    found = correct_for_looks([first, second], first, RESULT, 0.05)
    assert found["sentence"].startswith("This is look 1 of 2")
    assert found["p"]["base"]["for_looks"] == pytest.approx(0.04)
    assert "above alpha" not in found["sentence"]
    assert len(changed_plans([first, second], [], first, [])) == 1


def test_a_test_that_was_interrupted_counts_unless_the_same_one_ended() -> None:
    begun = look(episodes="")
    assert [row["words"] for row in history(("a",), [begun])] == ["interrupted"]
    ended = look()
    assert looks_at(("a",), [begun, ended]) == [ended]
    other = look(with_(margin=0.15))
    rows = history(("a",), [begun, other])
    assert [row["ended"] for row in rows] == [False, True]
    twice = [ended, look(episodes="drawn again")]
    assert history(("a",), [begun, *twice])[1]["words"] == "other episodes"


def test_looks_count_for_every_split_that_shares_a_problem() -> None:
    known = [look(problems=("a", "b")), look(problems=("b", "c")), look(problems=("d",))]
    assert [row["shared"] for row in history(("a", "b"), known)] == [2, 1]
    assert [row["shared"] for row in history(("d", "e"), known)] == [1]
    assert history(("z",), known) == []


def test_a_plan_changed_after_the_sweep_is_told_once_and_only_of_these_checkpoints() -> None:
    def sweep(plan: Plan, name: str, *checkpoints: str) -> Sweep:
        return Sweep(plan.to_json(), name, checkpoints, "brave-owl", look().time)

    before = with_(select="one_standard_error")
    sweeps = [sweep(before, "team 0", "w1", "w2"), sweep(before, "team 1", "x1"), sweep(PLAN, "team 0", "w1", "w2")]
    this = look()
    assert changed_plans([this], sweeps, this, {"w1", "w2", "x1"}) == [
        "the plan was changed after its checkpoints had been swept (team 0): "
        "select from one_standard_error to best_mean"
    ]
    assert changed_plans([this], sweeps, this, {"y1"}) == [], "a new training is swept for the first time"
    later = sweep(before, "team 0", "w1", "w2")
    assert changed_plans([this], [sweeps[2], later], this, {"w1"}) == [], "this plan was there before"


def test_test_problems_that_a_sweep_saw_as_validation_problems_are_told() -> None:
    def sweep(run: str, *problems: str) -> Sweep:
        return Sweep(PLAN.to_json(), "team 0", ("w1",), run, look().time, problems)

    sweeps = [sweep("brave-owl", "a", "b"), sweep("brave-owl", "b", "c"), sweep("calm-fox", "z"), sweep("old")]
    assert seen_in_validation(("a", "b", "c", "d"), sweeps) == [
        "3 of the 4 test problems were validation problems of run brave-owl, which its sweep saw"
    ]
    assert seen_in_validation(("d", "e"), sweeps) == []
    assert Sweep.from_json(sweeps[0].to_json()) == sweeps[0]
    before = {key: value for key, value in sweeps[3].to_json().items() if key != "problems"}
    assert Sweep.from_json(before).problems == (), "records of an earlier time hold none"


def test_a_verdict_without_p_value_or_without_repository_says_so() -> None:
    without = {"comparisons": {"base": {"verdict": "INCONCLUSIVE", "p_adjusted": None, "equivalence_p_adjusted": None}}}
    known = [look(), look(weights="x")]
    assert "no p value to correct" in correct_for_looks(known, known[0], without, 0.05)["sentence"]
    assert correct_for_looks(known, known[0], without, 0.05)["p"] == {"base": {"plain": None, "for_looks": None}}
    assert "not a git repository" in not_counted("not a git repository")["not_counted"]


def test_caveats_are_counted_in_one_line_and_their_details_kept_beside_it() -> None:
    first, second = look(), look(with_(margin=0.15))
    fine = add_plan_and_looks(RESULT, check_plan(PLAN, PLAN), correct_for_looks([first], first, RESULT, 0.05))
    assert fine["lines"] == [*RESULT["lines"][:2], "Caveats: none."] and fine["plan"]["followed"]
    known = [first, second, look(with_(margin=0.2))]
    check = check_plan(PLAN, PLAN, changed=changed_plans(known, [], known[2], []))
    told = add_plan_and_looks(RESULT, check, correct_for_looks(known, known[2], RESULT, 0.05))
    assert told["lines"][2] == (
        "Caveats: look 3 of 3 at the test split (corrected for all looks, the verdict against the base is not "
        "significant), 2 changes of the plan."
    )
    details = [text for caveat in told["caveats"] for text in caveat["details"]]
    assert details[1:] == [
        "The plan was changed after look 1 at this test split: margin from 0.05 to 0.15.",
        "The plan was changed after look 2 at this test split: margin from 0.15 to 0.2.",
    ]
    assert not told["plan"]["followed"]


def test_a_look_that_shares_only_some_problems_counts_and_says_how_many() -> None:
    """Two seeds of generated problems share some by chance."""
    known = [look(), look(problems=("b", "c", "d"), weights="x")]
    found = correct_for_looks(known, known[1], RESULT, 0.05, "It counts since today.")
    assert found["count"] == 2 and found["since"] == "It counts since today."
    assert (
        "look 2 of 2 at problems of this test split (1 of its 3 problems in each of the others); " in found["sentence"]
    )


def test_other_code_of_the_statistics_is_another_look_and_another_plan() -> None:
    known = [look(with_(statistics="code 1")), look(with_(statistics="code 2"))]
    assert correct_for_looks(known, known[1], RESULT, 0.05)["history"][1]["words"] == "statistics from code 1 to code 2"
