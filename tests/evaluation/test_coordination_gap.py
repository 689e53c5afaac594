import re
from pathlib import Path

import pytest

from benchmarks.calibration_cases import CASES, measure
from benchmarks.coordination_gap import DOC, best_of_fifteen, document, from_g


def test_the_page_is_what_the_code_computes() -> None:
    assert DOC.read_text(encoding="utf-8") == document()


def test_the_figures_in_docs_are_those_of_the_page() -> None:
    text = (Path(__file__).parents[2] / "docs/philosophers.md").read_text(encoding="utf-8")
    section = text[text.index("## What thirty episodes can show") :].partition("\n## ")[0]
    figures = re.findall(r"-?\d+(?:\.\d+)?", re.sub(r"\([^)]*\.md\)", "", section))
    assert len(figures) > 10
    page = document()
    assert [figure for figure in figures if figure not in page] == []


@pytest.mark.parametrize(("n", "p"), [(20, 0.725), (25, 0.695), (30, 0.668), (40, 0.621)])
def test_only_thirty_episodes_an_arm_fit_the_published_numbers(n: int, p: float) -> None:
    assert from_g(n, -0.11)[1] == pytest.approx(p, abs=5e-4)
    assert (round(from_g(n, -0.113)[1], 2) == 0.66) == (n == 30)


def test_back_calculated_facts() -> None:
    text = document()
    for fact in ("[-0.61, +0.39]", "0.736", "0.851", "0.069", "0.021", "| 48 % | 64 |", "| 21 % | 176 |", "| 394 |"):
        assert fact in text
    for fact in ("1.736", "+0.095", "25/30 = 0.833", "14 %"):
        assert fact in text


def test_what_luck_does_to_the_best_of_fifteen_is_the_calibrated_figure() -> None:
    figure = best_of_fifteen()
    assert f"significant in {figure} % of simulated cases" in document()
    naive = next(case for case in CASES if case.name == "best of 15, tested on the same data")
    row = measure(naive, runs=1_000)
    assert row["low"] <= float(figure) / 100 <= row["high"]
