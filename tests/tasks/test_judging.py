"""The plan binds: whatever is changed after a look is told on the verdict, and looks are counted in git.

The stages' own functions run on episodes that are made up, in a repository; only what plays and trains is left out.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flows.select import select_checkpoints
from flows.verdict import COMPARED, judge
from pipeline_lib import storage
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_manifest
from pipeline_lib.settings import Params
from pipeline_lib.tracking import Contender
from pipeline_lib.training.checkpoint_folders import RECORD, step_folder
from tasks.experiment import episode_files
from tasks.experiment.arms import (
    PLAN_FILE,
    PROBLEMS,
    RESULTS,
    SINGLE,
    TEAM,
    compute_file,
    sweep_folder,
    trained_folder,
    training_file,
)
from tasks.experiment.compute import budget_of
from tasks.experiment.plans import plan_of
from tasks.looks import looking
from tasks.runtime.tracked_run import ENDED, PLAN_FAULTS
from tasks.stages.champion import update_champion
from tests.evaluation.build import episode

SMALL: dict[str, Any] = {
    "problems": {"kind": "generated", "sizes": {"train": 8, "validation": 6, "test": 12}},
    "seeds": {"train": [0], "single_agent": []},
    "train": {"steps": 20, "checkpoint_every": 10, "problems_per_step": 4},
    "evaluate": {
        "validation": {"samples": 2, "seed": 1000},
        "test": {"samples": 2, "seed": 2000},
        "baselines": [],
        "pass_k": [1],
    },
    "verdict": {"resamples": 200},
    "rollouts": {"kind": "transformers"},
    "environment": {"kind": "coding"},
}
WEIGHTS = {"team-0": {"selected": "w20", "last": "w20"}}

UPDATES = [{"step": step, "time/step_s": 0.5, "actions/tokens": 100, "executions/count": 50} for step in range(1, 21)]


class Run:
    """Keeps what a stage reports."""

    name = "brave-owl"

    def __init__(self) -> None:
        self.tags: dict[str, str] = {}
        self.metrics: dict[str, float] = {}
        self.artifacts: dict[str, str] = {}
        self.tracked = self.whole = self

    def tag(self, tags: dict[str, str]) -> None:
        self.tags |= tags

    def summary(self, metrics: dict[str, float | None]) -> None:
        self.metrics |= {name: value for name, value in metrics.items() if value is not None}

    def markdown(self, name: str, text: str) -> None:
        self.artifacts[name] = text

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def settings(**changes: dict[str, Any]) -> Params:
    return Params.model_validate({**SMALL, **{key: {**SMALL[key], **value} for key, value in changes.items()}})


def write(path: Path, split: str, samples: int, mean: float) -> None:
    ids = load_manifest(PROBLEMS)["splits"][split]["ids"]
    rows = [
        episode(name, k, mean + 0.01 * ((7 * i + 3 * k + round(50 * mean)) % 11), syntax=1.0)
        for i, name in enumerate(ids)
        for k in range(samples)
    ]
    storage.write_jsonl(path, (row.to_json() for row in rows))


def register(params: Params, run: Run) -> None:
    plan = plan_of(params)
    plan.write(PLAN_FILE)
    looking.remember_plan(plan, run.name)


def chain(params: Params, *, stop: bool = False, mean: float = 0.8) -> tuple[dict[str, Any], Run]:
    """Do what the stages from `preregister` to `verdict` do; ``stop``: the test is interrupted after the base."""
    run: Any = Run()
    register(params, run)
    storage.write_jsonl(training_file(TEAM, 0), UPDATES)
    folder = sweep_folder(TEAM, 0)
    shutil.rmtree(folder, ignore_errors=True)
    looking.begin_sweep(TEAM, 0, {10: "w10", 20: "w20"}, run.name)
    for step in (0, 10, 20):
        write(folder / f"step-{step:05d}.jsonl", "validation", params.evaluate.validation.samples, 0.1 + step / 50)
    record = {"format": 1, "files": {}, "team": "w20"}
    storage.write_json(step_folder(trained_folder(TEAM, 0), 20) / RECORD, record)
    if params.seeds.single_agent:
        shutil.copytree(folder, sweep_folder(SINGLE, 0))
    run.params = params
    select_checkpoints(run)
    shutil.rmtree(episode_files.TESTED, ignore_errors=True)
    look = looking.begin_look(WEIGHTS, run.name)
    if params.seeds.single_agent:
        for which, seed in (("base", None), ("selected", 0)):
            write(episode_files.tested_file(SINGLE, which, seed), "test", params.evaluate.test.samples, 0.3)
    write(episode_files.tested_file(TEAM, "base"), "test", params.evaluate.test.samples, 0.1)
    if stop:
        return {}, run
    for which in ("selected", "last"):
        write(episode_files.tested_file(TEAM, which, 0), "test", params.evaluate.test.samples, mean)
    episode_files.write_bounds([(0.0, 1.6)])
    looking.end_look(look)
    return verdict(params)


def test_a_run_that_a_monitor_of_the_plan_ended_has_one_look_and_no_changed_plan():
    """Four checkpoints were planned, a monitor ended the run after two: the plan foresees that."""
    result, run = chain(settings(train={"steps": 40, "stop_when": ["reward_hacking"]}))
    assert result["looks"]["count"] == 1
    assert result["plan"]["followed"] and not result["plan"]["changed"] and not run.tags[PLAN_FAULTS]
    assert result["design"]["checkpoints"] == {"0": [10, 20]}, "what was done is still told"
    assert result["ended_by_monitors"] == [] and run.tags[ENDED] == "", "nothing in the log says that one did"
    last = {**UPDATES[-1], "monitors/ended/reward_hacking": 1.0}
    storage.write_jsonl(training_file(TEAM, 0), [*UPDATES[:-1], last])
    result, run = verdict(settings(train={"steps": 40, "stop_when": ["reward_hacking"]}))
    (said,) = result["ended_by_monitors"]
    assert said == run.tags[ENDED] and "after update 20 by the monitor reward hacking" in said
    assert said in run.artifacts["verdict"]


def test_without_such_a_monitor_missing_checkpoints_are_told():
    result, _ = chain(settings(train={"steps": 40}))
    assert not result["plan"]["followed"]
    assert "checkpoints.0: planned [10,20,30,40], done [10,20]" in result["plan"]["deviations"][0]


def test_the_verdict_says_by_what_the_single_agent_was_matched_and_how_it_came_out():
    params = settings(seeds={"train": [0], "single_agent": [0]}, train={"single_agent_budget": "executions"})
    rows = [{"step": k, "time/step_s": 2.0, "actions/tokens": 50, "executions/count": 33} for k in range(1, 32)]
    storage.write_jsonl(training_file(SINGLE, 0), rows)
    storage.write_json(compute_file(0), {"tokens": 2000.0, "executions": 1000.0, "seconds": 10.0})
    budget = budget_of(params, SINGLE)
    assert budget is not None and (budget.measure, budget.amount) == ("executions", 1000.0)
    assert budget_of(params, TEAM) is None
    result, _ = chain(params)
    found = result["comparisons"]["single-agent GRPO"]
    assert found["compute"]["matched"] == result["design"]["single_agent_budget"] == "executions"
    assert found["compute"]["ratio"]["executions"] == pytest.approx(33 * 31 / 1000)
    assert found["compute"]["ratio"]["seconds"] == pytest.approx(6.2)
    said = (
        "matched by executed joint actions: a training run of the single agent used 1,023, 1.023 times those of the "
        "team (1,000), in 31 updates instead of 20, with 0.78 times the sampled tokens and 6.20 times the seconds"
    )
    assert said in found["sentence"]
    assert "compute" not in result["comparisons"]["untrained single agent"]
    settings_now = settings(seeds={"train": [0], "single_agent": [0]}, train={"single_agent_budget": "tokens"})
    changed, _ = verdict(settings_now)
    assert any("single_agent_budget" in text for text in changed["plan"]["deviations"]), "the plan binds it"


def verdict(params: Params) -> tuple[dict[str, Any], Run]:
    run: Any = Run()
    run.params = params
    judge(run)
    return storage.read_json(RESULTS / "verdict.json"), run


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("{}")
    subprocess.run(["git", "init", "-q"], check=True)
    prepare(settings().environment.kind, settings().problems, PROBLEMS)
    return tmp_path


def test_the_first_look_says_nothing_and_the_same_again_is_not_another() -> None:
    params = settings()
    for _ in range(2):
        found, run = chain(params)
        assert found["plan"]["followed"], found["plan"]
        assert found["looks"]["count"] == 1 and found["looks"]["sentence"] == ""
        assert found["lines"][2] == "Caveats: 1 doubt about the statistics.", "there are 12 problems"
        assert run.tags["symposium.looks"] == "1" and run.tags["symposium.plan_faults"] == ""
        assert run.metrics["test/looks"] == 1 and run.metrics["test/p_for_looks"] == run.metrics["test/p"]


def test_the_numbers_that_people_compare_are_few_and_of_this_run() -> None:
    found, _ = chain(settings())
    numbers = storage.read_json(RESULTS / "metrics.json")
    assert list(numbers) == [*COMPARED, "updates", "seconds"] and len(numbers) == 12
    assert (numbers["verdict"], numbers["metric"], numbers["p"]) == (found["verdict"], "tests_passed", found["p"])
    assert (numbers["updates"], numbers["seconds"]) == (20, 10.0)


def test_means_and_difference_of_a_run_add_up_if_episodes_of_the_base_were_lost() -> None:
    """A problem that the base lost as a whole is in neither mean; what compares runs shows what the lines say."""
    params = settings()
    chain(params)
    path = episode_files.tested_file(TEAM, "base")
    rows = list(storage.read_jsonl(path))
    for row in rows[:3]:
        row |= {"reward": None, "terms": {}, "metrics": {}}
    storage.write_jsonl(path, rows)
    found, run = verdict(params)
    numbers = storage.read_json(RESULTS / "metrics.json")
    assert numbers["selected"] - numbers["base"] == pytest.approx(numbers["difference"], abs=2e-6)
    assert run.metrics["test/selected"] == numbers["selected"] and run.metrics["test/base"] == numbers["base"]
    assert f"{100 * numbers['selected']:.1f} % against {100 * numbers['base']:.1f} %" in found["lines"][0]


def test_a_team_is_no_better_champion_for_what_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = chain(settings())
    told: list[Contender] = []
    monkeypatch.setattr(run, "champion", lambda _chosen, _name, tested: told.append(tested), raising=False)
    monkeypatch.setattr(run, "champion_decision", lambda: "", raising=False)
    update_champion(run)
    path = episode_files.tested_file(TEAM, "selected", 0)
    rows = sorted(storage.read_jsonl(path), key=lambda row: row["reward"])
    for row in rows[:3]:
        row |= {"reward": None, "terms": {}, "metrics": {}}
    storage.write_jsonl(path, rows)
    found, _ = verdict(settings())
    update_champion(run)
    assert found["teams"]["selected"]["metrics"]["tests_passed"] > told[0].value > told[1].value


CHANGES: list[tuple[str, str, Any, str, Any, Any]] = [
    ("evaluate", "metric", "reward", "metric", "tests_passed", "reward"),
    ("evaluate", "select", "one_standard_error", "select", "best_mean", "one_standard_error"),
    ("evaluate", "guards", [], "guards", ..., []),
    ("evaluate", "identical_share", 1.0, "identical_share", 0.95, 1.0),
    ("evaluate", "test", {"samples": 2, "seed": 9}, "test_seed", 2000, 9),
    ("evaluate", "validation", {"samples": 2, "seed": 8}, "validation_seed", 1000, 8),
    ("verdict", "margin", 0.15, "margin", 0.05, 0.15),
    ("verdict", "alpha", 0.1, "alpha", 0.05, 0.1),
    ("rollouts", "temperature", 0.5, "play.sampling.temperature", 1.0, 0.5),
    ("environment", "stop_at", 0.5, "play.environment.stop_at", 1.0, 0.5),
]


def test_whatever_is_changed_after_the_test_is_told_with_what_it_was(project: Path) -> None:
    """The chain again and again, as DVC runs it, each time with one more setting changed: each is another look."""
    chain(settings())
    changed: dict[str, Any] = {}
    for number, (section, key, value, field, before, after) in enumerate(CHANGES, start=2):
        changed.setdefault(section, {})[key] = value
        found, run = chain(settings(**changed))
        assert not found["plan"]["followed"] and found["plan"]["deviations"] == []
        told = found["plan"]["changed"][-1]
        assert told.startswith(f"the plan was changed after look {number - 1} at this test split: {field} from ")
        assert told[1:] in str(found["caveats"]) and told in run.tags["symposium.plan_faults"]
        assert (found["looks"]["number"], found["looks"]["count"]) == (number, number)
        assert run.tags["symposium.looks"] == str(number) and run.metrics["test/looks"] == number
        (row,) = found["looks"]["history"][-1]["changed"]
        assert (row["key"], row["after"]) == (field, after) and before in (..., row["before"])
        p = found["looks"]["p"]["base"]
        assert p["for_looks"] == min(1, number * p["plain"])
        assert f"corrected for {number} looks, p " in found["looks"]["sentence"]
        assert f"look {number} of {number} at the test split" in found["lines"][2]
        assert max(map(len, found["lines"])) < 260, "however much was changed, the lines stay short"
    by_hand, _ = verdict(settings())
    told = "; ".join(by_hand["plan"]["deviations"])
    assert len(by_hand["plan"]["deviations"]) == len(CHANGES)
    assert all(f"{field}: planned " in told for _, _, _, field, _, _ in CHANGES)


def test_three_looks_are_three_and_deleting_what_runs_left_resets_nothing(project: Path) -> None:
    chain(settings())
    chain(settings(verdict={"margin": 0.15}))
    for name in ("results", ".symposium"):
        shutil.rmtree(project / name, ignore_errors=True)
    found, _ = chain(settings(verdict={"margin": 0.2}))
    assert found["looks"]["count"] == 3
    assert found["lines"][2].startswith("Caveats: look 3 of 3 at the test split, 2 changes of the plan")
    assert len(found["plan"]["changed"]) == 2
    other, _ = chain(settings(verdict={"margin": 0.2}), mean=0.7)
    assert other["looks"]["history"][3]["words"] == "other episodes"


def test_a_verdict_by_hand_under_another_plan_is_a_look_and_a_deviation() -> None:
    chain(settings())
    changed = settings(evaluate={"guards": [], "identical_share": 1.0, "test": {"samples": 2, "seed": 9}})
    by_hand, _ = verdict(changed)
    told = "; ".join(by_hand["plan"]["deviations"])
    assert "guards: planned" in told and "identical_share: planned 0.95, done 1.0" in told
    assert "test_seed: planned 2000, done 9" in told
    assert by_hand["looks"]["count"] == 2
    register(changed, Run())  # now the plan fits the settings, but not what was made under the other one
    by_hand, _ = verdict(changed)
    told = "; ".join(by_hand["plan"]["deviations"])
    assert "made under another plan (the sweep of team 0, the test, the selection): identical_share was 0.95" in told
    assert by_hand["looks"]["count"] == 2


def test_an_interrupted_test_counts_once_the_plan_is_changed_and_not_when_it_goes_on() -> None:
    chain(settings(), stop=True)
    found, _ = chain(settings())
    assert found["looks"]["count"] == 1
    chain(settings(verdict={"margin": 0.15}), stop=True)
    found, _ = chain(settings())
    assert found["looks"]["count"] == 2
    assert found["looks"]["history"][1]["words"] == "margin from 0.05 to 0.15; interrupted"


def test_other_problems_are_another_split_and_shared_ones_count() -> None:
    chain(settings())
    fewer = settings(problems={"sizes": {"train": 8, "validation": 6, "test": 10}})
    prepare(fewer.environment.kind, fewer.problems, PROBLEMS)
    found, _ = chain(fewer)
    shared = [row["shared"] for row in found["looks"]["history"]]
    assert found["looks"]["count"] == 2 and shared[1] == 10 and 0 < shared[0] <= 10
    new = settings(problems={**SMALL["problems"], "seed": 123})
    prepare(new.environment.kind, new.problems, PROBLEMS)
    found, _ = chain(new)
    assert found["looks"]["count"] == 1, "nobody has seen these"


def test_a_plan_changed_between_sweep_and_test_is_told() -> None:
    params = settings(evaluate={"select": "one_standard_error"})
    run = Run()
    register(params, run)
    looking.begin_sweep(TEAM, 0, {10: "w10", 20: "w20"}, run.name)
    found, _ = chain(settings())
    assert found["looks"]["count"] == 1
    assert found["plan"]["changed"] == [
        "the plan was changed after its checkpoints had been swept (team 0): "
        "select from one_standard_error to best_mean"
    ]


def test_without_a_repository_the_verdict_says_that_nobody_counts(project: Path) -> None:
    shutil.rmtree(project / ".git")
    found, run = chain(settings())
    assert found["looks"]["count"] is None
    assert "Looks at this test split are not counted: " in found["looks"]["not_counted"]
    assert run.tags["symposium.looks"] == "not counted" and "test/looks" not in run.metrics
