"""Compare the cells of a study as one family of comparisons.

A verdict on one experiment is about its own teams.  A study is about ways of training, so it uses the wider test, over
training runs and problems together (`training_runs.new_runs`).  Each cell against the reference, and each interaction
of two factors, is one comparison of the family; Holm corrects the p values of the differences, and those of
equivalence.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.clusters import Codes, encode
from pipeline_lib.evaluation.comparison import EQUIVALENT, IMPROVED, INCONCLUSIVE, WORSE
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.evidence import equivalence, mean_interval
from pipeline_lib.evaluation.losses import ends, filled, whatever_was_lost, widest
from pipeline_lib.evaluation.results import Estimate, EvaluationError, Result, TestResult, holm
from pipeline_lib.evaluation.sentences import interval, p_text
from pipeline_lib.evaluation.table import Pairing, Table, on_common_episodes, problem_means, tabulate
from pipeline_lib.evaluation.training_runs import new_runs

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
    #: it may have had (`losses`); else empty.
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
    ends_of = ends(found, info) if lost else ()
    full = tuple(_means(dict(zip(cells, (filled(table, end) for table in found), strict=True))) for end in ends_of)
    return replace(_means(dict(zip(cells, on_common_episodes(found), strict=True))), lost=lost, ends=full)


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
    found = [
        Contrast(f"{cell} against {reference}", ((cell,), (reference,)), _test(means, (cell,), (reference,), settings))
        for cell in means.values
        if cell != reference
    ]
    found += _interactions(means, levels, reference, settings)
    p_values = holm([contrast.test.p for contrast in found])
    same = holm([_equivalence(contrast.test, settings) for contrast in found])
    return [
        _decided(contrast, p, q, len(found), info, settings, means.lost)
        for contrast, p, q in zip(found, p_values, same, strict=True)
    ]


def _interactions(
    means: CellMeans, levels: Mapping[str, Sequence[str]], reference: str, settings: VerdictSettings
) -> list[Contrast]:
    """Return the interaction of the two factors for every cell that differs from the reference in both."""
    if len(levels[reference]) < 2:
        return []
    by_levels = {tuple(found): cell for cell, found in levels.items()}
    base = levels[reference]
    found = []
    for cell in means.values:
        one, two = levels[cell]
        if one == base[0] or two == base[1]:
            continue
        added, taken = (cell, reference), (by_levels[(one, base[1])], by_levels[(base[0], two)])
        name = f"{one} and {two} together, beyond the effect of each alone"
        found.append(Contrast(name, (added, taken), _test(means, added, taken, settings)))
    return found


def _test(means: CellMeans, added: Sequence[str], taken: Sequence[str], settings: VerdictSettings) -> TestResult:
    """Return the test of a difference that holds whatever the lost episodes would have shown."""
    test = _difference(means, means, added, taken, settings)
    pairs = itertools.permutations(means.ends, 2)
    worst = [_difference(left, right, added, taken, settings) for left, right in pairs]
    return whatever_was_lost(test, worst)


def _difference(
    left: CellMeans, right: CellMeans, added: Sequence[str], taken: Sequence[str], settings: VerdictSettings
) -> TestResult:
    """Return the test of the sum of the cells ``added``, from ``left``, less that of ``taken``, from ``right``."""
    a, b = (
        np.sum([means.values[cell] for cell in cells], axis=0)[:, :, None]
        for means, cells in ((left, added), (right, taken))
    )
    pairing = Pairing(
        problems=tuple(map(str, range(a.shape[1]))),
        clusters=left.clusters,
        a=a,
        b=b,
        aligned=True,
        seeds=left.seeds,
        trained=(True, True),
        episodes=(a.size, b.size),
        notes=(),
    )
    return new_runs(pairing, 1 - settings.alpha)


def _equivalence(test: TestResult, settings: VerdictSettings) -> float | None:
    """Return p of equivalence: at most alpha exactly if the whole interval lies within the margin."""
    p = equivalence(test, settings.margin, settings.alpha).p
    return None if p is None else min(1.0, 2 * p)


def _decided(
    contrast: Contrast,
    p: float | None,
    same: float | None,
    size: int,
    info: Metric,
    settings: VerdictSettings,
    lost: Mapping[str, tuple[int, int]],
) -> Contrast:
    test, verdict = contrast.test, INCONCLUSIVE
    if same is not None and same <= settings.alpha:
        verdict = EQUIVALENT
    elif p is not None and p <= settings.alpha and test.estimate is not None:
        verdict = IMPROVED if test.estimate > 0 else WORSE
    difference = info.difference(test.estimate or 0.0)
    if test.p is None or test.low is None or test.high is None:
        text = (
            f"{verdict}: {contrast.name}: {difference} in {info.label}; nothing can be said about other training runs: "
            f"{test.degenerate}."
        )
    else:
        corrected = f" after Holm's correction for {size} comparisons" if size > 1 else ""
        limits = interval(test.low, test.high, info.difference)
        text = (
            f"{verdict}: {contrast.name}: {difference} in {info.label} ({100 * test.level:.0f} % interval over "
            f"training runs and problems {limits}, {p_text(p)}{corrected})."
        )
    cells = [cell for cell in itertools.chain(*contrast.cells) if cell in lost]
    if cells:
        who = ", ".join(f"{lost[cell][0]} of {lost[cell][1]} episodes of {cell}" for cell in cells)
        text += f" The infrastructure lost {who}: interval, p value and verdict allow for the worst case."
    return replace(contrast, p_adjusted=p, equivalence_p_adjusted=same, verdict=verdict, sentence=text)
