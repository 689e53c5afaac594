"""A shortened training from nothing: with the shipped presets a team that deadlocks learns not to."""

import contextlib
from pathlib import Path
from statistics import mean

import pytest

from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.play import Player
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import load_params
from pipeline_lib.training.trainer import train

ROOT = Path(__file__).parents[2]


@pytest.mark.drawn("a training in an environment", "pipeline_lib")
def test_a_few_updates_from_warm_start_halve_the_deadlocks(tmp_path: Path):
    (tmp_path / "params.yaml").write_text("environment: philosophers\n")
    params = load_params(tmp_path / "params.yaml", ROOT / "conf")
    problems = tmp_path / "problems"
    prepare(params.environment.kind, params.problems, problems)
    build_base(params.policy, problems, tmp_path / "base")
    held_out = load_split(problems, "validation")
    sampling = Sampling(max_new_tokens=params.rollouts.max_new_tokens)
    with contextlib.closing(make_environment(params.environment, params.sandbox)) as environment:
        team = load_team(params.policy, tmp_path / "base", environment.agents(held_out[0]))

        def played() -> tuple[float, float]:
            with contextlib.closing(make_engine(params.rollouts)) as engine:
                engine.load(team.policies)
                records = evaluate_team(Player(environment, team, engine, sampling), held_out, 2, 1000)
            return mean(r.metrics["deadlock"] for r in records), mean(r.metrics["meals_share"] for r in records)

        deadlock, meals = played()
        assert deadlock > 0.4
        with contextlib.closing(make_engine(params.rollouts)) as engine:
            train(
                settings=params.train.model_copy(update={"steps": 15, "checkpoint_every": 15}),
                sampling=sampling,
                environment=environment,
                team=team,
                engine=engine,
                problems=load_split(problems, "train"),
                seed=0,
                scratch=tmp_path / "run",
            )
        after, eaten = played()
    assert after < deadlock / 2
    assert eaten > meals + 0.15
