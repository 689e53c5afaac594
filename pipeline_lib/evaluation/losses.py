"""Episodes that the infrastructure lost: what they could change at most.

Nothing says that episodes are lost at random: programs that run out of memory may be the wrong ones.  Each lost
episode may have had any value in the metric's range, so a comparison is made three times: without the lost pairs, and
with the values that are worst and best for the first team.  What holds of the difference must hold in all three (the
worst-case bounds of Horowitz & Manski 2000).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.evidence import Families, families
from pipeline_lib.evaluation.results import Estimate, Result, TestResult
from pipeline_lib.evaluation.table import Pairing, Table, pair


@dataclass(frozen=True, slots=True)
class Losses(Result):
    """Lost episodes of a comparison."""

    lost: tuple[int, int]  #: lost episodes of the first team and of the second
    played: tuple[int, int]  #: all episodes of the first team and of the second
    low: float  #: least mean difference that is possible, whatever the lost episodes would have shown
    high: float  #: greatest one
    assumed: bool  #: the metric has no range, so lost episodes are taken to lie within the values that were seen
    #: The families as evidence with the lost episodes worst for the first team, and with them best for it.
    evidence: tuple[Families, Families]


def extremes(a: Table, b: Table, names: tuple[str, str], info: Metric) -> tuple[Pairing, ...]:
    """Return the pairing with the lost episodes worst for the first team, and the one with them best for it.

    Both are empty if nothing was lost.
    """
    if not a.lost and not b.lost:
        return ()
    low, high = ends((a, b), info)
    return tuple(pair(filled(a, first), filled(b, second), names) for first, second in ((low, high), (high, low)))


def describe_losses(a: Table, b: Table, found: Sequence[Pairing], info: Metric) -> Losses | None:
    """Return what was lost and what it could change; ``found`` are the `extremes`, None if there are none."""
    if not found:
        return None
    low, high = sorted(float(one.a_means.mean() - one.b_means.mean()) for one in found)
    worst, best = (families(one.a_means.mean(axis=0) - one.b_means.mean(axis=0), one.clusters) for one in found)
    assumed = info.low is None or info.high is None
    return Losses((a.lost, b.lost), (a.played, b.played), low, high, assumed, (worst, best))


def whatever_was_lost(test: TestResult, others: Sequence[TestResult], signed: bool = True) -> TestResult:
    """Return a test that claims only what it and the tests of the extremes claim alike.

    The interval covers those of all, and p is the greatest of them; 1 if the test is of no difference (``signed``) and
    the extremes contradict each other in sign.  Without an answer to one of them there is no answer.
    """
    if not others:
        return test
    every = (test, *others)
    if test.p is None:
        return dataclasses.replace(test, low=None, high=None)
    if reasons := [one.degenerate for one in others if one.p is None]:
        reason = f"with the lost episodes at an end of their range, {reasons[0]}"
        return dataclasses.replace(
            test, statistic=None, df=None, p=None, se=None, low=None, high=None, degenerate=reason
        )
    signs = {np.sign(one.estimate or 0.0) for one in every if signed}
    p = 1.0 if len(signs) > 1 else max(one.p or 0.0 for one in every)
    return dataclasses.replace(test, **_cover(every), p=p)


def widest(estimate: Estimate, others: Sequence[Estimate]) -> Estimate:
    """Return an estimate with an interval that covers those of all."""
    return dataclasses.replace(estimate, **_cover((estimate, *others)))


def _cover(every: Sequence[Estimate | TestResult]) -> dict[str, Any]:
    """Return the limits of an interval that covers those of all; None if one has none."""
    lows, highs = [one.low for one in every], [one.high for one in every]
    return {
        "low": None if None in lows else min(low for low in lows if low is not None),
        "high": None if None in highs else max(high for high in highs if high is not None),
    }


def ends(tables: Sequence[Table], info: Metric) -> tuple[float, float]:
    """Return the least and greatest value of a lost episode: of the metric, else of what was seen."""
    if info.low is not None and info.high is not None:
        return info.low, info.high
    seen = np.concatenate([table.values.ravel() for table in tables])
    return float(np.nanmin(seen)), float(np.nanmax(seen))


def filled(table: Table, value: float) -> Table:
    """Return a table whose lost episodes have ``value``."""
    return dataclasses.replace(table, values=np.where(table.gone, value, table.values), gone=np.zeros_like(table.gone))
