import math

import numpy as np
import pytest

from pipeline_lib.evaluation import planning
from pipeline_lib.evaluation.results import EvaluationError


@pytest.mark.parametrize(("d", "n"), [(0.2, 198.15), (0.5, 33.37)])
def test_paired_sizes(d: float, n: float) -> None:
    assert planning.problems_needed(-0.1 * d, 0.01) == math.ceil(n)


@pytest.mark.parametrize(("d", "n"), [(0.03, 8723), (0.1, 787), (0.8, 15), (1.5, 6), (2.5, 4)])
def test_paired_sizes_are_those_of_statsmodels(d: float, n: int) -> None:
    """By its TTestPower.solve_power, version 0.15.0, rounded up."""
    assert planning.problems_needed(d, 1.0) == n


def test_a_difference_of_many_standard_deviations_needs_few_problems() -> None:
    assert [planning.problems_needed(d, 1.0) for d in (6.0, 50.0, 1000.0)] == [3, 2, 2]


def test_teams_that_differ_by_the_same_on_every_problem_need_two_of_them() -> None:
    assert planning.problems_needed(0.5, 0.0) == 2


def test_miller() -> None:
    assert planning.questions_needed(0.03, 1 / 9) == pytest.approx(968.998, abs=0.001)
    assert math.ceil(planning.questions_needed(0.03, 1 / 9 + 2 * (1 / 6))) == 3876
    assert math.ceil(planning.questions_needed(0.03, 1 / 9 + 2 * (1 / 6) / 10)) == 1260
    with pytest.raises(EvaluationError, match="difference of 0"):
        planning.questions_needed(0.0, 1.0)


def test_detectable_effect_tends_to_2_80_standard_errors() -> None:
    assert planning.detectable(1.0, 1e6, 0.05, 0.8) == pytest.approx(2.8016, abs=1e-3)
    assert planning.detectable(0.1, 5, 0.05, 0.8) > 0.28
    for df in (1, 2, 7):
        assert planning.t_power(planning.detectable(1.0, df, 0.05, 0.8), df, 0.05) == pytest.approx(0.8, abs=1e-6)
    with pytest.raises(EvaluationError, match="standard error above 0"):
        planning.detectable(0.0, 5, 0.05, 0.8)
    with pytest.raises(EvaluationError, match="alpha < power"):
        planning.detectable(1.0, 5, 0.05, 0.01)


def test_a_standard_error_is_freed_of_its_bias() -> None:
    rng = np.random.default_rng(0)
    seen = rng.standard_normal((40_000, 5)).std(axis=1, ddof=1).mean()
    assert planning.unbiased(seen, 4) == pytest.approx(1.0, abs=0.01)
    assert planning.unbiased(1.0, 1e5) == pytest.approx(1.0, abs=1e-5)
