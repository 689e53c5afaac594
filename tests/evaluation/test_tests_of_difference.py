from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats

from pipeline_lib.evaluation import tests_of_difference as tests
from pipeline_lib.evaluation.clusters import clustered_mean, encode, t_interval
from pipeline_lib.evaluation.results import EvaluationError, TestResult

D1 = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4]
D2 = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4]
D3 = [17.2, 20.9, 22.6, 18.1, 21.7, 21.4, 23.5, 24.2, 14.7, 21.8]
D4 = [
    21.5,
    22.8,
    21.0,
    23.0,
    21.6,
    23.6,
    22.5,
    20.7,
    23.4,
    21.8,
    20.7,
    21.7,
    21.5,
    22.5,
    23.6,
    21.5,
    22.5,
    23.5,
    21.5,
    21.8,
]
X, Y = [3.0, 4.0, 1.0, 2.1], [490.2, 340.0, 433.9]


def welch(a: ArrayLike, b: ArrayLike) -> TestResult:
    """Welch's test of two groups in which every observation is a cluster of its own."""
    x, y = (clustered_mean(arm, np.arange(len(np.asarray(arm)))) for arm in (a, b))
    return tests.welch_clustered(x, y)


@pytest.mark.parametrize(
    ("a", "b", "t", "df", "p"),
    [
        (D1, D2, -2.455356398, 24.98852929, 0.021378001462867),
        (D3, D4, -1.565433524, 9.904741249, 0.148841696605328),
        (X, Y, -9.559497722, 2.000852349, 0.010751561149785),
    ],
)
def test_welch_published(a: list[float], b: list[float], t: float, df: float, p: float) -> None:
    found = welch(a, b)
    assert found.statistic == pytest.approx(t, abs=5e-10)
    assert found.df == pytest.approx(df, rel=1e-9)
    assert found.p == pytest.approx(p, rel=1e-10)


def test_welch_interval() -> None:
    found = welch(D1, D2)
    assert (found.low, found.high) == (pytest.approx(-3.984096, abs=5e-7), pytest.approx(-0.349237, abs=5e-7))


def test_welch_and_paired_agree_with_scipy() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.2, 1, 25), rng.normal(0, 2, 25)
    expected = stats.ttest_ind(a, b, equal_var=False)
    found = welch(a, b)
    assert (found.statistic, found.p) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))
    related = stats.ttest_rel(a, b)
    found = tests.paired(a - b, np.arange(25))
    assert (found.statistic, found.p) == (pytest.approx(related.statistic), pytest.approx(related.pvalue))
    limits = related.confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(limits.low), pytest.approx(limits.high))


def test_clustered_error_is_that_of_statsmodels() -> None:
    import statsmodels.api as sm

    rng = np.random.default_rng(1)
    groups = rng.permutation(np.repeat(np.arange(15), 6))
    y = rng.normal(size=90) + rng.normal(size=15)[groups]
    fitted = sm.OLS(y, np.ones(90)).fit(cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False})
    found = clustered_mean(y, encode([str(g) for g in groups]))
    assert found.se == pytest.approx(float(fitted.bse[0]) * math.sqrt(15 / 14), rel=1e-10)
    simple = clustered_mean(y, np.arange(90))
    assert simple.se == pytest.approx(y.std(ddof=1) / math.sqrt(90))
    assert t_interval(y, np.arange(90), 0.9).low == pytest.approx(stats.ttest_1samp(y, 0).confidence_interval(0.9).low)


def test_tost_agrees_with_statsmodels() -> None:
    from statsmodels.stats.weightstats import ttost_ind, ttost_paired

    rng = np.random.default_rng(2)
    a, b = rng.normal(0.1, 1, 30), rng.normal(0, 1.5, 22)
    found = tests.equivalence(welch(a, b), 0.8, 0.05)
    assert found.p == pytest.approx(float(ttost_ind(a, b, -0.8, 0.8, usevar="unequal")[0]), rel=1e-9)
    found = tests.equivalence(tests.paired(a[:22] - b, np.arange(22)), 0.8, 0.05)
    assert found.p == pytest.approx(float(ttost_paired(a[:22], b, -0.8, 0.8)[0]), rel=1e-9)


