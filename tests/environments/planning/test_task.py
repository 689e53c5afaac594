"""Planning as the chain knows it: the preset, demonstrations, what is refused, and a training run in miniature."""

import contextlib
from collections import Counter
from pathlib import Path

import pytest

from pipeline_lib.environment_api.registry import find
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.environments.planning.demonstrations import demonstrate
from pipeline_lib.environments.planning.problem import PlanningProblem
from pipeline_lib.environments.planning.runtime import PlanningEnvironment
from pipeline_lib.environments.planning.settings import PlanningSettings
from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.play import Player
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import load_params
from pipeline_lib.settings.load import SettingsError
from pipeline_lib.training.trainer import train
from tests.environments.planning.help import appointments, constraints

ROOT = Path(__file__).parents[3]


def params_of(folder: Path, text: str):
    (folder / "params.yaml").write_text(text)
    return load_params(folder / "params.yaml", ROOT / "conf")


def test_the_preset_brings_everything_that_goes_with_it(tmp_path: Path) -> None:
    params, task = params_of(tmp_path, "environment: planning\n"), find("planning")
    assert (params.problems.kind, params.evaluate.metric, params.train.groups) == (
        "appointments",
        "satisfied",
        "episodes",
    )
    assert params.evaluate.baselines == () and [guard.metric for guard in params.evaluate.guards] == ["agreed"]
    assert task.agent_names(params) == ("first", "second") and task.most_turns(params) == 6
    single = params.model_copy(update={"environment": task.single_agent(params.environment)})
    assert task.agent_names(single) == ("single",) and task.most_turns(single) == 1
    assert task.reward_code(params.environment) == "pipeline_lib.environments.planning.runtime:PlanningEnvironment"


def test_what_cannot_be_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="read each other's messages already"):
        params_of(tmp_path, "environment: planning\nevaluate: {baselines: [one_round_discussion]}\n")
    with pytest.raises(SettingsError, match=r"train.problems_per_step \(16\) is more than problems.sizes.train \(8\)"):
        params_of(tmp_path, "environment: planning\nproblems: {sizes: {train: 8}}\n")
    with pytest.raises(SettingsError, match=r"problems\.options"):
        params_of(tmp_path, "environment: planning\nproblems: {options: 5}\n")
    with pytest.raises(ValueError, match="no appointments to demonstrate"):
        demonstrate([], 3, 0.0, 0)


def test_demonstrations_are_what_agents_see_and_mostly_right() -> None:
    problems = appointments()["train"]
    found = demonstrate(problems, 2000, 0.3, seed=3)
    assert found == demonstrate(problems, 2000, 0.3, seed=3) != demonstrate(problems, 2000, 0.3, seed=4)
    said: Counter[str] = Counter()
    for each in found:
        name = each.observation.rsplit("\n", 1)[1].rstrip(":")
        assert not each.action or each.action[0] == " "
        said[f"{name} {'agreement' if 'agree' in each.action else 'talk' if each.action else 'silence'}"] += 1
    assert all(said[f"{name} {kind}"] > 50 for name in ("first", "second") for kind in ("agreement", "talk", "silence"))
    assert said["single agreement"] > 100 and not said["single talk"]


def test_demonstrations_without_mistakes_are_right_and_begin_with_the_prompts_of_the_task() -> None:
    problems = [*appointments()["train"][:40], *appointments(3, False)["train"][:20]]
    problems += [PlanningProblem.from_json({**each.to_json(), "plain": True}) for each in problems]
    known = set(find("planning").prompts(problems))
    alone = PlanningEnvironment(PlanningSettings(team="single"))
    plans = {alone.observe(alone.start(each), 0): set.intersection(*constraints(each)) for each in problems}
    checked = 0
    for each in demonstrate(problems, 1500, 0.0, seed=2):
        assert "turn 1\n" not in each.observation or each.observation in known
        if each.observation in plans:
            [plan] = plans[each.observation]
            assert each.action == f" agree {' '.join(plan)}"
            checked += 1
    assert checked > 80
    assert all(("a price" in text) == ("You are" in text) for text in known if not text.endswith("single:"))
    assert all(("The prices are park 1" in text) == ("budget " in text) for text in known if "agree" in text)


@pytest.mark.parametrize("team", ["team", "single"])
def test_the_preset_trains_teams_and_single_agents(tmp_path: Path, team: str) -> None:
    params = params_of(
        tmp_path,
        f"environment: {{preset: planning, team: {team}}}\n"
        "problems: {sizes: {train: 24, validation: 4, test: 4}}\n"
        "policy: {warm_start: {steps: 8, batch: 8}}\n"
        "train: {steps: 2, problems_per_step: 2, group_size: 4, checkpoint_every: 2}\n",
    )
    problems = tmp_path / "problems"
    prepare(params.environment.kind, params.problems, problems)
    build_base(params.policy, problems, tmp_path / "base")
    held_out, sampling = load_split(problems, "validation"), Sampling(max_new_tokens=6)
    with (
        contextlib.closing(make_environment(params.environment, params.sandbox)) as environment,
        contextlib.closing(make_engine(params.rollouts)) as engine,
    ):
        agents = load_team(params.policy, tmp_path / "base", environment.agents(held_out[0]))
        before = {name: value.clone() for name, value in next(iter(agents.policies.values())).trainable()}
        train(
            settings=params.train,
            sampling=sampling,
            environment=environment,
            team=agents,
            engine=engine,
            problems=load_split(problems, "train"),
            seed=0,
            scratch=tmp_path / "run",
        )
        after = dict(next(iter(agents.policies.values())).trainable())
        assert any(not value.equal(after[name]) for name, value in before.items())
        engine.load(agents.policies)
        records = evaluate_team(Player(environment, agents, engine, sampling), held_out, 2, 1000)
    assert len(records) == 8 and all(1 <= record.turns <= environment.turns for record in records)
    low, high = environment.episode_bounds
    assert all(low - 1e-9 <= record.reward <= high + 1e-9 for record in records)
    assert all(record.metrics["turns_used"] == record.turns for record in records)
