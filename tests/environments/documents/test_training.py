"""From nothing to a trained team, in miniature: dialogues of several turns are sampled, paid and learned from."""

import contextlib
from pathlib import Path

import pytest

from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.play import Player
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base, later_turns
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import load_params
from pipeline_lib.training.trainer import train

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("preset", ["documents", "documents-tools"])
@pytest.mark.parametrize("team", ["team", "single"])
def test_the_preset_trains_teams_and_single_agents(tmp_path: Path, preset: str, team: str) -> None:
    (tmp_path / "params.yaml").write_text(
        f"environment: {{preset: {preset}, team: {team}}}\n"
        "problems: {sizes: {train: 24, validation: 4, test: 4}}\n"
        "policy: {warm_start: {steps: 8, batch: 8}}\n"
        "train: {steps: 2, problems_per_step: 2, group_size: 4, checkpoint_every: 2}\n"
    )
    params = load_params(tmp_path / "params.yaml", ROOT / "conf")
    problems = tmp_path / "problems"
    prepare(params.environment.kind, params.problems, problems)
    build_base(params.policy, problems, tmp_path / "base", later=later_turns(params))
    held_out = load_split(problems, "validation")
    sampling = Sampling(max_new_tokens=6)
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
