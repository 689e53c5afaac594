"""Agreement with pingouin and rliable, which computed references.json on random data (see references/)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline_lib.evaluation import clusters, results
from pipeline_lib.evaluation import evidence as tests

REFERENCES = json.loads((Path(__file__).parent / "references" / "references.json").read_text())


@pytest.mark.parametrize("case", REFERENCES["two_groups"])
def test_two_groups_agree_with_pingouin(case: dict[str, Any]) -> None:
    x, y, n = np.array(case["x"]), np.array(case["y"]), case["paired"]["n"]
    t, df, p, estimate = (*case["welch"].values(), x.mean() - y.mean())
    found = tests.student("Welch's test of pingouin", estimate, estimate / t, df, (x.size, y.size), 0.95, t, p)
    pairs = tests.paired(x[:n] - y[:n], np.arange(n))
    assert pairs.statistic == pytest.approx(case["paired"]["t"], abs=1e-8)
    assert pairs.p == pytest.approx(case["paired"]["p"], abs=1e-8)
    better = clusters.probability_of_improvement(x[:, None], y[:, None])[0]
    assert better == pytest.approx(case["common_language"], abs=1e-8)
    assert tests.equivalence(found, 1.0, 0.05).p == pytest.approx(case["tost_welch"], abs=1e-8)
    assert tests.equivalence(pairs, 1.0, 0.05).p == pytest.approx(case["tost_paired"], abs=1e-8)


@pytest.mark.parametrize("case", REFERENCES["corrections"])
def test_corrections_agree_with_pingouin(case: dict[str, Any]) -> None:
    assert results.holm(case["p"]) == pytest.approx(case["holm"], abs=1e-8)


@pytest.mark.parametrize("case", REFERENCES["runs_and_tasks"])
def test_runs_and_tasks_agree_with_rliable(case: dict[str, Any]) -> None:
    x, y = np.array(case["x"]), np.array(case["y"])
    assert clusters.interquartile_mean(x) == pytest.approx(case["iqm"], abs=1e-8)
    assert x.mean() == pytest.approx(case["mean"], abs=1e-8)
    assert clusters.probability_of_improvement(x, y).mean() == pytest.approx(case["improvement"], abs=1e-8)
