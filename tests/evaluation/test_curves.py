import itertools
import math

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats

from pipeline_lib.evaluation import selection
from pipeline_lib.evaluation.clusters import Codes
from pipeline_lib.evaluation.results import EvaluationError


def clustered_bootstrap(values: ArrayLike, clusters: Codes, resamples: int) -> np.ndarray:
    counts = selection.cluster_counts(int(clusters.max()) + 1, resamples, np.random.default_rng(0))
    return selection.clustered_means(values, clusters, counts)


def test_a_resample_draws_whole_clusters_paired_over_rows() -> None:
    clusters = np.array([0, 0, 0, 1, 2, 2])
    a = np.array([1.0, 2.0, 3.0, 10.0, 20.0, 30.0])
    draws = clustered_bootstrap(np.vstack([a, a + 5]), clusters, 4_000)
    assert draws[:, 1] - draws[:, 0] == pytest.approx(np.full(4_000, 5.0))  # same draws for both rows
    sums, sizes = np.array([6.0, 10.0, 50.0]), np.array([3, 1, 2])
    possible = {round(sums[list(i)].sum() / sizes[list(i)].sum(), 9) for i in itertools.product(range(3), repeat=3)}
    assert {round(value, 9) for value in draws[:, 0]} == possible


def test_resampled_means_have_the_clustered_standard_error() -> None:
    rng = np.random.default_rng(4)
    clusters = np.repeat(np.arange(50), 4)
    x = rng.normal(size=50)[clusters] + 0.1 * rng.normal(size=200)
    draws = clustered_bootstrap(x, clusters, 20_000)[:, 0]
    means = x.reshape(50, 4).mean(axis=1)
    assert draws.std() == pytest.approx(means.std() / math.sqrt(50), rel=0.03)
    assert draws.std() > 1.8 * x.std() / math.sqrt(200)  # what ignoring the clusters would give


def test_simultaneous_factor_of_independent_and_of_identical_rows() -> None:
    rng = np.random.default_rng(0)
    independent = rng.normal(size=(60_000, 15))
    exact = stats.norm.ppf(0.5 + 0.5 * 0.95 ** (1 / 15))
    assert selection.simultaneous_factor(independent, 0.95, 10**6) == pytest.approx(exact, abs=0.03)
    same = np.repeat(independent[:, :1], 15, axis=1)
    assert selection.simultaneous_factor(same, 0.95, 10**6) == pytest.approx(1.96, abs=0.03)
    assert selection.simultaneous_factor(np.zeros((10, 3)), 0.95, 9) == 0.0


def test_impossible_draws_are_refused() -> None:
    with pytest.raises(EvaluationError, match="0 clusters"):
        selection.cluster_counts(0, 10, np.random.default_rng(0))
