"""Generated problems: many, reproducible, fairly tested, apart between splits, and unsolvable for one agent alone."""

import dataclasses
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Mapping

import pytest

from pipeline_lib.environments.coding.generated import generate, make_problem, recipe_of
from pipeline_lib.environments.coding.problem import CodingProblem
from pipeline_lib.environments.coding.recipe import FILTERS, LEVELS, MAPS, REDUCTIONS, Kind, Recipe, pieces
from pipeline_lib.environments.coding.settings import GeneratedProblems
from pipeline_lib.problems.splitting import split_of
from pipeline_lib.settings.problems import SplitSizes
from tests.problems.conftest import EVERY_LEVEL, MANY
from tests.problems.running import cases, load, passed

Splits = Mapping[str, list[CodingProblem]]


def _everything(splits: Splits) -> list[CodingProblem]:
    return [problem for problems in splits.values() for problem in problems]


def test_the_same_seed_gives_the_same_problems_and_another_seed_others(level_splits: Splits):
    assert generate(EVERY_LEVEL) == level_splits
    other = generate(EVERY_LEVEL.model_copy(update={"seed": 8}))
    assert {p.id for p in other["train"]} != {p.id for p in level_splits["train"]}


def test_two_thousand_problems_are_different(many_splits: Splits):
    problems = _everything(many_splits)
    assert len(problems) == 2050
    assert len({problem.id for problem in problems}) == len({p.content_hash for p in problems}) == 2050


def test_sizes_and_levels_are_those_asked_for(many_splits: Splits, level_splits: Splits):
    for split in ("train", "validation", "test"):
        assert len(many_splits[split]) == getattr(MANY.sizes, split)
        assert Counter(p.level for p in level_splits[split]) == dict.fromkeys(
            LEVELS, getattr(EVERY_LEVEL.sizes, split) // 4
        )


def test_combinations_of_the_test_split_never_occur_in_training(many_splits: Splits, level_splits: Splits):
    for splits, seed in ((many_splits, MANY.seed), (level_splits, EVERY_LEVEL.seed)):
        families = {split: {problem.family for problem in problems} for split, problems in splits.items()}
        assert not families["train"] & families["test"]
        assert not families["train"] & families["validation"]
        assert not families["validation"] & families["test"]
        assert all(split_of(family, seed) == split for split in families for family in families[split])


def test_every_concept_of_the_test_split_occurs_in_training(many_splits: Splits):
    kinds = {split: {kind for p in ps for kind in p.family.split("/")} for split, ps in many_splits.items()}
    assert kinds["train"] == {*FILTERS, *MAPS, *REDUCTIONS}


def test_the_reference_passes_and_visible_inputs_are_not_hidden_ones(level_splits: Splits):
    for problem in _everything(level_splits):
        solve = load(problem.reference.values(), problem.entry_point)
        hidden, visible = cases(problem.hidden_tests), cases(problem.visible_tests)
        assert (len(hidden), len(visible)) == (EVERY_LEVEL.hidden_tests, EVERY_LEVEL.visible_tests)
        assert all(solve(list(xs)) == answer for xs, answer in hidden + visible)
        inputs = [tuple(xs) for xs, _ in hidden + visible]
        assert len(set(inputs)) == len(inputs)


def test_two_functions_are_needed_and_both_are_in_the_reference(many_splits: Splits):
    for problem in many_splits["validation"]:
        assert set(problem.reference) == {"aux", "main"}
        assert passed(problem, problem.reference.values()) == 1.0
        assert passed(problem, [problem.reference["main"]]) == 0.0


def test_constants_and_programs_that_ignore_a_part_fail_most_tests(many_splits: Splits, level_splits: Splits):
    for problem in _everything(many_splits) + _everything(level_splits):
        recipe = recipe_of(problem)
        tests = cases(problem.hidden_tests)
        constant = Counter(answer for _, answer in tests).most_common(1)[0][1] / len(tests)
        chosen = "\n".join(["def main(xs):", f"    ys = [{recipe.mapped} for x in xs]", f"    return {recipe.reduced}"])
        plain = "\n".join(
            ["def main(xs):", f"    ys = [x for x in xs if {recipe.condition}]", f"    return {recipe.reduced}"]
        )
        assert max(constant, passed(problem, [chosen]), passed(problem, [plain])) < 0.5, problem.id


def test_constants_off_by_one_are_caught(many_splits: Splits):
    fractions = []
    for problem in many_splits["test"]:
        recipe = recipe_of(problem)
        for other in recipe.neighbours():
            if other.reductions == recipe.reductions and _known(other.name):
                fractions.append(passed(problem, other.reference().values()))
    assert sum(fractions) / len(fractions) < 0.3
    assert sum(fraction == 1.0 for fraction in fractions) / len(fractions) < 0.04


