"""Compare the cells of a study as one family of comparisons.

A verdict on one experiment is about its own teams.  A study is about ways of training, so it uses the wider test, over
training runs and problems together (`evidence.new_runs`).  Each cell against the reference, and each interaction
of two factors, is one comparison of the family; Holm corrects the p values of the differences, and those of
equivalence.  Kinds of problem families that may be missing from the sample are allowed for as in any verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.clusters import Codes, encode
from pipeline_lib.evaluation.comparison import INCONCLUSIVE, Basis, ends, filled, whatever_was_lost, widest
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.evidence import equivalence, mean_interval, new_runs
from pipeline_lib.evaluation.results import Estimate, EvaluationError, Result, TestResult, holm
from pipeline_lib.evaluation.sentences import interval, no_range, p_text, rare_families
from pipeline_lib.evaluation.table import Table, on_common_episodes, problem_means, tabulate

if TYPE_CHECKING:
    from pipeline_lib.settings.evaluate import VerdictSettings

Array = NDArray[np.float64]
Runs = Mapping[int, Sequence[EpisodeRecord]]
"""Test episodes of one cell's selected teams, by training seed."""


@dataclass(frozen=True, slots=True)
class Contrast(Result):
    """One comparison of the family."""

    name: str  #: what is compared, in words
    #: The cells whose means are added, then those whose means are subtracted.
    cells: tuple[tuple[str, ...], tuple[str, ...]]
    test: TestResult  #: difference over training runs and problems
    p_adjusted: float | None = None  #: Holm's p of the difference, or None
    equivalence_p_adjusted: float | None = None  #: Holm's p of equivalence, or None
    verdict: str = INCONCLUSIVE  #: IMPROVED, WORSE, EQUIVALENT or INCONCLUSIVE, of the first cell
    sentence: str = ""  #: summary that can be quoted; with the lost episodes, if there are any


@dataclass(frozen=True, slots=True)
class CellMeans:
    """Means of the cells of a study, on the problems with episodes in every cell and training run."""

    seeds: tuple[int, ...]  #: training seeds, the same in every cell
    clusters: Codes  #: (problems,) family code of each
    values: Mapping[str, Array]  #: by cell, (seeds, problems) means over samples
    #: By cell with losses, how many of its episodes the infrastructure lost, and how many were played.
    lost: Mapping[str, tuple[int, int]]
    #: With losses, the same means of all problems with every lost episode at the least, and at the greatest value that
    #: it may have had (`comparison.Losses`); else empty.
    ends: tuple[CellMeans, ...] = ()

    def mean(self, cell: str, info: Metric, level: float) -> Estimate:
        """Return the mean of a cell's teams over problems, with its interval for new problems."""
        own, *others = [
            mean_interval(means.values[cell].mean(axis=0), means.clusters, level, info) for means in (self, *self.ends)
        ]
        return widest(own, others)

    def by_seed(self, cell: str) -> list[float]:
        """Return the mean of each training run of a cell."""
        return [float(value) for value in self.values[cell].mean(axis=1)]


def cell_means(cells: Mapping[str, Runs], metric: str, info: Metric) -> CellMeans:
    """Arrange the test episodes of all cells; ``info`` is the metric.

    Raises:
        EvaluationError: cells differ in training seeds or problems, or a cell has no episodes.
    """
    found = [tabulate(runs, metric, name) for name, runs in cells.items()]
    lost = {name: (table.lost, table.played) for name, table in zip(cells, found, strict=True) if table.lost}

    def means(tables: Iterable[Table]) -> CellMeans:
        return _means(dict(zip(cells, tables, strict=True)))

    full = tuple(means(filled(table, end) for table in found) for end in ends(found, info)) if lost else ()
    return replace(means(on_common_episodes(found)), lost=lost, ends=full)


def _means(tables: Mapping[str, Table]) -> CellMeans:
    first_name, first = next(iter(tables.items()))
    for name, table in tables.items():
        for what in ("seeds", "problems", "families"):
            if getattr(table, what) != getattr(first, what):
                raise EvaluationError(f"{name} and {first_name} have different {what}; they cannot be one study")
    means = {name: problem_means(table) for name, table in tables.items()}
    there = ~np.any([np.isnan(values).any(axis=0) for values in means.values()], axis=0)
    if not there.any():
        raise EvaluationError(
            "no problem has episodes in every cell and training run; the infrastructure lost too many"
        )
    seeds = tuple(seed for seed in first.seeds if seed is not None)
    families = [family for family, kept in zip(first.families, there, strict=True) if kept]
    return CellMeans(seeds, encode(families), {name: values[:, there] for name, values in means.items()}, {})