@pytest.mark.parametrize("shift", [0.0, 0.2, 0.3, 0.4, 0.5])
def test_tost_interval_lies_inside_the_margin_exactly_when_p_is_small(shift: float) -> None:
    d = np.random.default_rng(5).normal(shift, 1, 60)
    found = tests.equivalence(tests.paired(d, np.arange(60)), 0.5, 0.05)
    assert (found.p <= 0.05) == (found.low > -0.5 and found.high < 0.5)
    assert found.level == pytest.approx(0.9)


def test_margin_must_be_positive() -> None:
    with pytest.raises(EvaluationError, match="smallest difference that would matter; got 0"):
        tests.equivalence(welch(D1, D2), 0.0, 0.05)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"), [(5, 20, 0.111862, 0.468701), (0, 20, 0.0, 0.161125), (20, 20, 1 - 0.161125, 1.0)]
)
def test_wilson(k: int, n: int, low: float, high: float) -> None:
    found = tests.wilson(k, n)
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-7), pytest.approx(high, abs=5e-7))


def test_wilson_agrees_with_statsmodels_and_refuses_nonsense() -> None:
    from statsmodels.stats.proportion import proportion_confint

    expected = proportion_confint(7, 31, alpha=0.1, method="wilson")
    found = tests.wilson(7, 31, 0.9)
    assert (found.low, found.high) == (pytest.approx(expected[0]), pytest.approx(expected[1]))
    with pytest.raises(EvaluationError, match="21 successes in 20"):
        tests.wilson(21, 20)


def test_rates() -> None:
    a, b = np.array([1] * 10 + [0] * 10), np.array([1] * 8 + [0] * 2 + [1] + [0] * 9)
    assert tests.rates_paired(a, b).p == pytest.approx(stats.binomtest(1, 3).pvalue)
    assert tests.rates_paired(a, b).estimate == pytest.approx(0.05)


def test_permutation_is_exact_for_few_and_never_zero_for_many() -> None:
    many = tests.sign_flips(np.arange(1.0, 41.0), np.arange(40), 999, 0)
    assert many.p == pytest.approx(2 / 1000)
    flips = tests.sign_flips(np.array([1.0, 2.0, 3.0, 1.5]), np.arange(4), 9999, 0)
    assert flips.p == pytest.approx(2 / 16)


def test_sign_flips_keep_clusters_together() -> None:
    d, codes = np.array([1.0, 1.1, 0.9, 1.0, 1.2, 0.9]), np.array([0, 0, 0, 1, 1, 1])
    assert tests.sign_flips(d, codes, 9999, 0).p == pytest.approx(0.5)  # two clusters: four sign patterns
    assert tests.sign_flips(d, np.arange(6), 9999, 0).p == pytest.approx(2 / 64)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (welch([1.0, 1.0, 1.0], [0.0, 0.0, 0.0]), "n_eff = 1"),
        (welch([1.0, 1.0], [1.0, 1.0]), "n_eff = 1"),
        (welch([1.0], [0.0, 1.0]), "one family"),
        (welch(np.full(30, 0.1) + 0.2, np.full(30, 0.3)), "n_eff = 1"),
        (tests.paired(np.full(9, 0.1) * 3, np.arange(9)), "no variation"),
        (tests.paired(np.array([1.0, 2.0]), np.array([0, 0])), "one family"),
        (tests.sign_flips(np.zeros(9), np.arange(9), 999, 0), "no variation"),
        (tests.rates_paired([1, 0, 1], [1, 0, 1]), "agree on every pair"),
    ],
)
def test_degenerate_data_get_words_and_no_p_value(found: tests.TestResult, words: str) -> None:
    assert found.p is None
    assert found.statistic is None
    assert words in found.degenerate
    assert tests.equivalence(found, 0.1, 0.05).p is None
