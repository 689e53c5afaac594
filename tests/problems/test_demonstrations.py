"""Demonstrations: conventions that are right by themselves and wrong together, and mistakes that are mistakes."""

import itertools
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from pipeline_lib.environments.coding.demonstrations import (
    CONVENTIONS,
    MISTAKES,
    ROLES,
    demonstrate,
    plant,
    write_functions,
)
from pipeline_lib.environments.coding.generated import recipe_of
from pipeline_lib.environments.coding.problem import CodingProblem
from tests.problems.running import passed

Splits = Mapping[str, list[CodingProblem]]


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_convention_that_both_follow_passes_everything(convention: str, level_splits: Splits, many_splits: Splits):
    for problem in (*level_splits["train"], *many_splits["test"]):
        functions = write_functions(recipe_of(problem), convention)
        assert passed(problem, functions.values()) == 1.0, problem.id


@pytest.mark.parametrize(("helper", "main"), list(itertools.permutations(CONVENTIONS, 2)))
def test_two_different_conventions_do_not_fit_together(helper: str, main: str, many_splits: Splits):
    fractions = []
    for problem in many_splits["test"][:80]:
        recipe = recipe_of(problem)
        if recipe.maps[0].kind in ("modulo", "unsigned"):  # doing these twice does no harm
            continue
        fractions.append(
            passed(problem, [write_functions(recipe, helper)["aux"], write_functions(recipe, main)["main"]])
        )
    assert sum(fractions) / len(fractions) < 0.2


def test_conventions_roles_and_mistakes_have_their_shares(many_splits: Splits):
    drawn = demonstrate(many_splits["train"], 4000, 0.3, seed=1)
    for key, shares in (("role", ROLES), ("convention", CONVENTIONS)):
        counts = Counter(getattr(demonstration, key) for demonstration in drawn)
        for name, share in shares.items():
            assert counts[name] / len(drawn) == pytest.approx(share, abs=0.04)
    wrong = [demonstration.mistake for demonstration in drawn if demonstration.mistake]
    assert len(wrong) / len(drawn) == pytest.approx(0.3, abs=0.04)
    assert Counter(wrong).keys() == MISTAKES.keys()


def test_the_convention_says_nothing_about_the_problem(many_splits: Splits):
    """Two agents that draw independently agree as often as chance has it, on every problem."""
    drawn = demonstrate(many_splits["train"][:1], 4000, 0.0, seed=2)
    by_role = {role: Counter(d.convention for d in drawn if d.role == role) for role in ("helper", "main")}
    for role, counts in by_role.items():
        for name, share in CONVENTIONS.items():
            assert counts[name] / counts.total() == pytest.approx(share, abs=0.06), role


def test_without_mistakes_every_single_agent_is_right(level_splits: Splits):
    problems = {problem.observations["single"]: problem for problem in level_splits["train"]}
    singles = [d for d in demonstrate(level_splits["train"], 300, 0.0, seed=3) if d.role == "single"]
    assert len(singles) > 30
    assert all(passed(problems[d.observation], [d.action]) == 1.0 for d in singles)


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("role", ROLES)
def test_a_mistake_changes_the_action_and_breaks_it(mistake: str, role: str, many_splits: Splits):
    rng = random.Random(0)
    fractions = []
    for problem in many_splits["test"][:40]:
        recipe = recipe_of(problem)
        for convention in CONVENTIONS:
            right = write_functions(recipe, convention)
            action = plant(mistake, recipe, role, convention, rng)
            whole = {"helper": right["aux"], "main": right["main"], "single": "\n\n".join(right.values())}[role]
            assert action != whole
            partner = {"helper": [right["main"]], "main": [right["aux"]], "single": []}[role]
            fractions.append(passed(problem, [action, *partner]))
    assert sum(fractions) / len(fractions) < 0.3


def test_the_same_seed_gives_the_same_demonstrations(level_splits: Splits):
    first, again, other = (demonstrate(level_splits["train"], 50, 0.3, seed) for seed in (5, 5, 6))
    assert first == again != other


def test_actions_are_short(many_splits: Splits):
    drawn = demonstrate(many_splits["train"], 500, 0.3, seed=4)
    assert max(len(d.action.split()) for d in drawn if d.role != "single") <= 30


def test_nothing_can_be_demonstrated_on_nothing_or_on_other_problems(many_splits: Splits):
    with pytest.raises(ValueError, match="no problems to demonstrate"):
        demonstrate([], 1, 0.0, 0)
    foreign = CodingProblem.from_json({**many_splits["test"][0].to_json(), "id": "HumanEval/0"})
    with pytest.raises(ValueError, match="not a recipe"):
        demonstrate([foreign], 1, 0.0, 0)
