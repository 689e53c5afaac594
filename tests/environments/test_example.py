"""The documented example of a full environment with programs does what its page says, and stays short."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.audit.result import Status
from pipeline_lib.environment_api.registry import find, task_class
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.sandbox import Executor
from pipeline_lib.settings.compose import validate_params
from tests.flows.project import ROOT

FOLDER = ROOT / "docs/examples"
KIND = "two_steps:TwoSteps"


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(FOLDER))
    task_class.cache_clear()
    yield find(KIND)
    task_class.cache_clear()


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(slots=2) as made:
        yield made


def params(**environment: Any) -> Any:
    sizes = {"train": 40, "validation": 8, "test": 8}
    values: dict[str, Any] = {"environment": {"kind": KIND, **environment}, "problems": {"sizes": sizes}}
    if environment.get("team") == "single":  # who has nobody to read
        values["evaluate"] = {"baselines": []}
    return validate_params(values, Path("params.yaml"))


def test_it_stays_short(task: Any) -> None:
    assert len((FOLDER / "two_steps.py").read_text().splitlines()) < 250


def test_its_problems_are_prepared_and_read_back(task: Any, tmp_path: Path) -> None:
    section = params().problems
    assert {"kind": "steps", "seed": 7}.items() <= section.model_dump().items()
    prepare(KIND, section, tmp_path)
    splits = task.make_problems(section)
    assert {split: load_split(tmp_path, split) for split in splits} == splits
    assert [len(problems) for problems in splits.values()] == [40, 8, 8]


@pytest.mark.drawn("the example", "pipeline_lib")
@pytest.mark.parametrize("team", ["pair", "single"])
def test_hidden_tests_pay_and_the_audit_says_so(task: Any, executor: Executor, team: str) -> None:
    settings = params(team=team).environment
    problems = task.make_problems(params().problems)["train"]
    environment = task.make(settings, lambda: executor)
    state, agents = environment.start(problems[0]), range(len(environment.agents(problems[0])))
    right = [environment.right_part(state, agent) for agent in agents]
    wrong = [*right[:-1], environment.right_part(environment.start(problems[1]), agents[-1])]
    endless = [text.replace("return", "while True: pass\n    return") for text in right]
    outcomes = environment.step([state] * 4, [right, wrong, endless, ["def first("] * len(agents)])
    assert [outcome.terms["form"] for outcome in outcomes] == [0.1, 0.1, 0.1, 0.0]
    assert outcomes[0].reward == pytest.approx(1.1) and outcomes[0].metrics["all_passed"] == 1.0
    assert outcomes[1].metrics["tests_passed"] < 1.0
    assert [outcomes[n].metrics["tests_passed"] for n in (2, 3)] == [0.0, 0.0]
    environment.refuse_outside_bounds(outcomes)
    rungs, checks = task.audit().examine(environment, problems[:6], 0, lambda *_: None)
    assert rungs[0].name == "reference" and {rung.role for rung in rungs} == {"working", "other", "degenerate"}
    assert {check.status for check in checks} <= {Status.PASS, Status.WARN}, checks


def test_each_agent_is_told_its_own_step_and_a_single_one_both(task: Any) -> None:
    (problem, *_) = task.make_problems(params().problems)["train"]
    pair, single = (task.make(params(team=team).environment, Executor) for team in ("pair", "single"))
    first, second = (pair.observe(pair.start(problem), agent) for agent in (0, 1))
    assert problem.first in first and problem.second not in first.replace(problem.first, "")
    assert single.observe(single.start(problem), 0) == first + second
    assert task.single_agent(params().environment).team == "single"
    assert pair.divided(problem) and not single.divided(problem)
    shown = task.demonstrate([problem], 30, 0.0, 0)
    assert {each.observation for each in shown} == {first, second, first + second} <= set(task.prompts([problem]))
