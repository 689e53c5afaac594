import math

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats

from pipeline_lib.evaluation import evidence as tests
from pipeline_lib.evaluation.clusters import clustered_mean, encode, t_interval
from pipeline_lib.evaluation.results import EvaluationError, TestResult


def welch(a: ArrayLike, b: ArrayLike) -> TestResult:
    """Scipy's Welch test of two groups, as a result."""
    found = stats.ttest_ind(a, b, equal_var=False)
    estimate = float(np.mean(a) - np.mean(b))
    se = estimate / float(found.statistic)
    return tests.student("Welch", estimate, se, found.df, (1,), 0.95, float(found.statistic), float(found.pvalue))


def test_paired_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.2, 1, 25), rng.normal(0, 2, 25)
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    assert (welch(a, b).low, welch(a, b).high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    related = stats.ttest_rel(a, b)
    found = tests.paired(a - b, np.arange(25))
    assert (found.statistic, found.p) == (pytest.approx(related.statistic), pytest.approx(related.pvalue))
    limits = related.confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(limits.low), pytest.approx(limits.high))


def test_clustered_error_is_that_of_statsmodels() -> None:
    """By statsmodels 0.15.0: OLS on a constant, cov_type "cluster" without its correction."""
    rng = np.random.default_rng(1)
    groups = rng.permutation(np.repeat(np.arange(15), 6))
    y = rng.normal(size=90) + rng.normal(size=15)[groups]
    found = clustered_mean(y, encode([str(g) for g in groups]))
    assert found.se == pytest.approx(0.2614279907984276 * math.sqrt(15 / 14), rel=1e-10)
    simple = clustered_mean(y, np.arange(90))
    assert simple.se == pytest.approx(y.std(ddof=1) / math.sqrt(90))
    assert t_interval(y, np.arange(90), 0.9).low == pytest.approx(stats.ttest_1samp(y, 0).confidence_interval(0.9).low)


def test_tost_agrees_with_statsmodels() -> None:
    """By its ttost_ind (usevar "unequal") and ttost_paired, version 0.15.0."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(0.1, 1, 30), rng.normal(0, 1.5, 22)
    found = tests.equivalence(welch(a, b), 0.8, 0.05)
    assert found.p == pytest.approx(0.04917509007030536, rel=1e-9)
    found = tests.equivalence(tests.paired(a[:22] - b, np.arange(22)), 0.8, 0.05)
    assert found.p == pytest.approx(0.04133031523466177, rel=1e-9)


@pytest.mark.parametrize("shift", [0.0, 0.2, 0.3, 0.4, 0.5])
def test_tost_interval_lies_inside_the_margin_exactly_when_p_is_small(shift: float) -> None:
    d = np.random.default_rng(5).normal(shift, 1, 60)
    found = tests.equivalence(tests.paired(d, np.arange(60)), 0.5, 0.05)
    assert (found.p <= 0.05) == (found.low > -0.5 and found.high < 0.5)
    assert found.level == pytest.approx(0.9)


def test_margin_must_be_positive() -> None:
    with pytest.raises(EvaluationError, match="smallest difference that would matter; got 0"):
        tests.equivalence(tests.paired([1.0, 2.0, 4.0], np.arange(3)), 0.0, 0.05)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"), [(5, 20, 0.111862, 0.468701), (0, 20, 0.0, 0.161125), (20, 20, 1 - 0.161125, 1.0)]
)
def test_wilson(k: int, n: int, low: float, high: float) -> None:
    found = tests.wilson(k, n)
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-7), pytest.approx(high, abs=5e-7))


def test_wilson_agrees_with_statsmodels_and_refuses_nonsense() -> None:
    """By its proportion_confint, version 0.15.0."""
    found = tests.wilson(7, 31, 0.9)
    assert (found.low, found.high) == (pytest.approx(0.127329248082247), pytest.approx(0.368302678958098))
    with pytest.raises(EvaluationError, match="21 successes in 20"):
        tests.wilson(21, 20)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (tests.paired(np.full(9, 0.1) * 3, np.arange(9)), "no variation"),
        (tests.paired(np.array([1.0, 2.0]), np.array([0, 0])), "one family"),
    ],
)
def test_degenerate_data_get_words_and_no_p_value(found: tests.TestResult, words: str) -> None:
    assert found.p is None
    assert found.statistic is None
    assert words in found.degenerate
    assert tests.equivalence(found, 0.1, 0.05).p is None