def contrasts(
    means: CellMeans, levels: Mapping[str, Sequence[str]], reference: str, info: Metric, settings: VerdictSettings
) -> list[Contrast]:
    """Compare every cell with the reference, add the interactions of two factors, and decide the whole family.

    ``levels`` has, by cell, its level of each factor.  The comparisons come in the order of the cells, then the
    interactions.
    """
    differences: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
        (f"{cell} against {reference}", (cell,), (reference,)) for cell in means.values if cell != reference
    ]
    differences += _interactions(list(means.values), levels, reference)
    tests = [_tests(means, added, taken, settings) for _, added, taken in differences]
    found = [whatever_was_lost(test, worst) for test, *worst in tests]
    p_values = holm([test.p for test in found])
    # p of equivalence: at most alpha exactly if the whole interval lies within the margin, whatever was lost.
    single = [
        whatever_was_lost(equal, worst, signed=False).p
        for equal, *worst in ([equivalence(one, settings.margin, settings.alpha) for one in every] for every in tests)
    ]
    same = holm([None if p is None else min(1.0, 2 * p) for p in single])
    decided = []
    for (name, added, taken), every, test, p, q in zip(differences, tests, found, p_values, same, strict=True):
        seen, size = tuple(one.estimate or 0.0 for one in every), int(means.clusters.max()) + 1
        rests_on = Basis(seen, p, q, size, info, settings.alpha, settings.margin, len(added))
        verdict = rests_on.verdict()
        contrast = Contrast(name, (added, taken), test, p, q, verdict)
        doubt = no_range(info) or rare_families(rests_on, verdict)
        text = " ".join(filter(None, (f"{verdict}: {_sentence(contrast, len(found), info, means.lost)}", doubt)))
        decided.append(replace(contrast, sentence=text))
    return decided


def _interactions(
    cells: Sequence[str], levels: Mapping[str, Sequence[str]], reference: str
) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Return name, added and taken cells of the interaction, for every cell that differs from the reference in both."""
    if len(levels[reference]) < 2:
        return []
    by_levels = {tuple(found): cell for cell, found in levels.items()}
    first, second = levels[reference]
    return [
        (
            f"{one} and {two} together, beyond the effect of each alone",
            (cell, reference),
            (by_levels[one, second], by_levels[first, two]),
        )
        for cell in cells
        for one, two in [levels[cell]]
        if one != first and two != second
    ]


def _tests(means: CellMeans, added: Sequence[str], taken: Sequence[str], settings: VerdictSettings) -> list[TestResult]:
    """Return the test of the sum of some cells less that of others, then those of what lost episodes may have shown."""

    def difference(left: CellMeans, right: CellMeans) -> TestResult:
        a, b = (
            np.sum([side.values[cell] for cell in cells], axis=0) for side, cells in ((left, added), (right, taken))
        )
        return new_runs(a, b, left.clusters, 1 - settings.alpha)

    return [difference(left, right) for left, right in ((means, means), *itertools.permutations(means.ends, 2))]


def _sentence(contrast: Contrast, size: int, info: Metric, lost: Mapping[str, tuple[int, int]]) -> str:
    test, p = contrast.test, contrast.p_adjusted
    text = f"{contrast.name}: {info.difference(test.estimate or 0.0)} in {info.label}"
    if test.p is None:
        text += f"; nothing can be said about other training runs: {test.degenerate}."
    else:
        corrected = f" after Holm's correction for {size} comparisons" if size > 1 else ""
        text += (
            f" ({100 * test.level:.0f} % interval over training runs and problems "
            f"{interval(test.low, test.high, info.difference)}, {p_text(p)}{corrected})."
        )
    if cells := [cell for cell in itertools.chain(*contrast.cells) if cell in lost]:
        who = ", ".join(f"{lost[cell][0]} of {lost[cell][1]} episodes of {cell}" for cell in cells)
        text += f" The infrastructure lost {who}: interval, p value and verdict allow for the worst case."
    return text
