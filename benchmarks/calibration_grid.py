"""Is the verdict honest from 3 families to 100?  Words, intervals, power over a grid of designs whose truth is known.

    nice -n 10 .venv/bin/python -m benchmarks.calibration_grid               (minutes; writes to results/)
    nice -n 10 .venv/bin/python -m benchmarks.calibration_grid --runs 100    (a quick look; writes nothing)

The simulated differences are in grid_data.py, tables and figure in grid_page.py; in small the grid is a test.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.grid_data import NO_RANGE, RARE, SHAPES, TAILS, draw_sizes, metric_of
from benchmarks.simulated_data import inside, records
from pipeline_lib import storage
from pipeline_lib.evaluation.comparison import Comparison, Losses, whatever_was_lost
from pipeline_lib.evaluation.comparison import measure as measure_comparison
from pipeline_lib.evaluation.evidence import (
    critical,
    equivalence,
    families,
    paired,
    primary,
    with_missing,
    within,
)
from pipeline_lib.evaluation.planning import beyond_missing, detectable, unbiased
from pipeline_lib.evaluation.results import TestResult, holm
from pipeline_lib.evaluation.verdict import verdict_of
from pipeline_lib.settings.evaluate import VerdictSettings

FAMILIES = (3, 5, 8, 12, 24, 100)
#: Of skewed differences, of metrics with another range or none, and of lost episodes.
OTHER_FAMILIES = {
    "lopsided": (3, 5, 8, 10, 12, 16, 24, 48, 100),
    **dict.fromkeys(TAILS, (8, 12, 20, 100)),
    **dict.fromkeys(RARE, (5, 8, 10, 12, 20, 30, 60, 100)),
    NO_RANGE: (30,),
    "lost": (8, 24, 100),
}
RUNS = (1, 3, 8)
RESULTS = Path(__file__).parent / "results" / "calibration-grid.json"
ALPHA, MARGIN, POWER, COMPARISONS = 0.05, 0.05, 0.8, 6
#: So many times as many tests are made of a design that is above 5 %.
AGAIN = 8
#: Tests whose promises of power are averaged.
PILOTS = 400


@dataclass(frozen=True)
class Cell:
    """One design: shape of the differences, number and sizes of families, training runs of the selected team."""

    shape: str
    families: int
    equal: bool
    runs: int

    @property
    def problems(self) -> int:
        """About what a test split has: 128, and at least four a family."""
        return max(128, 4 * self.families)


CELLS = [
    Cell(shape, count, equal, runs)
    for shape, (_, varies) in SHAPES.items()
    for count, equal, runs in product(OTHER_FAMILIES.get(shape, FAMILIES), (True, False), RUNS if varies else (1,))
]


@cache
def _template() -> Comparison:
    values = np.random.default_rng(0).random((96, 1))
    settings = VerdictSettings(resamples=200, alpha=ALPHA, margin=MARGIN, power=POWER)
    return measure_comparison(records(values, 0), records(values[::-1], 1), settings, "tests_passed", ("a", "b"))


def judged(differences: np.ndarray, codes: np.ndarray, shape: str) -> tuple[str, Any]:
    """Return the verdict of the product on these differences, and its primary test.

    Args:
        differences: (problems,), or (3, problems) without lost episodes and with their worst and best values.
        codes: (problems,) family of each.
        shape: decides the range of the metric.
    """
    rows = np.atleast_2d(differences)
    tests = [primary(row, codes, 1 - ALPHA) for row in rows]
    equal = [within(one, families(row, codes), MARGIN, ALPHA) for one, row in zip(tests, rows, strict=True)]
    test, found = whatever_was_lost(tests[0], tests[1:]), families(rows[0], codes)
    same = whatever_was_lost(equal[0], equal[1:], signed=False)
    seen = [test.estimate or 0.0 for test in tests]
    ends = [families(row, codes) for row in rows[1:]]
    comparison = dataclasses.replace(
        _template(),
        info=metric_of(shape),
        losses=Losses((0, 0), (0, 0), min(seen), max(seen), False, (ends[0], ends[1])) if ends else None,
        families=int(codes.max()) + 1,
        evidence=found,
        difference=test,
        equivalence=same,
        p_adjusted=test.p,
        equivalence_p_adjusted=same.p,
    )
    return verdict_of(comparison), test


def student(differences: np.ndarray, codes: np.ndarray, test: TestResult) -> tuple[bool, bool]:
    """Return whether Student's t alone would have said significant, and equivalent, where ``test`` gives an answer."""
    plain = paired(differences, codes, 1 - ALPHA)
    if test.p is None or plain.p is None:
        return False, False
    same = equivalence(plain, MARGIN, ALPHA).p
    return plain.p <= ALPHA, same is not None and same <= ALPHA


