from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.sequential import bounds, crossing_probability, peeking_error


@pytest.mark.parametrize(("looks", "z"), [(1, 1.960), (2, 2.178), (3, 2.289), (5, 2.413)])
def test_pocock(looks: int, z: float) -> None:
    assert bounds(looks, shape="pocock") == pytest.approx([z] * looks, abs=0.0006)


@pytest.mark.parametrize(
    ("looks", "z"),
    [(2, (2.797, 1.977)), (3, (3.471, 2.454, 2.004)), (5, (4.562, 3.226, 2.634, 2.281, 2.040))],
)
def test_obrien_fleming(looks: int, z: tuple[float, ...]) -> None:
    assert bounds(looks) == pytest.approx(z, abs=0.0006)


@pytest.mark.parametrize(("looks", "error"), [(1, 0.05), (2, 0.083), (3, 0.108), (5, 0.142), (10, 0.194), (20, 0.247)])
def test_peeking(looks: int, error: float) -> None:
    assert peeking_error(looks) == pytest.approx(error, abs=0.0015)


def test_bounds_hold_in_simulation_with_uneven_looks() -> None:
    times = np.array([0.3, 0.5, 1.0])
    z = bounds(3, alpha=0.1, information=times.tolist())
    rng = np.random.default_rng(0)
    score = np.cumsum(rng.normal(size=(200_000, 3)) * np.sqrt(np.diff(times, prepend=0)), axis=1)
    crossed = (np.abs(score / np.sqrt(times)) > z).any(axis=1).mean()
    assert crossed == pytest.approx(0.1, abs=0.002)
    assert crossing_probability(z, times.tolist()) == pytest.approx(0.1, abs=1e-5)


def test_one_look_is_the_ordinary_test() -> None:
    assert bounds(1, alpha=0.01)[0] == pytest.approx(stats.norm.ppf(0.995), abs=1e-5)


def test_nonsense_is_refused() -> None:
    with pytest.raises(EvaluationError, match="1 to 20"):
        bounds(0)
    with pytest.raises(EvaluationError, match="must rise"):
        bounds(2, information=[0.5, 0.4])
