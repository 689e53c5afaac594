"""The family of comparisons of a study: right on data whose truth is known, and as plain Python computes it."""

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping

import numpy as np
import pytest
from scipy import stats

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.results import EvaluationError
from pipeline_lib.evaluation.study import cell_means, contrasts
from pipeline_lib.settings.evaluate import VerdictSettings

INFO = Metric("tests passed", share=True)
SETTINGS = VerdictSettings(alpha=0.05, margin=0.05)
ONE = {"a": ("a",), "b": ("b",), "c": ("c",)}
TWO = {f"{x}, {y}": (x, y) for x, y in itertools.product(("slow", "fast"), ("small", "large"))}


def records(values: np.ndarray, families: int = 0) -> dict[int, list[EpisodeRecord]]:
    """Return one episode per training seed and problem, with ``values`` (seeds, problems)."""
    return {
        seed: [
            EpisodeRecord(
                problem=f"p{i}",
                family=f"f{i % families if families else i}",
                sample=0,
                reward=0.0,
                turns=1,
                terms={},
                metrics={"tests_passed": float(value)},
                tokens=1,
            )
            for i, value in enumerate(row)
        ]
        for seed, row in enumerate(values)
    }


def decided(cells: Mapping[str, np.ndarray], levels=ONE, reference: str = "a", families: int = 0):
    means = cell_means({name: records(values, families) for name, values in cells.items()}, "tests_passed", INFO)
    return contrasts(means, levels, reference, INFO, SETTINGS)


def drawn(rng: np.random.Generator, runs: float, cells: int = 3, problems: int = 40) -> list[np.ndarray]:
    """Return cells of 5 runs that differ by chance alone: runs by ``runs``, problems, and the rest."""
    problem = rng.normal(0.5, 0.2, problems)
    return [problem + rng.normal(0, runs, (5, 1)) + rng.normal(0, 0.1, (5, problems)) for _ in range(cells)]


@pytest.mark.parametrize("runs", [0.0, 0.03, 0.1])
def test_without_a_difference_a_family_finds_one_in_at_most_five_per_cent(runs: float) -> None:
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(200):
        cells = dict(zip("abc", drawn(rng, runs), strict=True))
        wrong += any(found.verdict in ("IMPROVED", "WORSE") for found in decided(cells))
    assert stats.binomtest(wrong, 200).proportion_ci().low <= 0.05, wrong


def test_runs_that_differ_much_are_no_evidence_however_many_problems_there_are() -> None:
    """Taking the teams at hand for the way of training finds differences nearly every time here."""
    rng = np.random.default_rng(1)
    alone = whole = 0
    for _ in range(100):
        a, b, _ = drawn(rng, 0.1)
        alone += stats.ttest_rel(a.mean(axis=0), b.mean(axis=0)).pvalue <= 0.05
        whole += decided({"a": a, "b": b}, {"a": ("a",), "b": ("b",)})[0].verdict != "INCONCLUSIVE"
    assert alone > 60 and whole <= 12, (alone, whole)


def test_p_values_are_those_of_holm_by_hand() -> None:
    rng = np.random.default_rng(3)
    a, b, c = drawn(rng, 0.01)
    found = decided({"a": a, "b": b + 0.2, "c": c})
    raw = sorted((contrast.test.p, contrast.name) for contrast in found)
    by_hand = {raw[0][1]: min(1.0, 2 * raw[0][0]), raw[1][1]: max(min(1.0, 2 * raw[0][0]), raw[1][0])}
    assert {contrast.name: contrast.p_adjusted for contrast in found} == pytest.approx(by_hand)
    assert found[0].verdict == "IMPROVED" and found[0].test.estimate == pytest.approx((b + 0.2 - a).mean())


def test_the_test_is_that_of_the_balanced_analysis_of_variance() -> None:
    """Mean difference over the root of (runs + problems - rest), all as mean squares, by plain arithmetic."""
    rng = np.random.default_rng(8)
    a, b, _ = drawn(rng, 0.05)
    d = (b - a).tolist()
    n, m = len(d), len(d[0])
    mean = sum(map(sum, d)) / (n * m)
    rows = [sum(row) / m for row in d]
    columns = [sum(row[j] for row in d) / n for j in range(m)]
    over_runs = m * sum((x - mean) ** 2 for x in rows) / (n - 1)
    over_problems = n * sum((x - mean) ** 2 for x in columns) / (m - 1)
    rest = sum((d[i][j] - rows[i] - columns[j] + mean) ** 2 for i in range(n) for j in range(m)) / ((n - 1) * (m - 1))
    variance = max(over_runs, over_problems, over_runs + over_problems - rest) / (n * m)
    test = decided({"a": a, "b": b}, {"a": ("a",), "b": ("b",)})[0].test
    assert test.estimate == pytest.approx(mean) and test.se == pytest.approx(math.sqrt(variance))


