"""All 164 canonical solutions of HumanEval get full marks through the environment, and wrong ones do not."""

import pytest

from pipeline_lib.environments.coding.datasets import read_dataset
from pipeline_lib.environments.coding.runtime import CodingEnvironment
from pipeline_lib.environments.coding.settings import CodingSettings as Settings
from pipeline_lib.environments.coding.settings import DatasetProblems
from pipeline_lib.sandbox import Executor
from tests.human_eval import HUMAN_EVAL


@pytest.fixture(scope="module")
def executor():
    with Executor(slots=4) as made:
        yield made


def read(visible):
    settings = DatasetProblems(kind="humaneval", source=str(HUMAN_EVAL), visible_tests=visible)
    return [problem for problem, _ in read_dataset(settings)]


def solution(problem):
    return problem.reference[problem.entry_point]


@pytest.mark.parametrize("visible", [0, 1])
def test_canonical_solutions_of_a_single_agent_get_full_marks(executor, visible):
    problems = read(visible)
    environment = CodingEnvironment(Settings(team="single", turns=2), lambda: executor)
    states = [environment.start(problem) for problem in problems]
    outcomes = environment.step(states, [[f"```python\n{solution(problem)}\n```"] for problem in problems])
    assert len(outcomes) == 164
    short = {
        p.id: o.details for p, o in zip(problems, outcomes, strict=True) if o.reward != environment.reward_bounds[1]
    }
    assert short == {}
    assert all(outcome.done for outcome in outcomes)


def test_canonical_solutions_survive_being_joined_with_a_helper(executor):
    problems = read(1)
    environment = CodingEnvironment(Settings(), lambda: executor)
    helper = (
        "import math\nfrom typing import List\nK = 3\n"
        "def is_prime(n):\n    return K\n"
        "def aux(*args):\n    return is_prime(K)"
    )
    outcomes = environment.step(
        [environment.start(problem) for problem in problems], [(helper, solution(problem)) for problem in problems]
    )
    failed = {p.id: o.details for p, o in zip(problems, outcomes, strict=True) if o.metrics["all_passed"] != 1.0}
    assert failed == {}
    assert {outcome.reward for outcome in outcomes} == {environment.reward_bounds[1] - 0.4}


def test_a_program_that_returns_none_is_worth_what_it_is_known_to_be(executor):
    """25 cases in 8 problems hold for None; ``above_none`` takes that credit away."""
    problems = read(0)
    actions = [[f"def {problem.entry_point}(*args):\n    return None"] for problem in problems]
    found = {}
    for above_none in (False, True):
        settings = Settings(team="single", reward={"kind": "sound", "above_none": above_none})
        environment = CodingEnvironment(settings, lambda: executor)
        found[above_none] = environment.step([environment.start(problem) for problem in problems], actions)
    assert sum(outcome.metrics["tests_passed"] > 0 for outcome in found[False]) == 8
    assert {outcome.terms["tests"] for outcome in found[True]} == {0.0}
