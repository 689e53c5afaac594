"""When families are too few for a t test, and what is said instead."""

import re

import numpy as np
import pytest

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation import verdict
from pipeline_lib.evaluation.evidence import LEAST_CARRYING, distribution_free, families, note, primary
from pipeline_lib.evaluation.sentences import of_comparisons
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
    assert LEAST_CARRYING < found.carrying < 10
    assert f"About {found.carrying:.1f} of 12 families" in note(primary(few, np.arange(12), 0.95), found)
    assert not note(primary(many, np.arange(60), 0.95), families(many, np.arange(60)))


def test_a_difference_that_a_missing_kind_of_family_could_undo_is_no_verdict() -> None:
    """One in ten of them may lose everything: ten families miss that kind in 35 % of cases."""
    gains = np.random.default_rng(0).normal(0.1, 0.02, 60)
    found = compare(*teams(list(gains[:10])), VERDICT)
    assert found.p_adjusted < 1e-4 and found.verdict == "INCONCLUSIVE"
    said = "A kind of family that is one in 4, or rarer, may be missing from these 10; if it differs by the whole range"
    assert said in found.sentence
    enough = int(re.search(r"(\d+) families would exclude that", found.sentence)[1])
    assert [compare(*teams([0.1, 0.09, 0.11] * (n // 3)), VERDICT).verdict for n in (enough - 6, enough + 3)] == [
        "INCONCLUSIVE",
        "IMPROVED",
    ]
    assert compare(*reversed(teams(list(gains))), VERDICT).verdict == "WORSE"


@pytest.mark.parametrize(("count", "expected"), [(30, "INCONCLUSIVE"), (90, "EQUIVALENT")])
def test_equal_teams_are_equivalent_if_no_missing_kind_of_family_could_be_the_margin(count: int, expected: str) -> None:
    found = compare(*teams(list(np.random.default_rng(0).normal(0, 0.01, count)), 1), VERDICT)
    assert found.equivalence_p_adjusted < 1e-4 and found.verdict == expected
    assert ("may be missing" in found.sentence) == (expected == "INCONCLUSIVE")


def test_power_is_promised_for_what_no_missing_kind_could_undo() -> None:
    few = compare(*teams(list(np.random.default_rng(0).normal(0, 0.01, 10))), VERDICT)
    rare = 1 - 0.05 ** (1 / 10)
    assert few.detectable == pytest.approx(rare / (1 - rare), rel=0.02)
    assert 4 * 60 < few.problems_for_margin < 4 * 70


@pytest.mark.parametrize("limits", [{}, {"low": 0.0}, {"high": 1.0}])
@pytest.mark.parametrize("gain", [0.4, 0.0, -0.4])
def test_without_a_declared_range_there_is_an_interval_and_a_p_value_but_no_verdict(
    limits: dict[str, float], gain: float
) -> None:
    """Bahadur and Savage (1956): nothing follows of a mean about which nothing is assumed."""
    words = {0.4: "IMPROVED", 0.0: "EQUIVALENT", -0.4: "WORSE"}
    played = teams(list(np.random.default_rng(0).normal(gain, 0.01, 120)), 1)
    bounded, free = Metric("points", low=0.0, high=1.0), Metric("points", **limits)
    told = [verdict.compare(*played, VERDICT, metrics={"reward": info}) for info in (bounded, free)]
    assert [one.verdict for one in told] == [words[gain], "INCONCLUSIVE"]
    found = told[1]
    assert None not in (found.difference.p, found.difference.low, found.equivalence.p)
    assert found.detectable is None and found.problems_for_margin is None
    assert "95 % interval" in found.sentence and found.sentence.count("No range of points is declared") == 1
    assert [caveat.what for caveat in of_comparisons(told)] == ["no declared range"]


def test_nor_is_there_one_where_all_families_show_the_same_or_few_carry_the_difference() -> None:
    for differences in ([0.5] * 400, [0.8] * 39 + [0.2]):
        played = teams(differences, 1)
        assert compare(*played, VERDICT).verdict == "IMPROVED"
        found = verdict.compare(*played, VERDICT)
        assert found.verdict == "INCONCLUSIVE" and "No range of reward is declared" in found.sentence
