"""Settings of the machine change a training by the order of additions at most, also in the middle of a run.

Several processes and sharded weights: tests/training/test_parallel.py.  CUDA graphs and vLLM's settings need what they
are about; the engines' tests compare their log-probabilities with plain decoding.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline_lib.policies.policy import Team
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings.rollouts import TransformersRollouts
from tests.training.conftest import Agree, make_settings, make_team, run_training

STEPS = 4


def trained(folder: Path, halves: tuple[dict[str, Any], dict[str, Any]]) -> torch.Tensor:
    """Train half of the steps with one set of machine settings, go on with the other; return the weights."""
    team = make_team()
    for steps, values in zip((STEPS // 2, STEPS), halves, strict=True):
        values = dict(values)
        rows, checkpointing = values.pop("rows", 256), values.pop("gradient_checkpointing", False)
        team = make_team()
        for policy in team.policies.values():
            if checkpointing:
                policy.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        settings = make_settings(steps=steps, checkpoint_every=1, group_size=8, **values)
        engine = make_engine(TransformersRollouts(rows=rows, max_new_tokens=2))
        run_training(folder, team, Agree(turns=2), settings=settings, engine=engine, scratch=folder)
    return weights(team)


def weights(team: Team) -> torch.Tensor:
    """Return all weights of a team as one vector."""
    return torch.cat([p.detach().reshape(-1) for policy in team.policies.values() for p in policy.model.parameters()])


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    """Return the weights of a team that was trained with the usual settings of the machine."""
    return trained(tmp_path_factory.mktemp("usual"), ({}, {}))


@pytest.mark.parametrize(
    "other",
    [{"rows": 3}, {"micro_batch_tokens": 64}, {"overlap": 3}, {"gradient_checkpointing": True}],
    ids=lambda values: next(iter(values)),
)
def test_results_are_the_same_up_to_rounding(other: dict[str, Any], usual: torch.Tensor, tmp_path: Path):
    moved = (usual - weights(make_team())).norm()
    assert moved > 1
    for name, halves in (("whole", (other, other)), ("changed on the way", (other, {}))):
        assert (trained(tmp_path / name, halves) - usual).norm() < 1e-3 * moved, name
