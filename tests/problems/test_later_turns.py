"""Demonstrations of later turns: what the environment really tells, and a repair that fits it."""

import functools
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pipeline_lib.environments.coding.demonstrations import ROLES, CodingDemonstration, demonstrate, demonstrate_later
from pipeline_lib.environments.coding.generated import draw_problems
from pipeline_lib.environments.coding.problem import CodingProblem
from pipeline_lib.environments.coding.runtime import CodingEnvironment
from pipeline_lib.environments.coding.settings import CodingSettings as Settings
from pipeline_lib.environments.coding.settings import GeneratedProblems
from pipeline_lib.sandbox import Executor, Limits
from pipeline_lib.storage import digest
from tests.problems.running import passed

Splits = Mapping[str, list[CodingProblem]]

BEGINNING = "Your code:\n"


@pytest.fixture(scope="module")
def shown(many_splits: Splits) -> Iterator[Any]:
    """Demonstrate on the first training problems; the sandbox closes with the environment."""

    @functools.cache
    def make(count: int, mistakes: float = 0.0, seed: int = 0, **settings: Any) -> list[CodingDemonstration]:
        section = Settings(turns=2, **settings)
        executor = functools.partial(Executor, slots=2, limits=Limits())
        return demonstrate_later(many_splits["train"][:60], count, mistakes, seed, section, executor)

    yield make


def draft(demonstration: CodingDemonstration) -> str:
    """Return the agent's own code that it is shown."""
    return demonstration.observation.split(BEGINNING)[1].partition("\n- ")[0].partition("\nWrite it again")[0].strip()


def drawn_problems() -> list[CodingProblem]:
    rng = random.Random(digest(["problems", 7, "train"]))
    return draw_problems("train", 40, GeneratedProblems(seed=7), rng)


def told(demonstration: CodingDemonstration) -> str:
    return demonstration.observation.split(BEGINNING)[1]


def test_the_first_turns_are_demonstrated_as_they_were() -> None:
    """The default base is made from these: another digest is another base, another learning curve."""
    drawn = demonstrate(drawn_problems(), 2000, 0.2, seed=0)
    found = digest([[one.observation, one.action] for one in drawn])
    assert found == "acccc6b05e8c472f38a6381013ba4a82decc531ce1db7d9a5ec0c1a560facb88"


def test_the_observation_is_what_the_environment_shows_for_this_draft(many_splits: Splits, shown: Any) -> None:
    problems = {problem.observations["single"]: problem for problem in many_splits["train"]}
    singles = [one for one in shown(120) if one.role == "single"]
    with Executor(slots=2, limits=Limits()) as executor:
        environment = CodingEnvironment(Settings(team="single", turns=2), lambda: executor)
        states = [environment.start(problems[one.observation.partition("\n\nYour code")[0] + "\n"]) for one in singles]
        outcomes = environment.step(states, [[draft(one)] for one in singles])
    again = [environment.observe(outcome.state, 0) for outcome in outcomes]
    assert len(again) > 10 and again == [one.observation for one in singles]


def test_without_mistakes_every_repair_by_a_single_agent_passes_all_tests(many_splits: Splits, shown: Any) -> None:
    problems = {problem.observations["single"].strip(): problem for problem in many_splits["train"]}
    singles = [one for one in shown(120) if one.role == "single"]
    assert all(passed(problems[one.observation.partition("\n\nYour")[0].strip()], [one.action]) == 1 for one in singles)
    assert any(draft(one) != one.action for one in singles), "many drafts were wrong"


def test_the_main_agent_adapts_to_the_helper(shown: Any) -> None:
    for one in shown(400):
        if one.role == "main" and "'int' object is not iterable" in told(one):
            assert one.convention in ("list", "keep"), "the helper takes a list"
        if one.role == "main" and "instances of 'list' and 'int'" in told(one):
            assert one.convention in ("pred", "skip"), "the helper takes an item"


def test_a_program_that_passes_is_repeated(shown: Any) -> None:
    passing = [one for one in shown(400, 0.5) if "tests passed: 2 of 2" in told(one)]
    assert len(passing) > 20 and all(one.action.strip() == draft(one) and not one.mistake for one in passing)


def test_without_feedback_nobody_can_adapt(shown: Any) -> None:
    mains = [one for one in shown(400, feedback=()) if one.role == "main"]
    assert all("\n- " not in told(one) for one in mains)
    alike = [one for one in mains if draft(one) == one.action]
    assert len(alike) > len(mains) / 3, "right drafts stay as they are"


def test_of_a_critic_half_of_the_demonstrations_have_a_note_with_a_draft(shown: Any) -> None:
    drawn = shown(400, feedback=("tests", "critic"))
    noted = [one for one in drawn if "the untrained model would write:" in told(one)]
    assert len(noted) / 400 == pytest.approx(0.5, abs=0.1)
    drafts = [told(one).partition("would write:\n")[2].partition("\nWrite it again")[0] for one in noted]
    same = [draft == one.action.strip() for draft, one in zip(drafts, noted, strict=True)]
    assert sum(same) / len(same) == pytest.approx(0.55, abs=0.15), "as often wrong as a weak critic"
    assert all("def " in draft for draft in drafts)
    passing = [right for right, one in zip(same, noted, strict=True) if "tests passed: 2 of 2" in told(one)]
    assert passing and all(passing)


def test_without_a_critic_later_turns_are_demonstrated_as_they_were() -> None:
    problems, executor = drawn_problems(), functools.partial(Executor, slots=1, limits=Limits())
    drawn = demonstrate_later(problems, 60, 0.2, 0, Settings(turns=2), executor)
    found = digest([[one.observation, one.action] for one in drawn])
    assert found == "71a88a76e78a12b0ea1412aef8d536a6665ccbc3e165f6342550ef0cc372a9ec"


def test_shares_of_roles_and_mistakes_and_the_same_list_again(shown: Any) -> None:
    drawn = shown(400, 0.5)
    counts = Counter(one.role for one in drawn)
    assert all(counts[role] / 400 == pytest.approx(share, abs=0.07) for role, share in ROLES.items())
    changeable = [one for one in drawn if "tests passed: 2 of 2" not in told(one)]
    assert sum(bool(one.mistake) for one in changeable) / len(changeable) == pytest.approx(0.5, abs=0.1)
    assert shown(40) != shown(40, seed=1)
    assert shown(40) == shown(40, 0.0, 0), "drawn again"


def test_nothing_can_be_demonstrated_on_nothing() -> None:
    with pytest.raises(ValueError, match="no problems to demonstrate"):
        demonstrate_later([], 1, 0.0, 0, Settings(turns=2), Executor)
