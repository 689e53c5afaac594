"""The clustered mean against CR2 and Satterthwaite's degrees of freedom written out as matrices."""

import math

import numpy as np
import pytest

from pipeline_lib.evaluation.clusters import clustered_mean

UNEQUAL = np.repeat(np.arange(6), (1, 2, 2, 5, 9, 21))


def written_out(x: np.ndarray, codes: np.ndarray) -> tuple[float, float]:
    """CR2 standard error, and degrees of freedom under the correlation of a one-way analysis of variance."""
    n, members = x.size, [np.flatnonzero(codes == g) for g in range(codes.max() + 1)]
    sizes = np.array([len(m) for m in members])
    within = sum(((x[m] - x[m].mean()) ** 2).sum() for m in members) / (n - sizes.size)
    between = sum(len(m) * (x[m].mean() - x.mean()) ** 2 for m in members) / (sizes.size - 1)
    shared = max(0.0, (between - within) / ((n - (sizes**2).sum() / n) / (sizes.size - 1)))
    rho = shared / (shared + within)
    omega = np.where(codes[:, None] == codes[None, :], rho, 0.0) + (1 - rho) * np.eye(n)
    residual_maker = np.eye(n) - np.full((n, n), 1 / n)
    rows, variance = [], 0.0
    for m in members:
        values, vectors = np.linalg.eigh(np.eye(len(m)) - np.full((len(m), len(m)), 1 / n))
        adjusted = vectors @ np.diag(values**-0.5) @ vectors.T
        rows.append(np.ones(len(m)) @ adjusted @ residual_maker[m] / n)
        variance += float((rows[-1] @ x) ** 2)
    covariance = np.array(rows) @ omega @ np.array(rows).T
    return math.sqrt(variance), float(np.trace(covariance) ** 2 / (covariance**2).sum())


@pytest.mark.parametrize("shared", [0.0, 0.5, 3.0])
def test_unequal_clusters_are_cr2_with_satterthwaite_degrees_of_freedom(shared: float) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=UNEQUAL.size) + shared * rng.normal(size=6)[UNEQUAL]
    found = clustered_mean(x, UNEQUAL)
    assert (found.se, found.df) == tuple(map(pytest.approx, written_out(x, UNEQUAL)))
    assert 1 <= found.df < 5


def test_equal_clusters_have_one_degree_of_freedom_less_than_their_number() -> None:
    x, codes = np.random.default_rng(0).normal(size=24), np.repeat(np.arange(6), 4)
    found = clustered_mean(x, codes)
    means = x.reshape(6, 4).mean(axis=1)
    assert found.df == 5
    assert found.se == pytest.approx(means.std(ddof=1) / math.sqrt(6))


def test_how_many_families_carry_the_variation() -> None:
    one_of_ten = np.zeros(10)
    one_of_ten[3] = 1.0
    assert clustered_mean(one_of_ten, np.arange(10)).carrying == pytest.approx(1.23, abs=0.01)
    assert clustered_mean(np.tile([0.0, 1.0], 5), np.arange(10)).carrying == pytest.approx(10)
    normal = np.random.default_rng(0).normal(size=3000)
    assert clustered_mean(normal, np.arange(3000)).carrying == pytest.approx(1000, rel=0.1)
