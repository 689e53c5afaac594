"""A run that ends by its compute: when, at which learning rate, and that a killed one continues to the same end."""

from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.policies.store import team_digest
from pipeline_lib.training.budget import MOST_TIMES, Budget, used
from pipeline_lib.training.stopping import TrainingStopped
from tests.training.conftest import Agree, make_settings, make_team, run_training

SETTINGS = {"steps": 3, "checkpoint_every": 2, "group_size": 4}


def train_to(folder: Path, budget: Budget | None, **options: Any) -> tuple[Any, list[dict[str, float]], str]:
    team = make_team(("one",))
    settings = make_settings(**{**SETTINGS, **options.pop("changes", {})})
    result, steps = run_training(folder, team, Agree(("one",)), settings=settings, budget=budget, **options)
    return result, steps, team_digest(team)


@pytest.mark.parametrize("measure", ["tokens", "executions"])
def test_it_ends_after_the_update_that_reaches_the_budget(tmp_path: Path, measure: Any) -> None:
    _, rows, _ = train_to(tmp_path / "long", None, changes={"steps": 5})
    amount = used(rows[:4])[measure] - 1  # reached in the fourth update, which has no regular checkpoint after it
    amounts = {"before": used(rows[:3])[measure], "after": used(rows[:4])[measure]}
    result, found, _ = train_to(tmp_path / "matched", Budget(measure, amount), changes={"checkpoint_every": 3})
    assert amounts["before"] < amount < amounts["after"]
    assert len(found) == result.steps == 4
    assert used(found)[measure] == amounts["after"]
    assert [step for step, _ in result.checkpoints] == [0, 3, 4]
    assert all((path / "checkpoint.json").is_file() for _, path in result.checkpoints)


def test_a_killed_run_ends_where_and_as_one_that_was_not_killed(tmp_path: Path) -> None:
    changes = {"schedule": "linear", "warmup_steps": 1}
    budget = Budget("executions", 12 * 5)
    whole, rows, expected = train_to(tmp_path / "whole", budget, changes=changes)
    told: list[int] = []

    def note(step: int, metrics: dict[str, float]) -> None:
        told.append(step)

    with pytest.raises(TrainingStopped):
        train_to(tmp_path / "killed", budget, changes=changes, on_step=note, should_stop=lambda: len(told) == 3)
    result, _, found = train_to(tmp_path / "killed", budget, changes=changes)
    assert (result.resumed_from, result.steps) == (2, whole.steps) == (2, 5)
    assert found == expected
    again, nothing, _ = train_to(tmp_path / "killed", budget, changes=changes)
    assert (again.steps, nothing) == (5, []), "what has ended is not trained further"
    assert [step for step, _ in again.checkpoints] == [step for step, _ in whole.checkpoints] == [0, 2, 4, 5]
    rates = [row["update/learning_rate"] for row in rows]
    # Five updates spread over a schedule of three: 0, 0.6, 1.2, 1.8, 2.4; the first two are the warm-up.
    peak = 1e-2
    assert rates == pytest.approx([peak, peak, *(peak * (1 - (0.6 * k - 1) / 2) for k in (2, 3, 4))])


def test_a_budget_that_is_never_used_up_ends_all_the_same(tmp_path: Path) -> None:
    result, rows, _ = train_to(tmp_path, Budget("tokens", 1e9), changes={"steps": 1, "checkpoint_every": 1})
    assert result.steps == len(rows) == MOST_TIMES
