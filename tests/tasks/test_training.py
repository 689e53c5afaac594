"""A training run as the stage starts it: what it loads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows import train
from pipeline_lib.assembly import teams as assembled
from pipeline_lib.settings import Params
from tasks.experiment.arms import TEAM

SETTINGS = """
train: {steps: 2, checkpoint_every: 2, problems_per_step: 2, group_size: 4, learning_rate: 0.01, loss: {kl: 0.1}}
"""


@pytest.mark.parametrize(
    ("adapter", "loaded"), [("{kind: none}", 2), ("{kind: lora, rank: 2, targets: [q_proj, down_proj]}", 1)]
)
def test_the_base_below_an_adapter_is_not_loaded_again_to_be_compared_with(
    adapter: str,
    loaded: int,
    philosophers: Callable[[str, str], Params],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = philosophers(adapter, SETTINGS)
    monkeypatch.setattr(train, "scratch_folder", lambda *_: tmp_path / "scratch")
    teams, rows = [], []
    load = assembled.base_team

    def counted(*arguments: Any) -> Any:
        teams.append(load(*arguments))
        return teams[-1]

    monkeypatch.setattr(assembled, "base_team", counted)
    train._train(params, TEAM, 0, on_step=lambda _, metrics: rows.append(metrics))
    assert len(teams) == loaded
    distances = [row["update/kl"] for row in rows]
    assert distances[0] == pytest.approx(0.0, abs=1e-6)
    assert distances[1] > 1e-5, "it is compared with itself"


def test_each_training_seed_draws_adapters_of_its_own(
    philosophers: Callable[[str, str], Params], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = philosophers("{kind: lora, rank: 2, targets: [q_proj]}", SETTINGS)
    monkeypatch.setattr(train, "scratch_folder", lambda arm, seed, *_: tmp_path / f"scratch-{seed}")
    first: dict[int, dict[str, Any]] = {}
    load = assembled.base_team

    def kept(*arguments: Any) -> Any:
        team = load(*arguments)
        policy = next(iter(team.policies.values()))
        first[len(first)] = {name: value.detach().clone() for name, value in policy.trainable()}
        return team

    monkeypatch.setattr(assembled, "base_team", kept)
    for seed in (0, 1):
        train._train(params, TEAM, seed)
    for name, value in first[0].items():
        assert ("lora_A" in name) == (not value.equal(first[1][name])), name