def measure(cell: Cell, runs: int, seed: int = 0) -> dict[str, Any]:
    """Simulate one design with no difference, and with one of the margin; return rates in [0, 1].

    ``wrong`` is the share of IMPROVED and WORSE where there is no difference (of the wrong direction where there is
    one), ``equivalent`` that of EQUIVALENT where the difference is the margin, ``covers`` the share of intervals that
    hold the truth, among those given, and ``silent`` the share without a test.  ``student`` are the first two as they
    would be by Student's t and two one-sided tests, without what is done about skewness.
    """
    rng = np.random.default_rng([seed, CELLS.index(cell)])
    draw, _ = SHAPES[cell.shape]
    words: Counter[str] = Counter()
    equivalent = covered = given = 0
    plain = np.zeros(2)
    for _ in range(runs):
        codes = np.repeat(np.arange(cell.families), draw_sizes(rng, cell.families, cell.problems, cell.equal))
        differences, truth = draw(rng, codes, cell.runs)
        found, test = judged(differences, codes, cell.shape)
        words[found if truth == 0 or found == ("IMPROVED" if truth < 0 else "WORSE") else ""] += 1
        given += test.p is not None
        covered += inside(test.low, test.high, truth)
        shifted = differences - truth + MARGIN
        found, moved = judged(shifted, codes, cell.shape)
        equivalent += found == "EQUIVALENT"
        seen = np.atleast_2d(differences)[0], np.atleast_2d(shifted)[0]
        plain += (truth == 0 and student(seen[0], codes, test)[0], student(seen[1], codes, moved)[1])
    return {
        **dataclasses.asdict(cell),
        "tests": runs,
        "wrong": (words["IMPROVED"] + words["WORSE"]) / runs,
        "equivalent": equivalent / runs,
        "covers": covered / given if given else None,
        "given": given,
        "silent": 1 - given / runs,
        "student": dict(zip(("wrong", "equivalent"), (plain / runs).tolist(), strict=True)),
    }


def power(count: int, equal: bool, others: str, runs: int) -> dict[str, Any]:
    """Return how often the tests made find a difference of the size promised, in a family of six comparisons.

    The promise is what `detectable` says on average.  The other five comparisons are ``nothing`` (no difference) or
    ``clear`` (significant whatever the correction); ``silent`` is the share of tests that are not made, and ``price``
    how much greater the promise is for what is done about skewness and about kinds of family that may be missing.
    """
    cell = Cell("normal", count, equal, 1)
    draw, _ = SHAPES["normal"]
    rng = np.random.default_rng([count, equal, others == "clear"])
    size = draw_sizes(rng, count, cell.problems, equal)
    codes = np.repeat(np.arange(count), size)
    level = ALPHA / COMPARISONS if others == "nothing" else ALPHA

    def promised(differences: np.ndarray) -> tuple[float, float] | None:
        test = primary(differences, codes, 1 - ALPHA)
        if test.se is None or test.df is None:
            return None
        se, found = unbiased(test.se, test.df), families(differences, codes)
        plain = detectable(se, test.df, level, POWER)
        beyond = beyond_missing(se, count, POWER, 1.0, ALPHA)
        return max(beyond, detectable(se, test.df, level, POWER, critical(test.df, found, level))), plain

    pilots = [promised(draw(rng, codes, 1)[0]) for _ in range(PILOTS)]
    effect, plain = np.mean([found for found in pilots if found is not None], axis=0)
    found = made = 0
    for _ in range(runs):
        test = primary(draw(rng, codes, 1)[0] + effect, codes, 1 - ALPHA)
        p, shown = test.p, test.estimate or 0.0
        made += p is not None
        beside = list(rng.random(COMPARISONS - 1) if others == "nothing" else np.zeros(COMPARISONS - 1))
        adjusted = holm([p, *beside])[0]
        least, _ = with_missing(shown, shown, count, ALPHA, 1.0)
        found += adjusted is not None and adjusted <= ALPHA and least > 0
    return {
        "families": count,
        "equal": equal,
        "others": others,
        "power": found / made,
        "silent": 1 - made / runs,
        "price": float(effect / plain - 1),
    }


def doubtful(row: Mapping[str, Any], runs: int) -> bool:
    """Return whether a design is above 5 % after ``runs`` tests, which are too few to say whether by chance."""
    return row["tests"] <= runs and max(row["wrong"], row["equivalent"]) > ALPHA


def main() -> None:
    """Measure the whole grid; write tables and figure when enough runs were made to mean something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--missing", action="store_true", help="keep the designs that the results have already")
    arguments = parser.parse_args()
    start = time.process_time()
    kept: dict[str, Any] = storage.read_json(RESULTS) if arguments.missing else {"cells": [], "seconds": 0}
    rows = kept["cells"]
    for place, cell in enumerate(CELLS):
        if place == len(rows):
            rows.append(measure(cell, arguments.runs))
        elif not doubtful(rows[place], arguments.runs):
            continue
        if doubtful(rows[place], arguments.runs):
            rows[place] = measure(cell, AGAIN * arguments.runs, seed=1)
        row = rows[place]
        covers = "-" if row["covers"] is None else f"{100 * row['covers']:.1f}"
        numbers = " ".join(f"{name} {100 * row[name]:5.1f}" for name in ("wrong", "equivalent", "silent"))
        print(
            f"{cell.shape:10s} {cell.families:4d} {cell.equal!s:5} {cell.runs}  {numbers}  covers {covers}", flush=True
        )
    powers = kept.get("power") or [
        power(count, equal, others, 2 * arguments.runs)
        for count, equal, others in product((12, 24, 100), (True, False), ("nothing", "clear"))
    ]
    for row in powers:
        print(row, flush=True)
    seconds = kept["seconds"] + time.process_time() - start
    print(f"{seconds:.0f} CPU seconds")
    if arguments.runs >= 1_000:
        result = {"runs": arguments.runs, "seconds": round(seconds), "cells": rows, "power": powers}
        storage.write_json(RESULTS, result)
        from benchmarks.grid_page import write

        write(result)


if __name__ == "__main__":
    main()
