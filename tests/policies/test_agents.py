"""Agents that differ: another shape, adapter or learning rate, frozen teammates, teammates on a server."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline_lib.policies.base import base_digest
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.policy import PolicyError, Team, is_remote
from pipeline_lib.policies.store import restore_team, save_team, team_digest
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.settings.policy import EmbeddedPolicy, PretrainedPolicy
from tasks.use.exporting import export_team
from tests.policies.conftest import TINY

AGENTS = ("helper", "main")
LARGER = {"hidden_size": 48, "layers": 2, "heads": 3, "kv_heads": 3, "vocabulary": 420, "seed": 5}
SERVER = {"server": {"url": "http://127.0.0.1:9/v1", "model": "expert"}}
LORA = {"kind": "lora", "rank": 4}


def embedded(agents: dict[str, Any], **changes: Any) -> EmbeddedPolicy:
    return EmbeddedPolicy.model_validate({**TINY.model_dump(), **changes, "agents": agents})


@pytest.fixture(scope="module")
def two_sizes(problems_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[EmbeddedPolicy, Path]:
    settings = embedded({"main": LARGER})
    folder = tmp_path_factory.mktemp("two") / "base"
    facts = build_base(settings, problems_folder, folder)
    assert facts["parameters/main"] > facts["parameters"]
    return settings, folder


def stir(team: Team) -> None:
    with torch.no_grad():
        for policy in team.policies.values():
            for _, parameter in policy.trainable():
                parameter.add_(0.1)


def trained(team: Team) -> dict[str, bool]:
    return {name: any(True for _ in policy.trainable()) for name, policy in team.policies.items()}


def test_each_agent_has_the_shape_and_tokenizer_that_its_settings_say(two_sizes: tuple[EmbeddedPolicy, Path]):
    settings, folder = two_sizes
    team = load_team(settings, folder, AGENTS)
    shapes = {name: policy.model.config.hidden_size for name, policy in team.policies.items()}
    assert shapes == {"helper": 32, "main": 48}
    assert [len(team.policy_of(agent).tokenizer) for agent in AGENTS] == [400, 420]
    single = load_team(settings, folder, ("single",)).policy_of("single")
    assert single.model.config.hidden_size == 32


def test_the_same_settings_make_the_bytes_they_made_without_agents(base: Path, problems_folder: Path, tmp_path: Path):
    build_base(embedded({"helper": {"trained": False}}), problems_folder, tmp_path / "base")
    assert sorted(path.name for path in (tmp_path / "base").iterdir()) == sorted(path.name for path in base.iterdir())
    for path in base.iterdir():
        assert (tmp_path / "base" / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_base_depends_on_shapes_and_not_on_who_is_trained():
    plain = base_digest(TINY)
    assert base_digest(embedded({"main": {"trained": False}, "helper": {"temperature": 0.5}})) == plain
    assert base_digest(embedded({"main": {"hidden_size": TINY.hidden_size}})) == plain
    assert base_digest(embedded({"main": LARGER})) != plain
    assert base_digest(embedded({"main": LARGER})) != base_digest(embedded({"helper": LARGER}))


def test_a_frozen_agent_has_nothing_to_train_and_its_teammate_has(base: Path):
    for adapter in ({"kind": "none"}, LORA):
        team = load_team(embedded({"main": {"trained": False}}, adapter=adapter), base, AGENTS)
        assert trained(team) == {"helper": True, "main": False}


def test_an_adapter_beside_full_weights_freezes_only_its_own_base(base: Path):
    for agents in ({"main": {"adapter": LORA}}, {"helper": {"adapter": LORA}}):
        team = load_team(embedded(agents), base, AGENTS)
        (adapted,) = agents
        other = AGENTS[1 - AGENTS.index(adapted)]
        assert all("lora_" in name for name, _ in team.policy_of(adapted).trainable())
        assert len(list(team.policy_of(other).trainable())) == len(list(team.policy_of(other).model.parameters()))
        before = copy.deepcopy(team.policy_of(adapted).model.state_dict())
        with torch.no_grad():
            for _, parameter in team.policy_of(other).trainable():
                parameter.add_(1.0)
        assert all(torch.equal(value, before[key]) for key, value in team.policy_of(adapted).model.state_dict().items())


@pytest.mark.parametrize(
    "agents",
    [
        {"main": {"trained": False}},
        {"main": SERVER},
        {"main": {"adapter": LORA}},
        {"helper": {"adapter": {**LORA, "rank": 2}}, "main": {"adapter": LORA}},
    ],
)
def test_a_team_of_unlike_agents_comes_back_from_a_checkpoint(base: Path, tmp_path: Path, agents: dict[str, Any]):
    team = load_team(embedded(agents), base, AGENTS)
    untrained = team_digest(team)
    stir(team)
    save_team(team, tmp_path)
    fresh = load_team(embedded(agents), base, AGENTS)
    assert team_digest(fresh) == untrained != team_digest(team)
    restore_team(fresh, tmp_path)
    assert team_digest(fresh) == team_digest(team)


def test_teams_of_two_sizes_come_back_and_are_not_taken_for_each_other(
    two_sizes: tuple[EmbeddedPolicy, Path], base: Path, tmp_path: Path
):
    settings, folder = two_sizes
    team = load_team(settings, folder, AGENTS)
    stir(team)
    save_team(team, tmp_path / "saved")
    fresh = load_team(settings, folder, AGENTS)
    restore_team(fresh, tmp_path / "saved")
    assert team_digest(fresh) == team_digest(team)
    with pytest.raises(PolicyError, match="weights of another model than policy 'main'"):
        restore_team(load_team(TINY, base, AGENTS), tmp_path / "saved")


def test_a_frozen_agent_takes_no_room_in_a_checkpoint_and_another_one_is_refused(
    base: Path, problems_folder: Path, tmp_path: Path
):
    settings = embedded({"main": {"trained": False}})
    save_team(load_team(settings, base, AGENTS), tmp_path / "saved")
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["helper", "team.json"]
    other = embedded({"main": {"trained": False, "seed": 9}})
    build_base(other, problems_folder, tmp_path / "other")
    with pytest.raises(PolicyError, match="another frozen policy 'main'"):
        restore_team(load_team(other, tmp_path / "other", AGENTS), tmp_path / "saved")
    with pytest.raises(PolicyError, match=r"holds frozen weights, those of policy 'main' are full.*policy\.agents"):
        restore_team(load_team(TINY, base, AGENTS), tmp_path / "saved")


def test_a_server_plays_an_agent_without_weights_here(base: Path):
    team = load_team(embedded({"main": SERVER}), base, AGENTS)
    assert is_remote(team.policy_of("main")) and trained(team) == {"helper": True, "main": False}


def test_pretrained_agents_differ_in_adapter_and_training(foreign: Callable[[str], Path], tmp_path: Path):
    section = PretrainedPolicy.model_validate(
        {
            "models": [str(foreign("qwen3"))],
            "attention": "eager",
            "adapter": LORA,
            "agents": {"second": {"adapter": {**LORA, "rank": 2}, "learning_rate": 1e-5}, "third": {"trained": False}},
        }
    )
    build_base(section, tmp_path, tmp_path / "base")
    team = load_team(section, tmp_path / "base", ("first", "second", "third"))
    models: list[Any] = [policy.model for policy in team.policies.values()]
    assert [model.peft_config["default"].r for model in models[:2]] == [4, 2]
    assert [policy.learning_rate for policy in team.policies.values()] == [None, 1e-5, None]
    assert trained(team) == {"first": True, "second": True, "third": False}
    assert next(models[2].parameters()).dtype == torch.bfloat16
    own = dict(models[2].named_parameters())["model.norm.weight"]
    assert dict(models[0].get_base_model().named_parameters())["model.norm.weight"] is own, (
        "bases are one copy in memory"
    )


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        ({"main": {"trained": False, "learning_rate": 1e-3}}, "learning_rate is for an agent that is trained"),
        ({"main": {"trained": False, "adapter": LORA}}, "adapter is for an agent that is trained"),
        ({"main": {**SERVER, "layers": 3}}, "layers is about weights, and those of this agent are on a server"),
        ({"main": {"heads": 3}}, r"agents.main: .*hidden_size \(32\) must be a multiple of heads \(3\)"),
        ({"main": {"turbo": True}}, "agents.main.turbo"),
    ],
)
def test_settings_of_an_agent_that_fight_each_other_are_refused(agents: dict[str, Any], message: str):
    with pytest.raises(ValueError, match="(?s)" + message):
        embedded(agents)


def test_agents_that_share_weights_cannot_differ():
    with pytest.raises(ValueError, match=r"agents\.main: all agents use the same weights"):
        embedded({"main": {"temperature": 0.5}}, parameters="shared")


def test_settings_survive_being_written_out_and_read_back():
    for agents in ({"main": SERVER}, {"main": {"trained": False}}, {"helper": LARGER}):
        section = embedded(agents)
        assert EmbeddedPolicy.model_validate(section.model_dump(mode="json")) == section


def test_an_agent_that_the_team_does_not_have_is_named(base: Path):
    with pytest.raises(PolicyError, match=r"policy\.agents\.boss: the team has no such agent; it has helper, main"):
        load_team(embedded({"boss": {"trained": False}}), base, AGENTS)


def test_agents_here_are_exported_and_one_on_a_server_is_left_out(
    two_sizes: tuple[EmbeddedPolicy, Path], base: Path, tmp_path: Path
):
    settings, folder = two_sizes
    assert set(export_team(load_team(settings, folder, AGENTS), AGENTS, tmp_path / "two")) == set(AGENTS)
    team = load_team(embedded({"main": SERVER}), base, AGENTS)
    assert export_team(team, AGENTS, tmp_path / "one") == {"helper": "full weights"}
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["helper"]
