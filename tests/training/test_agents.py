"""Training teams whose agents differ: only what is to be trained moves, each agent by its own settings."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.policy import Team
from pipeline_lib.policies.store import team_digest
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts.engine import Request, Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import load_params
from pipeline_lib.settings.params import Params
from pipeline_lib.training.checkpoint_folders import step_folder
from pipeline_lib.training.checkpoints import load_checkpoint
from pipeline_lib.training.optimiser import TrainingError
from pipeline_lib.training.trainer import train
from tests.rollouts.test_openai_engine import Server

ROOT = Path(__file__).parents[2]
TINY = {
    "hidden_size": 32, "layers": 1, "heads": 2, "kv_heads": 1, "mlp_size": 48, "vocabulary": 400, "context": 160,
    "warm_start": {"steps": 12, "batch": 8},
}  # fmt: skip
LARGER = {"hidden_size": 64, "layers": 2, "vocabulary": 420}


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def settings(agents: dict[str, Any], **train: Any) -> Params:
    plain = load_params(ROOT / "params.yaml").model_dump(mode="json")
    plain["policy"] |= {**TINY, "agents": agents}
    # The bonus moves whatever can be trained, also where so small a model earns nothing.
    plain["train"]["loss"] |= {"entropy": 0.1}
    plain["train"] |= {"steps": 2, "checkpoint_every": 1, "problems_per_step": 4, "group_size": 4, **train}
    plain["problems"]["sizes"] = {"train": 40, "validation": 4, "test": 4}
    return Params.model_validate(plain)


def trained(params: Params, folder: Path) -> tuple[Team, list[dict[str, float]]]:
    """Train a team, and return it with its metrics."""
    prepare("coding", params.problems, folder / "problems")
    build_base(params.policy, folder / "problems", folder / "base")
    problems = load_split(folder / "problems", "train")
    team = load_team(params.policy, folder / "base", ("helper", "main"))
    steps: list[dict[str, float]] = []
    own = tuple((name, agent.temperature) for name, agent in params.policy.agents.items() if agent.temperature)
    with (
        contextlib.closing(make_environment(params.environment, params.sandbox)) as environment,
        contextlib.closing(make_engine(params.rollouts, params.policy)) as engine,
    ):
        train(
            settings=params.train,
            sampling=Sampling(max_new_tokens=16, temperatures=own),
            environment=environment,
            team=team,
            engine=engine,
            problems=problems,
            seed=0,
            scratch=folder / "run",
            on_step=lambda step, metrics: steps.append(metrics),
        )
    return team, steps


def moved(params: Params, team: Team, folder: Path) -> dict[str, bool]:
    """Say of each agent whether its weights are others than those of its base."""
    fresh = load_team(params.policy, folder / "base", ("helper", "main"))
    pairs = {
        name: (Team({name: team.policies[name]}, {}), Team({name: fresh.policies[name]}, {})) for name in fresh.policies
    }
    return {name: team_digest(after) != team_digest(before) for name, (after, before) in pairs.items()}


def test_a_large_and_a_small_agent_both_learn_and_come_back_from_their_checkpoint(tmp_path: Path):
    params = settings({"main": LARGER})
    team, steps = trained(params, tmp_path)
    assert moved(params, team, tmp_path) == {"helper": True, "main": True}
    fresh = load_team(params.policy, tmp_path / "base", ("helper", "main"))
    load_checkpoint(step_folder(tmp_path / "run", 2), fresh)
    assert team_digest(fresh) == team_digest(team)
    assert all(math.isfinite(value) for step in steps for value in step.values())


def test_a_frozen_agent_keeps_its_weights_while_its_teammate_learns(tmp_path: Path):
    params = settings({"main": {"trained": False}})
    team, steps = trained(params, tmp_path)
    assert moved(params, team, tmp_path) == {"helper": True, "main": False}
    assert "update/gradient_norm/helper" in steps[0] and "update/gradient_norm/main" not in steps[0]


def test_an_agent_on_a_server_is_asked_and_its_teammate_learns(tmp_path: Path, server: Server):
    params = settings({"main": {"server": {"url": server.url, "model": "expert"}, "temperature": 0.5}})
    team, steps = trained(params, tmp_path)
    assert moved(params, team, tmp_path) == {"helper": True, "main": False}
    asked = [body for _, body, _ in server.asked]
    assert {(body["model"], body["temperature"]) for body in asked} == {("expert", 0.5)}
    assert sum(body["n"] for body in asked) == 2 * 4 * 4, "an action for every joint action of every step"
    assert all(math.isfinite(value) for step in steps for value in step.values())


def test_each_agent_has_the_learning_rate_that_its_settings_say(tmp_path: Path):
    params = settings({"main": {"learning_rate": 1e-9}}, schedule="linear", steps=2)
    team, steps = trained(params, tmp_path)
    fresh = load_team(params.policy, tmp_path / "base", ("helper", "main"))
    largest = {
        name: max(
            float((a - b).detach().abs().max())
            for a, b in zip(
                team.policies[name].model.parameters(), fresh.policies[name].model.parameters(), strict=True
            )
        )
        for name in fresh.policies
    }
    assert 0 < largest["main"] < 1e-7 < largest["helper"]
    assert [step["update/learning_rate/main"] for step in steps] == pytest.approx([1e-9, 0.5e-9])


def test_a_policy_samples_at_its_own_temperature_and_others_at_the_common_one(tmp_path: Path):
    params = settings({})
    prepare("coding", params.problems, tmp_path / "problems")
    build_base(params.policy, tmp_path / "problems", tmp_path / "base")
    team = load_team(params.policy, tmp_path / "base", ("helper", "main"))
    prompt = team.policy_of("helper").encode("aux: items over 3, plus 4\n")
    requests = [Request(name, prompt, 6, 7) for name in ("helper", "main")]
    with contextlib.closing(make_engine(params.rollouts)) as engine:
        engine.load(team.policies)

        def drawn(sampling: Sampling) -> list[list[tuple[int, ...]]]:
            return [[action.ids for action in actions] for actions in engine.generate(requests, sampling)]

        cold, warm = Sampling(0.2, max_new_tokens=8), Sampling(max_new_tokens=8)
        mixed = drawn(Sampling(max_new_tokens=8, temperatures=(("main", 0.2),)))
        assert mixed == [drawn(warm)[0], drawn(cold)[1]] and drawn(warm)[1] != drawn(cold)[1]


def test_a_team_in_which_everybody_is_frozen_is_refused_where_settings_do_not_know_its_agents(tmp_path: Path):
    params = settings({"main": {"trained": False}})
    frozen = params.policy.model_copy(
        update={"agents": dict.fromkeys(("helper", "main"), params.policy.agents["main"])}
    )
    with pytest.raises(TrainingError, match="every agent is frozen"):
        trained(params.model_copy(update={"policy": frozen}), tmp_path)
