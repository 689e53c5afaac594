"""True advantages against enumeration, the agreement with them, and that measuring changes nothing in training."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline_lib.play import Player, groups
from pipeline_lib.policies.store import team_digest
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.training.fidelity import agreement, true_advantages
from tests.training.conftest import END, TOYS, WORDS, Agree, make_settings, make_team, run_training

ONE_TOKEN = Sampling(temperature=1.0, max_new_tokens=1)


def first_tokens(team: Any, environment: Agree, agent: int) -> np.ndarray[Any, Any]:
    """Return the exact probability of every one-token action of an agent."""
    policy = team.policy_of(environment.names[agent])
    prompt = policy.encode(environment.observe(environment.start(TOYS[0]), agent))
    with torch.no_grad():
        logits = policy.model(torch.tensor([prompt])).logits[0, -1]
    return torch.softmax(logits.double(), -1).numpy()


def test_true_advantages_are_those_of_enumeration_within_their_own_error() -> None:
    environment, team = Agree(), make_team()
    engine = TransformersEngine(rows=256)
    engine.load(team.policies)
    player = Player(environment, team, engine, ONE_TOKEN)
    chances = [first_tokens(team, environment, agent) for agent in range(2)]
    texts = ["" if token == END else word for token, word in enumerate(WORDS)]
    table = np.array([[environment.reward(TOYS[0], pair) for pair in itertools.product([a], texts)] for a in texts])
    exact = [table @ chances[1], chances[0] @ table]
    mean = float(chances[0] @ table @ chances[1])
    said = {0: ["0", "3", "red", "3"], 1: ["5", "left"]}
    [root] = groups(TOYS[:1], 4, 0)
    found, executed = true_advantages(player, root, said, 1.0, (0, 1), partners=400)
    assert executed == 400 * 6, "the second 3 is not judged again"
    assert set(found) == {(0, "0"), (0, "3"), (0, "red"), (1, "5"), (1, "left")}
    for (agent, text), known in found.items():
        assert 0 < known.error < 0.03
        assert abs(known.mean - (exact[agent][WORDS.index(text)] - mean)) < 4 * known.error, (agent, text)


def test_agreement_in_closed_form() -> None:
    true = np.array([1.0, -1.0, 0.01, -0.01])
    same = agreement(true, true)
    assert (same.correlation, same.sign, same.error) == (pytest.approx(1.0), 1.0, 0.0)
    opposite = agreement(-true, true)
    assert (opposite.correlation, opposite.sign) == (pytest.approx(-1.0), 0.0)
    assert opposite.error == pytest.approx(np.mean(4 * true**2))
    assert agreement(np.zeros(4), true).correlation == 0.0
    nothing = agreement(true, np.zeros(4))
    assert (nothing.correlation, nothing.sign) == (None, None)


@pytest.mark.parametrize(("turns", "kind"), [(1, "cross"), (2, "aligned")])
def test_measuring_changes_no_weight_and_is_in_the_log_when_it_was_asked_for(
    tmp_path: Path, turns: int, kind: str
) -> None:
    digests, logs = [], []
    for every in (0, 2):
        team = make_team()
        changes: dict[str, Any] = {"steps": 3, "checkpoint_every": 3, "group_size": 4, "credit": {"kind": kind}}
        settings = make_settings(**changes, fidelity_every=every)
        _, steps = run_training(tmp_path, team, Agree(turns=turns), settings=settings, scratch=tmp_path / str(every))
        digests.append(team_digest(team))
        logs.append(steps)
    assert digests[0] == digests[1]
    for without, measured in zip(*logs, strict=True):
        same = {name for name in without if not name.startswith(("time/", "memory/", "update/tflop"))}
        assert {name: without[name] for name in same} == {name: measured[name] for name in same}
    names = [{name for name in row if "fidelity" in name} for row in logs[1]]
    assert names[0] == names[2] == set() and not any("fidelity" in name for row in logs[0] for name in row)
    assert {"fidelity/error/one", "fidelity/truth_error/two", "fidelity/executions"} <= names[1]


def test_cross_is_nearer_to_the_truth_than_aligned(tmp_path: Path) -> None:
    errors = {}
    for kind in ("aligned", "cross"):
        settings = make_settings(steps=1, checkpoint_every=1, group_size=16, credit={"kind": kind}, fidelity_every=1)
        _, [row] = run_training(tmp_path, make_team(), Agree(), settings=settings, scratch=tmp_path / kind)
        errors[kind] = sum(row[f"fidelity/error/{agent}"] for agent in ("one", "two"))
        assert row["fidelity/truth_error/one"] < errors[kind]
    assert errors["cross"] < errors["aligned"]
