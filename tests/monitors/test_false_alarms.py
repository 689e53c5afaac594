"""The simulation of false alarms: quiet where nothing is wrong, and not because it could not hear."""

import dataclasses

import numpy as np
import pytest

from benchmarks.monitors import NULLS, PROBLEMS, alarms, over_problems, progress
from pipeline_lib.training.evidence import mean_by_problem


@pytest.mark.parametrize("number", [n for n, null in enumerate(NULLS) if "boundary" not in null.about])
def test_ordinary_runs_hardly_ever_raise_an_alarm(number: int) -> None:
    found = alarms(NULLS[number], runs=4, updates=40, seed=number)
    assert float(found["judged"]) > 0 and float(found["fired"]) < 0.05


def test_a_reward_that_rises_alone_is_heard_by_the_same_simulation() -> None:
    hacked = dataclasses.replace(NULLS[0], draw=progress(0.4, 0.4, lambda rng, done, share: done + 2 * share))
    assert alarms(hacked, runs=4, updates=40, seed=1)["runs"] == 1.0


def test_errors_are_those_of_training() -> None:
    values = np.random.default_rng(0).random((PROBLEMS, 8))
    expected = mean_by_problem((f"p{i}", float(value), 1.0) for i, row in enumerate(values) for value in row)
    assert over_problems(values) == pytest.approx(expected)