def _known(name: str) -> bool:
    try:
        Recipe.parse(name)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "name",
    [
        "even+odd/square/sum",  # no item is both
        "even/modulo2/sum",  # always 0
        "over3/unsigned/sum",  # the map does nothing
        "over3/plus4/largest",  # the filter does nothing to the largest
        "odd/plus3+minus3/sum",  # the maps cancel
    ],
)
def test_degenerate_recipes_make_no_problem(name: str):
    assert make_problem(Recipe.parse(name), 2, 6) is None


def test_observations_name_what_a_role_may_know_and_nothing_else(many_splits: Splits):
    for problem in _everything(many_splits):
        recipe, told = recipe_of(problem), problem.observations
        assert recipe.filter_phrase in told["helper"] and recipe.map_phrase in told["helper"]
        assert recipe.map_phrase in told["main"] and recipe.reduce_phrase in told["main"]
        assert recipe.filter_phrase not in told["main"] and "items, " in told["main"]
        assert recipe.reduce_phrase not in told["helper"].split()
        assert all(p in told["single"] for p in (recipe.filter_phrase, recipe.map_phrase, recipe.reduce_phrase))


@pytest.mark.parametrize(("role", "hidden_part"), [("main", FILTERS), ("helper", REDUCTIONS)])
def test_no_agent_can_solve_a_problem_alone(many_splits: Splits, role: str, hidden_part: Mapping[str, Kind]):
    """For every observation there are two problems with this observation and different answers on hidden tests.

    So whatever an agent that sees only this observation writes, it is wrong on hidden tests of one of them.
    """
    order = pieces(hidden_part)
    random.Random(0).shuffle(order)
    by_observation: dict[str, CodingProblem] = {p.observations[role]: p for p in _everything(many_splits)}
    assert len(by_observation) > 200
    for observation, problem in by_observation.items():
        recipe = recipe_of(problem)
        field = "filters" if role == "main" else "reductions"
        others = (make_problem(dataclasses.replace(recipe, **{field: (piece,)}), 2, 6) for piece in order)
        assert any(
            twin.observations[role] == observation
            and passed(twin, problem.reference.values()) < 1.0
            and passed(problem, twin.reference.values()) < 1.0
            for twin in others
            if twin is not None
        ), f"{observation!r} asks for one program only"


def test_one_observation_stands_for_many_problems_in_training(many_splits: Splits):
    """An agent cannot learn by heart what its partner knows: the same observation asks for different answers."""
    programs = defaultdict(set)
    for problem in many_splits["train"]:
        programs[problem.observations["main"]].add(problem.id)
    repeated = [observation for observation, ids in programs.items() if len(ids) > 1]
    assert len(repeated) > len(programs) / 2


def test_no_visible_and_one_hidden_test_are_possible():
    settings = GeneratedProblems(sizes=SplitSizes(train=3, validation=1, test=1), visible_tests=0, hidden_tests=1)
    for problem in _everything(generate(settings)):
        assert problem.visible_tests == ""
        assert len(cases(problem.hidden_tests)) == 1


def test_a_problem_survives_json(level_splits: Splits):
    for problem in itertools.islice(_everything(level_splits), 20):
        assert CodingProblem.from_json(problem.to_json()) == problem


@pytest.mark.parametrize("level", LEVELS)
def test_plain_english_tells_each_role_what_the_short_lines_tell_it(level: int):
    """Independent of the generator: the words of each piece, and of no piece that the role must not know."""
    sizes = {"train": 30, "validation": 1, "test": 1}
    short, plain = (
        generate(GeneratedProblems.model_validate({"levels": [level], "sizes": sizes, "prompt": prompt}))["train"]
        for prompt in ("compact", "plain")
    )
    assert [problem.id for problem in short] == [problem.id for problem in plain]
    assert [problem.hidden_tests for problem in short] == [problem.hidden_tests for problem in plain]
    for problem in plain:
        recipe = recipe_of(problem)
        told = {
            "helper": (recipe.filters, recipe.maps),
            "main": (recipe.maps, recipe.reductions),
            "single": (recipe.filters, recipe.maps, recipe.reductions),
        }
        for role, text in problem.observations.items():
            assert all(piece.plain in text for pieces_told in told[role] for piece in pieces_told), text
            assert "aux" in text and "main(xs)" in text and text.endswith("Answer with Python code only.\n")
        assert not any(f"that are {piece.plain}" in problem.observations["main"] for piece in recipe.filters)
        assert "Return" not in problem.observations["helper"]
        assert "Choose" not in problem.observations["main"]


def test_every_phrase_in_plain_english_names_one_piece():
    for kinds in (FILTERS, MAPS, REDUCTIONS):
        said = [piece.plain for piece in pieces(kinds)]
        assert len(set(said)) == len(said)
        assert all(str(piece.k) in piece.plain for piece in pieces(kinds) if piece.k is not None)
