"""Generated programs in several modules: graphs, tests that find mistakes, and what each agent is told."""

import json
import random
from typing import Any

import pytest

from pipeline_lib.environments.modules.generated import TOP, Design, design_of, draw_design, graph, observations
from pipeline_lib.environments.modules.problem import SINGLE, ModulesProblem
from pipeline_lib.environments.modules.program import below
from pipeline_lib.environments.modules.settings import GeneratedModules
from pipeline_lib.problems.splitting import split_of
from tests.environments.modules.help import DESIGNS, asserts, generated, plain_passed, problem


def test_graphs_have_the_layers_of_their_level():
    assert graph(2, 2) == {"one": (), "main": ("one",)}
    assert graph(3, 2) == {"one": (), "two": (), "main": ("one", "two")}
    assert graph(3, 3) == {"one": (), "two": ("one",), "main": ("two",)}
    assert graph(4, 2) == {"one": (), "two": (), "three": (), "main": ("one", "two", "three")}
    assert graph(4, 3) == {"one": (), "two": ("one",), "three": ("one",), "main": ("two", "three")}
    assert graph(4, 4) == {"one": (), "two": ("one",), "three": ("two",), "main": ("three",)}


@pytest.mark.parametrize("modules", [2, 3, 4])
def test_problems_are_read_back_and_split_by_family(modules: int):
    for split, found in generated(modules).items():
        assert len({p.id for p in found}) == len({p.content_hash for p in found}) == len(found)
        for each in found:
            assert ModulesProblem.from_json(json.loads(json.dumps(each.to_json(), sort_keys=True))) == each
            assert split_of(each.family, 7) == split and len(each.parts) == modules
            assert design_of(each).name in each.id and each.level == design_of(each).depth - 1
    assert {p.level for p in generated(modules)["train"]} == set(range(1, modules))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"parts": []}, "parts: there are none"),
        ({"observations": {"one": "keep", "main": "sum"}}, "observations: single is missing"),
        ({"unit_tests": {"main": ""}}, "unit_tests: one is missing"),
        ({"needs": {}}, "needs: one is missing"),
    ],
)
def test_an_incomplete_problem_is_refused_in_words(change: dict[str, Any], says: str):
    with pytest.raises(ValueError, match=says):
        ModulesProblem.from_json({**problem(DESIGNS[0]).to_json(), **change})


@pytest.mark.parametrize("design", DESIGNS)
def test_both_known_solutions_pass_everything_in_plain_python_and_do_not_mix(design: str):
    made = problem(design)
    early, late = made.references
    for known in made.references:
        assert plain_passed(made, known, TOP, made.system_tests) == 1.0
        for part in made.parts:
            among = {name: known[name] for name in (*below(made, part), part)}
            assert plain_passed(made, among, part, made.unit_tests[part]) == 1.0
    assert plain_passed(made, {**early, TOP: late[TOP]}, TOP, made.system_tests) <= 0.5
    assert plain_passed(made, {**late, TOP: early[TOP]}, TOP, made.system_tests) <= 0.5


@pytest.mark.parametrize("modules", [2, 3, 4])
def test_system_tests_find_programs_without_a_piece(modules: int):
    for made in generated(modules)["train"]:
        design = design_of(made)
        for part in made.parts[:-1]:
            needs, step = made.needs[part], design.step(part).code
            imports, items = (f"from app import {needs[0]}\n\n", f"{needs[0]}.run(xs)") if needs else ("", "xs")
            idle = f"{imports}def run(xs):\n    return [{step} for x in {items}]\n"
            team = {**made.references[0], part: idle}
            assert plain_passed(made, team, TOP, made.system_tests) <= 0.5, (design.name, part)
        tests = [*asserts(made.system_tests), *(line for part in made.parts for line in asserts(made.unit_tests[part]))]
        assert len(tests) == 6 + 4 * modules
        inputs = {line.partition(")")[0] for line in asserts(made.system_tests)}
        assert not inputs & {line.partition(")")[0] for part in made.parts for line in asserts(made.unit_tests[part])}


def test_each_agent_sees_its_part_only_and_no_test():
    """What it is told stays the same if everything else of the design changes."""
    rng, different = random.Random(0), 0
    for made in (p for modules in (2, 3, 4) for p in generated(modules)["train"]):
        design = design_of(made)
        other = draw_design(len(made.parts), made.level, rng)
        for part in made.parts:
            told = made.observations[part]
            assert told == f"{design.said(part)}\n"
            assert not [name for name in made.parts if f"{name}.py" in told and name != part]
            known = [design.step(name) for name in (*made.needs[part], *(() if part == TOP else (part,)))]
            changed = Design(
                design.depth,
                tuple(
                    own if name == part else new
                    for name, own, new in zip(made.parts, design.own, other.own, strict=False)
                ),
                tuple(own if own in known else new for own, new in zip(design.steps, other.steps, strict=True)),
                design.end if part == TOP else other.end,
            )
            assert changed.said(part) == design.said(part)
            different += changed != design
        assert made.observations[SINGLE] == "".join(made.observations[part] for part in made.parts)
        for text in made.observations.values():
            assert "assert" not in text and "[" not in text and "def " not in text
    assert different > 150


def test_settings_refuse_levels_that_do_not_exist():
    with pytest.raises(ValueError, match="there is no level 3 with 3 modules; accepted: 1 to 2"):
        GeneratedModules(modules=3, levels=(1, 3))
    with pytest.raises(ValueError, match="is no design"):
        Design.parse("even/sum")
    with pytest.raises(ValueError, match="names no piece"):
        Design.parse("2/evn/plus2/sum")


@pytest.mark.parametrize("modules", [2, 3, 4])
def test_plain_english_tells_each_agent_its_part_only(modules: int):
    """Every piece that the short lines name is there, and nothing that changes with the rest of the design."""
    rng = random.Random(0)
    for _ in range(60):
        design = draw_design(modules, rng.randrange(1, modules), rng)
        told = observations(design, "plain")
        for part, needs in design.needs.items():
            pieces = [design.end] if part == TOP else [design.piece(part), design.step(part)]
            pieces += [design.step(needs[0])] if needs else []
            assert all(piece.plain in told[part] for piece in pieces), told[part]
            assert all(name in told[part] for name in needs)
            other = draw_design(modules, design.depth - 1, rng)
            known = [design.step(name) for name in (*needs, *(() if part == TOP else (part,)))]
            changed = Design(
                design.depth,
                tuple(
                    own if name == part else new
                    for name, own, new in zip(design.needs, design.own, other.own, strict=False)
                ),
                tuple(own if own in known else new for own, new in zip(design.steps, other.steps, strict=True)),
                design.end if part == TOP else other.end,
            )
            assert observations(changed, "plain")[part] == told[part]
        assert all(f"{part}.py" in told[SINGLE] for part in design.needs)
        assert set(told) == {*design.needs, SINGLE}