def test_an_interaction_is_what_two_factors_do_beyond_each_alone() -> None:
    rng = np.random.default_rng(5)
    base, both, one, two = drawn(rng, 0.01, 4)
    cells = {"slow, small": base, "fast, large": both + 0.4, "fast, small": one + 0.1, "slow, large": two + 0.1}
    found = decided(cells, TWO, "slow, small")
    assert [contrast.cells for contrast in found[:3]] == [((name,), ("slow, small",)) for name in list(cells)[1:]]
    (together,) = found[3:]
    assert together.cells == (("fast, large", "slow, small"), ("fast, small", "slow, large"))
    assert together.test.estimate == pytest.approx(0.2, abs=0.03) and together.verdict == "IMPROVED"
    assert {round(contrast.p_adjusted / contrast.test.p, 3) <= 4 for contrast in found} == {True}


def test_cells_that_are_alike_within_the_margin_are_equivalent() -> None:
    a, b, c = drawn(np.random.default_rng(2), 0.005, problems=100)
    assert [contrast.verdict for contrast in decided({"a": a, "b": b, "c": c})] == ["EQUIVALENT", "EQUIVALENT"]


def test_kinds_of_family_that_no_cell_met_do_not_make_a_verdict() -> None:
    """One family in twenty gains 90 points and all others lose as much together, so cells do not differ on average.

    A third of all samples of twenty miss it: taking missing families to be like the others calls the cell WORSE there.
    """
    rng, wrong, naive = np.random.default_rng(12), 0, 0
    for _ in range(100):
        a, b = (rng.normal(0.5, 0.05, (5, 20)) for _ in range(2))
        b += np.where(rng.random(20) < 0.05, 0.9, -0.9 / 19)
        (found,) = decided({"a": a, "b": b}, {"a": ("a",), "b": ("b",)})
        wrong += found.verdict != "INCONCLUSIVE"
        naive += found.p_adjusted is not None and found.p_adjusted <= 0.05
    assert naive > 25, "the test is too easy"
    assert stats.binomtest(wrong, 100).proportion_ci().low <= 0.05, wrong


@pytest.mark.parametrize(("gain", "verdict"), [(0.0, "EQUIVALENT"), (0.04, "IMPROVED")])
def test_the_sentence_says_how_many_families_would_do(gain: float, verdict: str) -> None:
    """Cells that differ by exactly ``gain``: too few families for a verdict, and as many as the sentence asks for."""

    def cells(problems: int) -> dict[str, np.ndarray]:
        a, b = drawn(np.random.default_rng(2), 0.0, 2, problems)
        b += a.mean(axis=0) - b.mean(axis=0) + gain
        runs = 0.004 * np.linspace(-1, 1, 5)[:, None]  # without any spread nothing could be said
        return {"a": a, "b": b + runs}

    (few,) = decided(cells(20), {"a": ("a",), "b": ("b",)})
    said = "A kind of family that is one in 7, or rarer, may be missing from these 20; if it differs by the whole range"
    assert few.verdict == "INCONCLUSIVE" and said in few.sentence
    needed = int(re.search(r"(\d+) families would exclude that", few.sentence)[1])
    for problems, expected in ((needed - 1, "INCONCLUSIVE"), (needed, verdict)):
        (found,) = decided(cells(problems), {"a": ("a",), "b": ("b",)})
        assert found.verdict == expected, (problems, found.sentence)
        assert ("may be missing" in found.sentence) == (expected == "INCONCLUSIVE")


def test_a_family_that_is_missing_may_show_twice_the_range_in_an_interaction() -> None:
    """Both together gain 9 points beyond the effect of each alone: beyond one range of 40 families, not beyond two."""
    cells = [
        values + gain for values, gain in zip(drawn(np.random.default_rng(5), 0.001, 4), (0, 0.09, 0, 0), strict=True)
    ]
    names = ("slow, small", "fast, large", "fast, small", "slow, large")
    *alone, together = decided(dict(zip(names, cells, strict=True)), TWO, "slow, small")
    assert alone[0].verdict == "IMPROVED" and together.p_adjusted < 1e-3
    assert together.verdict == "INCONCLUSIVE" and "by the whole range in each of 2 differences" in together.sentence


