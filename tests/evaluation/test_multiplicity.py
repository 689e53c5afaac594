import pytest

from pipeline_lib.evaluation.results import EvaluationError, holm

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


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [
        ([0.216, 0.027, 0.0, 0.0, 0.512, 0.729], [0.648, 0.108, 0.0, 0.0, 1.0, 1.0]),
        ([0.729, 0.0, 0.343, 0.008, 0.729, 0.125], [1.0, 0.0, 1.0, 0.04, 1.0, 0.5]),
        ([0.027, 0.064, 0.0, 0.001, 0.343, 0.216], [0.108, 0.192, 0.0, 0.005, 0.432, 0.432]),
        ([0.343, 0.064, 0.001, 0.343, 0.125, 0.027], [0.686, 0.256, 0.006, 0.686, 0.375, 0.135]),
    ],
)
def test_holm_with_ties_is_that_of_statsmodels(p: list[float], adjusted: list[float]) -> None:
    """By its multipletests, version 0.15.0."""
    assert holm(p) == pytest.approx(adjusted)
