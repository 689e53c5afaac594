import math

import numpy as np
import pytest
from scipy import special, stats

from pipeline_lib.evaluation.clusters import (
    hedges_correction,
    interquartile_mean,
    paired_hedges_g,
    probability_of_improvement,
)
from pipeline_lib.evaluation.planning import noncentral_t_cdf
from pipeline_lib.evaluation.results import EvaluationError


@pytest.mark.parametrize(
    ("df", "exact"), [(4, 0.797885), (10, 0.922746), (18, 0.957646), (28, 0.972932), (58, 0.987004), (98, 0.992324)]
)
def test_correction_is_exact_not_the_common_approximation(df: int, exact: float) -> None:
    assert hedges_correction(df) == pytest.approx(exact, abs=5e-7)
    assert abs(hedges_correction(df) - (1 - 3 / (4 * df - 1))) > 1e-7


def test_one_degree_of_freedom_has_no_correction() -> None:
    with pytest.raises(EvaluationError, match="more than one degree"):
        hedges_correction(1)


def test_intervals_of_large_effects_on_few_families_cover_what_they_say() -> None:
    rng = np.random.default_rng(0)
    codes, inside, runs = np.repeat(np.arange(10), 10), 0, 600
    for _ in range(runs):
        shared, own = rng.standard_normal((3, 10))[:, codes], rng.standard_normal((3, 100))
        common, first, second = math.sqrt(0.4) * shared + math.sqrt(0.6) * own
        a, b = (math.sqrt(0.6) * common + math.sqrt(0.4) * team for team in (first, second))
        found = paired_hedges_g(a + 3, b, codes, 9, 0.95)
        inside += found.low <= 3 <= found.high
    assert 0.925 < inside / runs < 0.975


def test_paired_g_is_that_of_the_means_and_their_pooled_spread() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random(30), rng.random(30)
    found = paired_hedges_g(a, b, np.repeat(np.arange(10), 3), 9, 0.95)
    assert found.d == pytest.approx((a.mean() - b.mean()) / math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2))
    assert found.g == pytest.approx(found.d * hedges_correction(58)) and found.low < found.g < found.high
    assert paired_hedges_g(np.ones(30), np.zeros(30), np.arange(30), 29, 0.95).g is None


def test_noncentral_t_agrees_with_scipy_where_scipy_answers() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        df, t = float(np.exp(rng.uniform(0.8, 6))), float(rng.normal() * 10)
        nc = t + rng.normal() * 2 * math.sqrt(1 + t * t / (2 * df))
        expected = special.nctdtr(df, nc, t)
        if not math.isnan(expected):
            assert noncentral_t_cdf(t, df, nc) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("t", "df", "nc"), [(170.60849588823802, 1.1184481080796953, -122.68890870642053), (18.2, 19, -20.678593776950905)]
)
def test_noncentral_t_has_no_holes_where_scipy_has(t: float, df: float, nc: float) -> None:
    assert math.isnan(special.nctdtr(df, nc, t))
    rng = np.random.default_rng(1)
    drawn = (rng.standard_normal(200_000) + nc) / np.sqrt(rng.chisquare(df, 200_000) / df)
    assert noncentral_t_cdf(t, df, nc) == pytest.approx((drawn <= t).mean(), abs=0.005)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (range(1, 9), 4.5),
        (range(12), 5.5),
        (range(10), 4.5),
        ((1, 2, 3, 4, 100), 3.0),
        ([[1, 2], [2, 2], [1, 1], [2, 1]], 1.5),
        ([[1, 1], [2, 2], [3, 3]], 2.0),
    ],
)
def test_interquartile_mean(values: object, expected: float) -> None:
    assert interquartile_mean(np.array(values if isinstance(values, list | tuple) else list(values))) == expected


def test_probability_of_improvement() -> None:
    x, y = [[1, 2], [2, 2], [1, 1], [2, 1]], [[1, 1], [2, 2], [3, 3]]
    assert probability_of_improvement(x, y).mean() == pytest.approx(1 / 3)
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 5, (9, 4)).astype(float), rng.integers(0, 5, (7, 4)).astype(float)
    for task, found in enumerate(probability_of_improvement(a, b)):
        u = stats.mannwhitneyu(a[:, task], b[:, task]).statistic
        assert found == pytest.approx(u / 63)
    a[0, 0] = np.nan
    assert probability_of_improvement(a, b)[0] == pytest.approx(
        np.mean([(u > v) + 0.5 * (u == v) for u in a[1:, 0] for v in b[:, 0]])
    )
