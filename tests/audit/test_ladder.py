"""Kendall's tau beside that of scipy."""

import math

import numpy as np
from scipy import stats

from pipeline_lib.audit.result import kendall_tau


def test_kendalls_tau_is_that_of_scipy_with_and_without_ties():
    draws = np.random.default_rng(0)
    for _ in range(300):
        left, right = draws.integers(0, 4, (2, draws.integers(2, 12))) / 3
        expected, found = float(stats.kendalltau(left, right).statistic), kendall_tau(left, right)
        assert math.isclose(found, expected, abs_tol=1e-12) or (math.isnan(found) and math.isnan(expected))
