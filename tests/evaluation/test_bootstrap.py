from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from pipeline_lib.evaluation import bootstrap
from pipeline_lib.evaluation.clusters import ClusteredMean
from pipeline_lib.evaluation.effects import interquartile_mean
from pipeline_lib.evaluation.results import EvaluationError

GRID = np.array([[0, 10], [1, 20], [5, 60]], dtype=float)  # runs x tasks


def enumerate_resamples() -> list[np.ndarray]:
    """All 27 x 27 equally likely stratified resamples of GRID."""
    draws = list(itertools.product(range(3), repeat=3))
    return [np.column_stack([GRID[list(i), 0], GRID[list(j), 1]]) for i in draws for j in draws]


def test_interquartile_means_of_all_resamples_are_those_of_an_enumeration() -> None:
    resamples = enumerate_resamples()
    means = np.array([r.mean() for r in resamples])
    counts = np.array([[(r[:, t] == GRID[s, t]).sum() for t in (0, 1) for s in range(3)] for r in resamples])
    iqms = bootstrap.weighted_iqm(GRID.T.ravel(), counts)
    assert iqms == pytest.approx([interquartile_mean(r) for r in resamples])
    assert (means.mean(), means.std()) == (pytest.approx(16.0), pytest.approx(6.267199, abs=5e-7))
    assert np.quantile(means, [0.025, 0.975]) == pytest.approx([6.166667, 30.766667], abs=5e-7)
    assert interquartile_mean(GRID) == 9.0
    assert iqms.std() == pytest.approx(6.410230, abs=5e-7)
    assert np.quantile(iqms, [0.025, 0.975]) == pytest.approx([5.25, 31.1], abs=5e-7)


def test_weighted_iqm_of_uneven_multisets() -> None:
    rng = np.random.default_rng(0)
    values, counts = np.round(rng.random(13), 1), rng.integers(0, 5, (40, 13))
    expected = [interquartile_mean(np.repeat(values, row)) for row in counts]
    assert bootstrap.weighted_iqm(values, counts) == pytest.approx(expected)


def test_clustered_bootstrap_draws_whole_clusters_paired_over_rows() -> None:
    clusters = np.array([0, 0, 0, 1, 2, 2])
    a = np.array([1.0, 2.0, 3.0, 10.0, 20.0, 30.0])
    draws = bootstrap.clustered_bootstrap(np.vstack([a, a + 5]), clusters, 4_000, seed=0)
    assert draws[:, 1] - draws[:, 0] == pytest.approx(np.full(4_000, 5.0))  # same draws for both rows
    sums, sizes = np.array([6.0, 10.0, 50.0]), np.array([3, 1, 2])
    possible = {round(sums[list(i)].sum() / sizes[list(i)].sum(), 9) for i in itertools.product(range(3), repeat=3)}
    assert {round(value, 9) for value in draws[:, 0]} == possible


def test_clustered_bootstrap_has_the_clustered_standard_error() -> None:
    rng = np.random.default_rng(4)
    clusters = np.repeat(np.arange(50), 4)
    x = rng.normal(size=50)[clusters] + 0.1 * rng.normal(size=200)
    draws = bootstrap.clustered_bootstrap(x, clusters, 20_000, seed=0)[:, 0]
    means = x.reshape(50, 4).mean(axis=1)
    assert draws.std() == pytest.approx(means.std() / math.sqrt(50), rel=0.03)
    assert draws.std() > 1.8 * x.std() / math.sqrt(200)  # what ignoring the clusters would give


def known(clusters: int, mean: float = 0.0) -> ClusteredMean:
    return ClusteredMean(mean, 1.0, clusters, clusters, clusters - 1.0, clusters / 3)


def test_interval_is_expanded_for_few_clusters() -> None:
    draws = np.random.default_rng(0).normal(size=100_000)
    few = bootstrap.interval(draws, known(8), 0.95, "")
    many = bootstrap.interval(draws, known(100_000), 0.95, "")
    assert many.high == pytest.approx(1.96, abs=0.03)
    assert few.high == pytest.approx(math.sqrt(8 / 7) * stats.t.ppf(0.975, 7), abs=0.1)
    assert "one family" in bootstrap.interval(draws, known(1), 0.95, "").degenerate
    assert "every resample gives the same" in bootstrap.interval(np.ones(9), known(9, 1.0), 0.95, "").degenerate


def test_families_too_few_to_resample_get_no_interval() -> None:
    found = bootstrap.interval(np.random.default_rng(0).normal(size=999), known(3), 0.95, "")
    assert found.low is None and "3 families are too few to resample" in found.degenerate


def test_simultaneous_factor_of_independent_and_of_identical_rows() -> None:
    rng = np.random.default_rng(0)
    independent = rng.normal(size=(60_000, 15))
    exact = stats.norm.ppf(0.5 + 0.5 * 0.95 ** (1 / 15))
    assert bootstrap.simultaneous_factor(independent, 0.95, 10**6) == pytest.approx(exact, abs=0.03)
    same = np.repeat(independent[:, :1], 15, axis=1)
    assert bootstrap.simultaneous_factor(same, 0.95, 10**6) == pytest.approx(1.96, abs=0.03)
    assert bootstrap.simultaneous_factor(np.zeros((10, 3)), 0.95, 9) == 0.0


def test_crossed_bootstrap_sees_that_runs_differ() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 1)) + 0.1 * rng.normal(size=(5, 80))  # runs differ, problems hardly
    codes = np.arange(80)
    crossed = bootstrap.crossed_bootstrap(x, codes, "mean", 5_000, 0)
    assert crossed.std() == pytest.approx(x.mean(axis=1).std() / math.sqrt(5), rel=0.05)
    fixed = bootstrap.crossed_bootstrap(x, codes, "mean", 5_000, 0, draw_runs=False)
    assert fixed == pytest.approx(bootstrap.clustered_bootstrap(x.mean(axis=0), codes, 5_000, 0)[:, 0], abs=0.05)
    assert bootstrap.crossed_bootstrap(x, codes, "iqm", 5_000, 0).std() == pytest.approx(crossed.std(), rel=0.5)


def test_impossible_draws_are_refused() -> None:
    with pytest.raises(EvaluationError, match="0 clusters"):
        bootstrap.cluster_counts(0, 10, np.random.default_rng(0))
