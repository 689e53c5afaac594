"""When families are too few for a t test, and what is said instead."""

import numpy as np
import pytest

from pipeline_lib.evaluation.evidence import SHARES, distribution_free, families, note, primary
from pipeline_lib.settings.evaluate import VerdictSettings
from tests.evaluation.build import compare, episode

VERDICT = VerdictSettings(resamples=200)


def teams(differences: list[float], each: int = 4):
    """Two teams whose mean differences by family are given; the first passes half of everything else."""
    rng = np.random.default_rng(0)
    first, second = [], []
    for family, difference in enumerate(differences):
        for problem in range(each):
            for sample in range(2):
                place = f"p{family:02d}-{problem}", sample
                first.append(episode(*place, 0.5 + difference / 2, f"f{family}", int(rng.integers(5, 99))))
                second.append(episode(*place, 0.5 - difference / 2, f"f{family}", int(rng.integers(5, 99))))
    return first, second


@pytest.mark.parametrize("count", [3, 5, 12, 40])
def test_one_family_that_carries_everything_supports_no_test(count: int) -> None:
    differences = [0.0] * (count - 1) + [0.4]
    found = compare(*teams(differences), VERDICT)
    assert found.verdict == "INCONCLUSIVE"
    assert found.difference.p is None and found.p_adjusted is None and found.detectable is None
    assert found.difference.low is None and found.effect.g is None
    assert f"Too few families for a test: {count} were evaluated and about " in found.sentence
    assert "Without assuming a distribution" in found.sentence


def test_many_families_that_all_gain_are_an_improvement_without_a_test() -> None:
    found = compare(*teams([0.8] * 39 + [0.2]), VERDICT)
    assert found.difference.p is None and found.verdict == "IMPROVED"
    mirrored = compare(*reversed(teams([0.8] * 39 + [0.2])), VERDICT)
    assert mirrored.verdict == "WORSE"


def test_hundreds_of_families_without_a_difference_are_equivalent_without_a_test() -> None:
    assert compare(*teams([0.0] * 199 + [0.3], 1), VERDICT).verdict == "EQUIVALENT"


def test_the_bounds_are_the_rule_of_three_at_zero_and_widen_with_the_largest_family() -> None:
    nothing = families(np.zeros(100), np.arange(100))
    low, high = distribution_free(nothing, 0.05, 1.0)
    assert high == pytest.approx(1 - (0.05 / 4) ** (1 / 100)) and low == -high
    lopsided = families(np.zeros(100), np.minimum(np.arange(100), 50))
    assert lopsided.largest == 0.5
    assert distribution_free(lopsided, 0.05, 1.0)[1] > 5 * high


@pytest.mark.parametrize(("rare", "size"), [(0.03, 0.9), (0.3, 0.5), (0.9, 0.2)])
def test_the_bounds_hold_whatever_the_distribution(rare: float, size: float) -> None:
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(300):
        differences = np.where(rng.random(20) < rare, size, -0.05)
        low, high = distribution_free(families(differences, np.arange(20)), 0.05, 1.0)
        inside += low <= rare * size - 0.05 * (1 - rare) <= high
    assert inside >= 0.95 * 300


def test_the_reader_is_told_when_few_families_carry_the_result() -> None:
    rng = np.random.default_rng(0)
    few, many = rng.normal(size=12), rng.normal(size=60)
    found = families(few, np.arange(12))
    assert SHARES.least < found.carrying < 10
    assert f"About {found.carrying:.1f} of 12 families" in note(primary(few, np.arange(12), 0.95), found)
    assert not note(primary(many, np.arange(60), 0.95), families(many, np.arange(60)))
