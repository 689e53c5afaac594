from __future__ import annotations

import gc

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from pipeline_lib.evaluation.multiplicity import dunnett, holm
from pipeline_lib.evaluation.results import EvaluationError

BH_1995 = [
    0.0001,
    0.0004,
    0.0019,
    0.0095,
    0.0201,
    0.0278,
    0.0298,
    0.0344,
    0.0459,
    0.3240,
    0.4262,
    0.5719,
    0.6528,
    0.7590,
    1,
]


def test_small_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_fifteen_p_values_of_benjamini_and_hochberg() -> None:
    adjusted = holm(BH_1995)
    assert adjusted[:9] == pytest.approx([0.0015, 0.0056, 0.0247, 0.114, 0.2211, 0.278, 0.278, 0.278, 0.3213])
    assert adjusted[9:] == [1.0] * 6
    assert sum(p <= 0.05 for p in adjusted) == 3


def test_a_test_without_answer_stays_in_the_family() -> None:
    assert holm([0.02, None, 0.03]) == [pytest.approx(0.06), None, pytest.approx(0.06)]
    assert holm([]) == []
    with pytest.raises(EvaluationError, match="must lie in"):
        holm([0.5, 1.5])


def test_holm_is_that_of_statsmodels() -> None:
    p = np.random.default_rng(0).random((20, 6)).round(1) ** 3  # with ties
    gc.freeze()  # statsmodels collects garbage in every call
    try:
        assert all(holm(list(row)) == pytest.approx(list(multipletests(row, method="holm")[1])) for row in p)
    finally:
        gc.unfreeze()


def test_dunnett() -> None:
    rng = np.random.default_rng(0)
    base, same, better = rng.normal(size=30), rng.normal(size=30), rng.normal(1.5, 1, 30)
    found = dunnett({"same": same, "better": better}, base, seed=0)
    expected = stats.dunnett(same, better, control=base, rng=np.random.default_rng(0)).pvalue
    assert [found["same"], found["better"]] == pytest.approx(expected)
    assert found["better"] < 0.001 < 0.05 < found["same"]
    assert dunnett({"x": [1.0, 1.0]}, [1.0, 1.0], 0) == {"x": None}
