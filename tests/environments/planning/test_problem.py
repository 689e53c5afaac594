"""Appointments, against all 56 plans in plain Python."""

import dataclasses
import json
from collections import Counter

import pytest

from pipeline_lib.environments.planning.problem import PLANS, PRICES, PlanningProblem, blind, generate
from pipeline_lib.environments.planning.settings import AppointmentProblems
from tests.environments.planning.help import ALL, COSTS, SIZES, appointments, constraints, share_of


@pytest.mark.parametrize("options", [3, 4])
@pytest.mark.parametrize("budgets", [True, False])
def test_exactly_one_plan_satisfies_everything_and_no_kind_of_constraint_can_be_left_out(
    options: int, budgets: bool
) -> None:
    assert sorted(PLANS) == sorted(ALL) and PRICES == COSTS
    for problem in appointments(options, budgets)["train"]:
        allowed = constraints(problem)
        kinds = len(allowed) // 2
        assert kinds == 2 + budgets
        [plan] = set.intersection(*allowed)
        assert problem.suiting(0, 1) == [plan]
        for agent in (0, 1):
            own = set.intersection(*allowed[agent * kinds : (agent + 1) * kinds])
            assert set(problem.suiting(agent)) == own and len({day for day, _ in own}) == options
        for kind in range(kinds):
            left = [each for number, each in enumerate(allowed) if number % kinds != kind]
            assert len(set.intersection(*left)) > 1
        assert [problem.share(each) for each in ALL] == [pytest.approx(share_of(problem, each)) for each in ALL]
        assert problem.share(None) == 0.0


def test_no_plan_is_much_likelier_than_another_and_the_best_blind_one_is_found() -> None:
    problems = generate(AppointmentProblems(sizes={**SIZES, "train": 3000}))["train"]
    right = Counter(problem.suiting(0, 1)[0] for problem in problems)
    plan, satisfied, met = blind(problems)
    assert satisfied == right[plan] / 3000 == max(right.values()) / 3000 < 0.05
    assert len(right) == 42 and min(right.values()) / 3000 > 0.01
    few = problems[:60]
    rates = {each: sum(share_of(problem, each) for problem in few) / 60 for each in ALL}
    exact = {each: sum(share_of(problem, each) == 1.0 for problem in few) / 60 for each in ALL}
    best = max(ALL, key=lambda each: (exact[each], rates[each]))
    assert blind(few)[1:] == (pytest.approx(exact[best]), pytest.approx(rates[best]))
    assert met < 0.7


def test_the_same_settings_give_the_same_problems_and_no_problem_is_in_two_splits() -> None:
    found = appointments()
    assert found == generate(AppointmentProblems(sizes=SIZES)) != generate(AppointmentProblems(sizes=SIZES, seed=8))
    names = [problem.id for problems in found.values() for problem in problems]
    assert len(set(names)) == len(names) == sum(SIZES.values())
    problem = found["test"][0]
    assert PlanningProblem.from_json(json.loads(json.dumps(problem.to_json()))) == problem
    turned = dataclasses.replace(problem, days=tuple(days[::-1] for days in problem.days))
    assert turned != problem and (turned.id, turned.content_hash) == (problem.id, problem.content_hash)


@pytest.mark.parametrize("budgets", [True, False])
def test_no_split_has_the_mirror_image_of_a_problem_of_another(budgets: bool) -> None:
    def both(problem: PlanningProblem) -> frozenset[tuple[frozenset[str], frozenset[str], int | None]]:
        own = zip(problem.days, problem.places, problem.budgets or (None, None), strict=True)
        return frozenset((frozenset(days), frozenset(places), budget) for days, places, budget in own)

    sizes = {"train": 4096, "validation": 64, "test": 128}
    found = generate(AppointmentProblems(options=4, budgets=budgets, sizes=sizes))
    contents = {split: {both(problem) for problem in problems} for split, problems in found.items()}
    assert len(contents["train"]) < 4096, "within a split there are some"
    assert not contents["train"] & contents["validation"] and not contents["test"] & contents["train"]
    assert not contents["test"] & contents["validation"]
    problem = found["test"][0]
    mirror = dataclasses.replace(
        problem, days=problem.days[::-1], places=problem.places[::-1], budgets=problem.budgets[::-1]
    )
    assert mirror.content_hash == problem.content_hash and mirror.id != problem.id
    other = dataclasses.replace(problem, days=problem.days[::-1])
    assert other.content_hash != problem.content_hash


@pytest.mark.parametrize(
    ("changed", "error", "reason"),
    [
        ({"hours": []}, TypeError, "hours"),
        ({"days": 3}, TypeError, "int"),
        ({"days": [["mon"]]}, ValueError, "two agents"),
        ({"budgets": [1]}, ValueError, "two budgets or none"),
        ({"budgets": ["1", "2"]}, TypeError, "whole numbers"),
        ({"days": [["mon"], ["noon"]]}, ValueError, "no day 'noon'; accepted: mon, tue"),
        ({"places": [["park"], ["sea"]]}, ValueError, "no place 'sea'; accepted: park, lake"),
    ],
)
def test_what_is_no_appointment_is_refused_in_words(
    changed: dict[str, object], error: type[Exception], reason: str
) -> None:
    row = appointments()["test"][0].to_json()
    with pytest.raises(error, match=reason):
        PlanningProblem.from_json({**row, **changed})
    with pytest.raises(TypeError, match="places"):
        PlanningProblem.from_json({"days": row["days"]})
