"""The calibration of benchmarks/calibration.py in small: every method's error rate on data whose truth is known."""

import pytest

from benchmarks.calibration_cases import CASES, Case, measure

#: Left to the benchmark: seconds each.
SLOW = {"Holm, any of 3 comparisons"}


@pytest.mark.parametrize("case", [case for case in CASES if case.name not in SLOW], ids=lambda case: case.name)
def test_error_rates(case: Case) -> None:
    row = measure(case, runs=600, seed=1)
    low, high = case.accepted
    # 600 runs or fewer cannot resolve 4 from 6 %: the Monte Carlo interval must overlap what is accepted.
    assert row["low"] <= high and row["high"] >= low, row


def test_the_small_test_can_fail() -> None:
    wrong = next(case for case in CASES if case.name == "paired t that ignores families")
    row = measure(wrong, runs=600, seed=1)
    assert row["low"] > 0.06  # this many runs tell a broken test from a right one
