"""Monitors beside real training runs: they change no weight, fire where a run goes wrong, and may end it."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.environment_api.environment import Outcome
from pipeline_lib.monitors import End
from pipeline_lib.storage import folder_digest, read_jsonl
from pipeline_lib.training import ablation
from tests.training.conftest import Agree, Toy, ToyState, make_settings, make_team, run_training

SOLVED = End("solved", 0.0, 1.0)
MANY = [Toy(f"toy/{number}-{word}", word) for number in range(8) for word in ("red", "green", "blue")]


class OneDecides(Agree):
    """Only what the first agent says counts."""

    retries = True

    def reward(self, problem: Toy, actions: Sequence[str]) -> float:
        first = (actions[0].split() or [""])[0]
        return float(first == "3")


class Hacked(Agree):
    """The reward is for saying 3, and what is wanted is that nobody says 3."""

    def step(self, states: Sequence[ToyState], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[ToyState]]:
        outcomes = []
        for state, actions in zip(states, joint_actions, strict=True):
            share = sum((action.split() or [""])[0] == "3" for action in actions) / len(actions)
            outcomes.append(Outcome(share, {"threes": share}, {"solved": 1 - share}, state, True))
        return outcomes


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a short run have enough pairs: ablations after every second update."""
    monkeypatch.setattr(ablation, "SOONEST", 2)
    monkeypatch.setattr(ablation, "COST", 1.0)


@pytest.mark.parametrize("turns", [1, 2])
def test_monitors_change_no_weight_to_the_bit(turns: int, often: None, tmp_path: Path) -> None:
    digests = []
    for name, end in (("without", None), ("with", SOLVED)):
        settings = make_settings(steps=6, checkpoint_every=3)
        result, steps = run_training(
            tmp_path, make_team(), Agree(turns=turns), settings=settings, scratch=tmp_path / name, end=end
        )
        digests.append([folder_digest(folder) for _, folder in result.checkpoints])
        assert ("ablation/pairs" in steps[1]) == (end is not None), "nothing was compared"
    assert digests[0] == digests[1]


class Paid(Agree):
    """Every joint action costs 1."""

    def step(self, states: Sequence[ToyState], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[ToyState]]:
        return [replace(o, details={"costs": {"paid": 1.0}}) for o in super().step(states, joint_actions)]


def test_what_the_monitors_episodes_cost_is_counted(often: None, tmp_path: Path) -> None:
    settings = make_settings(steps=2, checkpoint_every=2)
    _, (first, second) = run_training(tmp_path, make_team(), Paid(), settings=settings, end=SOLVED)
    assert first["costs/paid"] == first["executions/count"]
    # the team, and the team without each of its two agents
    assert second["costs/paid"] == second["executions/count"] + 3 * second["ablation/pairs"]


def test_an_agent_that_nobody_needs_is_named_and_the_other_is_not(
    often: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = make_settings(steps=24, checkpoint_every=24, learning_rate=2e-2, problems_per_step=8)
    with caplog.at_level(logging.WARNING):
        _, steps = run_training(tmp_path, make_team(), OneDecides(), settings=settings, problems=MANY, end=SOLVED)
    assert steps[-1]["ablation/need/one"] > 0.5
    assert steps[-1]["ablation/need/two"] == 0.0
    assert steps[-1]["monitors/trivial_cooperation/two"] == 1.0
    assert steps[-1]["monitors/trivial_cooperation/one"] == 0.0
    told = [record.getMessage() for record in caplog.records if "trivial_cooperation" in record.getMessage()]
    assert len(told) == 1, "said at every update, or never"
    assert "Agent two" in told[0] and "train.credit" in told[0]


def test_a_team_that_needs_both_is_not_blamed(often: None, tmp_path: Path) -> None:
    settings = make_settings(steps=24, checkpoint_every=24, group_size=24, learning_rate=2e-2, problems_per_step=8)
    _, steps = run_training(tmp_path, make_team(), Agree(), settings=settings, problems=MANY, end=SOLVED)
    assert steps[-1]["metrics/solved"] > 0.8
    fired = {name for step in steps for name, value in step.items() if name.startswith("monitors/") and value}
    assert fired == set()
    assert {name for name in steps[-1] if name.startswith("monitors/")} == {
        "monitors/trivial_cooperation/one",
        "monitors/trivial_cooperation/two",
        "monitors/reward_hacking",
    }


def test_a_reward_that_pays_for_something_else_ends_the_run_with_a_usable_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = make_settings(steps=60, checkpoint_every=10, problems_per_step=8, stop_when=["reward_hacking"])
    options: dict[str, Any] = {"settings": settings, "problems": MANY, "end": SOLVED}
    with caplog.at_level(logging.WARNING):
        result, steps = run_training(tmp_path, make_team(), Hacked(), **options)
    assert result.steps == len(steps) == 20
    assert [step for step, _ in result.checkpoints] == [0, 10, 20]
    assert steps[-1]["monitors/ended/reward_hacking"] == 1.0
    assert "train.stop_when" in caplog.text and "mend the reward" in caplog.text
    again, more = run_training(tmp_path, make_team(), Hacked(), **options)
    assert more == [], "a run that was ended went on"
    assert again.steps == 20 and again.checkpoints == result.checkpoints
    assert len(list(read_jsonl(again.metrics))) == 20


def test_a_second_turn_that_makes_it_worse_is_noticed(tmp_path: Path) -> None:
    class Worse(OneDecides):
        def step(self, states: Sequence[ToyState], joint_actions: Sequence[Sequence[str]]) -> list[Outcome[ToyState]]:
            return [
                Outcome(
                    reward := (0.9 if state.turn == 0 else 0.2) * (actions[0] != actions[1]),
                    {"agreement": reward},
                    {"solved": reward},
                    ToyState(state.problem, state.turn + 1),
                    state.turn == 1,
                )
                for state, actions in zip(states, joint_actions, strict=True)
            ]

    settings = make_settings(steps=6, checkpoint_every=6, group_size=4)
    _, steps = run_training(tmp_path, make_team(), Worse(turns=2), settings=settings, end=SOLVED)
    assert steps[-1]["turns/gain/2"] < -0.3
    assert steps[-1]["monitors/turn_instability/2"] == 1.0
