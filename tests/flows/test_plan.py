"""Planning by the command that people type: from variances given by hand, and without a pilot."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
from statsmodels.stats.power import TTestPower

from tests.flows.project import ROOT, call


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return tmp_path


def test_the_problems_that_a_difference_needs_are_those_of_a_paired_t_test(project: Path) -> None:
    given = ["--between", "0.05", "--within", "0.1", "--difference", "0.05", "--samples", "8", "--seeds", "3"]
    said = call(project, "python", "-m", "flows.plan", *given)
    # The selected team's episodes are spread over three runs, the base's are not.
    variance = 0.05 + 0.1 / (8 * 3) + 0.1 / 8
    problems = math.ceil(
        TTestPower().solve_power(0.05 / math.sqrt(variance), alpha=0.05 / 4, power=0.8)
    )  # four comparisons in the family
    rows = [line.split() for line in said.splitlines()]
    assert ["0.050", "8", "3", str(problems)] in [row[:4] for row in rows]


def test_episodes_by_the_million_fit_into_80_columns(project: Path) -> None:
    said = call(project, "python", "-m", "flows.plan", "--between", "0.1", "--within", "0.1", "--difference", "0.005")
    assert "," in said and "…" not in said


def test_without_a_pilot_it_says_what_to_do(project: Path) -> None:
    said = call(project, "python", "-m", "flows.plan", status=1)
    assert "results/test/team-base.jsonl: no pilot; run `make pipeline` once" in said
    assert "--between and --within" in said and "Traceback" not in said
