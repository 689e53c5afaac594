import csv
import dataclasses
import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.report import results, series
from pipeline_lib.report.data import ReportData
from tests.report.build import STEPS, experiment, training


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plots")
    assert all(file.exists() for file in series.write_plots(experiment(), path))
    return path


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_learning_has_the_mean_over_seeds_and_each_seed(folder: Path) -> None:
    found = rows(folder, "learning")
    assert [int(row["step"]) for row in found] == list(range(1, 81))
    seeds = [float(found[9][f"tests_passed seed {s}"]) for s in range(3)]
    assert float(found[9]["primary"]) == pytest.approx(sum(seeds) / 3)
    assert float(found[9]["reward single-agent GRPO seed 0"]) == pytest.approx(training(7, 0.12)[9]["reward/mean"])


def test_only_shares_are_drawn_over_the_checkpoints_on_their_axis_of_per_cent() -> None:
    data = experiment()
    talk = Metric("tokens of messages", "tokens of all messages", low=0.0, high=100.0, over_checkpoints=True)
    sweep = {
        seed: {step: {**metrics, "talk": 40.0} for step, metrics in by_step.items()}
        for seed, by_step in data.sweep.items()
    }
    data = dataclasses.replace(data, metrics={**data.metrics, "talk": talk}, sweep=sweep)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = results.checkpoint_metrics(data)
    assert drawn is not None
    assert "all_passed" in drawn.table.columns
    assert "talk" not in drawn.table.columns


def test_sweep_is_one_curve_that_starts_at_the_base(folder: Path) -> None:
    found = rows(folder, "sweep")
    assert [int(row["step"]) for row in found] == [0, *STEPS]
    for row in found:
        assert float(row["band_low"]) <= float(row["low"]) < float(row["mean"]) < float(row["high"])
    assert [int(row["step"]) for row in rows(folder, "checkpoints")] == [0, *STEPS]


def test_no_limit_is_beyond_the_range_of_the_metric() -> None:
    point = {"mean": 0.02, "low": -0.01, "high": 0.05, "band_low": None, "band_high": 1.2}
    assert series.limits(point, Metric("tests", share=True)) == [0.02, 0.0, 0.05, None, 1.0]
    assert series.limits(point, Metric("reward")) == [0.02, -0.01, 0.05, None, 1.2]


def test_problems_effects_and_headline_agree(folder: Path) -> None:
    found = rows(folder, "problems")
    assert len(found) == 96
    headline = json.loads((folder / "headline.json").read_text())
    mean = sum(float(row["difference"]) for row in found) / 96
    assert mean == pytest.approx(headline["difference"])
    assert float(rows(folder, "effects")[0]["difference"]) == pytest.approx(headline["difference"])
    assert headline["low"] < headline["difference"] < headline["high"]
    assert headline["verdict"] == "IMPROVED"


def test_a_problem_that_differs_by_rounding_is_unchanged() -> None:
    problems = {"same": {"base": 0.1 + 0.2, "selected": 0.3}, "better": {"base": 0.0, "selected": 0.5}}
    data: Any = SimpleNamespace(verdict={"problems": problems})
    assert {row[0]: row[3] for row in series.problems(data).rows} == {"same": 0.0, "better": 0.5}


def test_terms_add_up_to_the_reward(folder: Path) -> None:
    names = ("structure", "syntax", "tests", "cooperation")
    assert {path.stem for path in (folder / "terms").iterdir()} == set(names)
    assert set(rows(folder, "terms/tests")[0]) == {"step", "reward"}


def test_time_is_complete(folder: Path) -> None:
    found = rows(folder, "time")
    assert [row["run"] for row in found] == [f"team, seed {s}" for s in range(3)] + ["single-agent GRPO, seed 0"]
    parts = [float(value) for key, value in found[0].items() if key.endswith("(s)")]
    assert sum(parts[:-1]) == pytest.approx(parts[-1])


def test_each_policy_has_its_own_series(folder: Path) -> None:
    found = rows(folder, "policies")
    assert [float(found[0][f"tokens per action: {policy}"]) for policy in ("helper", "main")] == [20, 21]


def test_seeds_of_different_length_and_missing_metrics() -> None:
    full = experiment()
    uneven = {0: training(0), 1: training(1)[:5], 2: [{"step": 1.0}]}
    data = ReportData("x", uneven, full.selection, full.verdict)
    table = series.learning(data)
    assert len(table.rows) == 80
    assert table.rows[20][table.columns.index("reward seed 1")] is None
    assert "reward seed 2" not in table.columns
    empty = ReportData("x", {}, full.selection, full.verdict)
    assert series.learning(empty).rows == [] and series.terms(empty).rows == [] and series.lengths(empty).rows == []
