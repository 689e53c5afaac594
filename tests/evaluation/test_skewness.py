"""Student's test, widened where the differences lean to one side."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pipeline_lib.evaluation.clusters import clustered_mean, t_interval
from pipeline_lib.evaluation.evidence import families, mean_interval, primary, within
from pipeline_lib.evaluation.skewness import CAUTION, upper_critical, upper_tail
from pipeline_lib.evaluation.tests_of_difference import equivalence, paired

LEANING = np.random.default_rng(3).exponential(1, 40) - 1
CODES = np.arange(40)


def test_the_skewness_of_a_mean_is_that_of_scipy_by_the_root_of_the_families() -> None:
    expected = stats.skew(LEANING, bias=False) / np.sqrt(40)
    assert clustered_mean(LEANING, CODES).skewness == pytest.approx(expected, rel=1e-6)
    assert clustered_mean(LEANING[:2], CODES[:2]).skewness == 0


@pytest.mark.parametrize("t", [0.3, 1.0, 2.5, 8.0, 300.0])
@pytest.mark.parametrize("df", [1.5, 7.0, 99.0])
def test_without_skewness_or_against_it_tails_are_those_of_student(t: float, df: float) -> None:
    for skewness in (0.0, 0.4):
        assert upper_tail(t, df, skewness) == pytest.approx(max(stats.t.sf(t, df), 1e-300), rel=1e-8)
    assert upper_tail(-t, df, -0.4) == pytest.approx(stats.t.cdf(t, df))


@pytest.mark.parametrize("q", [1e-9, 0.004, 0.025, 0.3])
def test_tail_and_critical_value_are_inverse_to_each_other(q: float) -> None:
    limit = upper_critical(q, 11.0, -0.35)
    z = stats.norm.ppf(q)
    assert limit == pytest.approx(stats.t.isf(q, 11) + CAUTION * 0.35 * (2 * z * z + 1) / 6)
    assert upper_tail(limit, 11.0, -0.35) == pytest.approx(q, rel=1e-6)


def test_a_test_is_widened_on_the_side_of_the_lean_and_there_only() -> None:
    plain, wide = paired(LEANING, CODES), primary(LEANING, CODES, 0.95)
    assert wide.low == pytest.approx(plain.low) and wide.high > plain.high + 0.01
    mirrored = primary(-LEANING, CODES, 0.95)
    assert (mirrored.low, mirrored.high, mirrored.p) == tuple(map(pytest.approx, (-wide.high, -wide.low, wide.p)))
    symmetric = np.concatenate([LEANING, -LEANING])
    both = primary(symmetric, np.arange(80), 0.95)
    assert (both.low, both.p) == tuple(map(pytest.approx, (paired(symmetric, np.arange(80)).low, 1.0)))


@pytest.mark.parametrize("shift", np.linspace(-0.9, 0.9, 13))
def test_interval_p_value_and_equivalence_never_disagree(shift: float) -> None:
    d = LEANING - LEANING.mean() + shift
    test, found = primary(d, CODES, 0.95), families(d, CODES)
    assert (test.p <= 0.05) == (test.low > 0 or test.high < 0)
    same = within(test, found, 0.5, 0.05)
    assert (same.low, same.high, same.level) == tuple(map(pytest.approx, (test.low, test.high, test.level)))
    assert (same.p <= 0.05) == (test.low > -0.5 and test.high < 0.5)
    assert same.p >= min(1.0, 2 * equivalence(test, 0.5, 0.05).p) - 1e-12


def test_the_interval_of_a_mean_near_its_ceiling_covers_it_and_students_does_not() -> None:
    rng = np.random.default_rng(5)
    covered = np.zeros(2)
    for _ in range(150):
        families_at = rng.beta(4 * 0.94, 4 * 0.06, 24)
        values = rng.binomial(12, np.repeat(families_at, 4)) / 12
        codes = np.repeat(np.arange(24), 4)
        for number, found in enumerate((t_interval(values, codes, 0.95), mean_interval(values, codes, 0.95))):
            covered[number] += found.low <= 0.94 <= found.high
    plain, wide = covered / 150
    assert plain < 0.9 < wide, (plain, wide)
