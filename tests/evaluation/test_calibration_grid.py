"""The calibration over a grid of designs, in small: words, intervals and power where families are few or unequal."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.calibration_grid import CELLS, Cell, judged, measure, power
from benchmarks.grid_data import NO_RANGE, SHAPES, draw_sizes
from pipeline_lib.evaluation.evidence import wilson

RUNS = 250
#: One of each shape, few and many, equal and unequal, one run and eight.
SAMPLE = [
    Cell("normal", 12, False, 1),
    Cell("skew", 8, False, 8),
    Cell("skew", 24, True, 1),
    Cell("floor", 24, False, 8),
    Cell("ceiling", 100, True, 1),
    Cell("gain", 12, False, 1),
    Cell("rare gain", 24, True, 8),
    Cell("lopsided", 12, True, 1),
    Cell("lognormal", 20, True, 1),
    Cell("heavy Pareto", 100, False, 1),
    Cell("lost", 24, True, 1),
    Cell("one in ten", 10, True, 1),
    Cell("one in twenty", 20, False, 1),
    Cell(NO_RANGE, 30, True, 1),
]


@pytest.mark.drawn("cells of the calibration", "pipeline_lib/evaluation", count=6)
@pytest.mark.parametrize("cell", SAMPLE, ids=str)
def test_words_are_wrong_in_at_most_five_per_cent(cell: Cell) -> None:
    assert cell in CELLS
    found = measure(cell, RUNS)
    for key in ("wrong", "equivalent"):
        assert wilson(round(found[key] * RUNS), RUNS).low <= 0.05, found
    if cell.shape in ("normal", "skew", "gain"):
        limits = wilson(round(found["covers"] * found["given"]), found["given"])
        assert limits.high >= 0.93 and limits.low <= 0.97, found


def test_without_a_declared_range_a_rare_kind_of_family_makes_no_verdict_wrong() -> None:
    """Its p values are worth nothing here: most samples lack the kind, and look like a clear difference."""
    rng, draw = np.random.default_rng(3), SHAPES[NO_RANGE][0]
    codes = np.repeat(np.arange(30), 4)
    found = [judged(draw(rng, codes, 1)[0], codes, NO_RANGE) for _ in range(100)]
    assert {word for word, _ in found} == {"INCONCLUSIVE"}
    assert sum(test.p is not None and test.p < 0.001 for _, test in found) > 40


def test_three_families_are_never_tested() -> None:
    assert measure(Cell("normal", 3, True, 1), 50)["silent"] == 1


def test_the_small_grid_can_fail() -> None:
    # Student's t with G - 1 degrees of freedom on the same designs, without counting who carries the variation.
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(RUNS):
        codes = np.repeat(np.arange(5), draw_sizes(rng, 5, 128, equal=False))
        d = SHAPES["normal"][0](rng, codes, 1)[0]
        residuals = np.bincount(codes, weights=d - d.mean())
        t = d.mean() / (np.sqrt(5 / 4 * (residuals**2).sum()) / d.size)
        wrong += 2 * stats.t.sf(abs(t), 4) <= 0.05
    assert wilson(wrong, RUNS).low > 0.05


@pytest.mark.sample("others", "pipeline_lib/evaluation")
@pytest.mark.parametrize("others", ["nothing", "clear"])
def test_power_in_a_family_is_what_was_promised(others: str) -> None:
    assert power(24, True, others, 1_000)["power"] == pytest.approx(0.8, abs=0.03)