@pytest.mark.parametrize(("gain", "verdict"), [(0.0, "EQUIVALENT"), (0.4, "IMPROVED"), (-0.4, "WORSE")])
def test_a_metric_without_a_declared_range_has_an_interval_and_no_verdict(gain: float, verdict: str) -> None:
    a, b = drawn(np.random.default_rng(2), 0.0, 2, 120)
    b += a.mean(axis=0) - b.mean(axis=0) + gain + 0.004 * np.linspace(-1, 1, 5)[:, None]
    cells = {"a": records(a), "b": records(b)}
    levels = {"a": ("a",), "b": ("b",)}
    for info, expected in ((INFO, verdict), (Metric("points"), "INCONCLUSIVE")):
        (found,) = contrasts(cell_means(cells, "tests_passed", info), levels, "a", info, SETTINGS)
        assert found.verdict == expected and found.test.p is not None and found.test.low is not None
        assert ("No range of points is declared" in found.sentence) == (expected == "INCONCLUSIVE")


def test_a_problem_that_was_lost_in_one_run_is_left_out_of_all() -> None:
    a, b, _ = drawn(np.random.default_rng(6), 0.01)
    cells = {"a": records(a), "b": records(b)}
    lost = cells["b"][2][7]
    cells["b"][2][7] = dataclasses.replace(lost, reward=None, metrics={})
    assert cell_means(cells, "tests_passed", INFO).values["a"].shape == (5, 39)


@pytest.mark.parametrize("end", [0.0, 1.0])
def test_what_was_lost_cannot_make_a_finding(end: float) -> None:
    """Without its failures a cell looks better than the reference, and without its successes worse; it is neither."""
    rng = np.random.default_rng(3)
    values = {name: np.tile((rng.random(60) < 0.5).astype(float), (5, 1)) for name in ("a", "b")}
    values["c"] = np.ones((5, 60))
    cells = {name: records(found) for name, found in values.items()}
    gone = (values["b"] == end) & (values["a"] != end)
    for seed, i in zip(*np.nonzero(gone), strict=True):
        cells["b"][seed][i] = dataclasses.replace(cells["b"][seed][i], reward=None, metrics={})
    count = int(gone.sum())
    means = cell_means(cells, "tests_passed", INFO)
    assert means.lost == {"b": (count, 300)}
    b, c = contrasts(means, ONE, "a", INFO, SETTINGS)
    naive = contrasts(dataclasses.replace(means, ends=()), ONE, "a", INFO, SETTINGS)[0]
    assert naive.verdict == ("IMPROVED" if end == 0 else "WORSE"), "the test is too easy"
    assert b.verdict == "INCONCLUSIVE" and b.p_adjusted > 0.5
    truth = (values["b"] - values["a"]).mean()
    assert b.test.low < truth < b.test.high
    assert f"The infrastructure lost {count} of 300 episodes of b: interval" in b.sentence
    assert c.verdict == "IMPROVED" and "lost" not in c.sentence
    whole = means.mean("b", INFO, 0.95)
    assert whole.low < values["b"].mean() < whole.high


def test_what_was_lost_cannot_make_two_cells_equivalent() -> None:
    """EQUIVALENT says that the whole interval lies within the margin, also with what lost episodes may have shown."""
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.25, 200)
    a = np.full((3, 200), 0.5)
    b = np.clip(a + noise - noise.mean(), 0, 1) + np.array([[-0.001], [0.0], [0.001]])
    cells = {"a": records(a), "b": records(b)}
    for i in range(0, 200, 8):
        cells["b"][1][i] = dataclasses.replace(cells["b"][1][i], reward=None, metrics={})
    means = cell_means(cells, "tests_passed", INFO)
    levels = {"a": ("a",), "b": ("b",)}
    (naive,) = contrasts(dataclasses.replace(means, ends=()), levels, "a", INFO, SETTINGS)
    (found,) = contrasts(means, levels, "a", INFO, SETTINGS)
    assert naive.verdict == "EQUIVALENT", "the test is too easy"
    assert found.test.low < -SETTINGS.margin or found.test.high > SETTINGS.margin
    assert found.verdict == "INCONCLUSIVE" and found.equivalence_p_adjusted > SETTINGS.alpha


def test_cells_with_other_seeds_or_problems_are_no_study() -> None:
    a, b, _ = drawn(np.random.default_rng(6), 0.01)
    with pytest.raises(EvaluationError, match="different seeds"):
        cell_means({"a": records(a), "b": records(b[:4])}, "tests_passed", INFO)
    with pytest.raises(EvaluationError, match="different problems"):
        cell_means({"a": records(a), "b": records(b[:, :30])}, "tests_passed", INFO)
    with pytest.raises(EvaluationError, match="different families"):
        cell_means({"a": records(a), "b": records(b, 3)}, "tests_passed", INFO)


def test_identical_runs_are_not_called_a_finding() -> None:
    same = np.full((5, 40), 0.5)
    (found,) = decided({"a": same, "b": same}, {"a": ("a",), "b": ("b",)})
    assert found.verdict == "INCONCLUSIVE" and "no variation" in found.sentence
