"""The verdict on each comparison of a family: IMPROVED, WORSE, EQUIVALENT or INCONCLUSIVE.

A verdict is a statement about the teams tested, on problems like those tested; `Comparison.new_runs` is the wider one
about other training runs.  All comparisons of a test form one family: Holm's correction over the p values of the
differences, and over those of equivalence.  A difference that is real but smaller than the margin is EQUIVALENT: the
margin is what the settings say would matter.  "p > 0.05" alone is never "no effect".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from pipeline_lib.evaluation.comparison import (
    EQUIVALENT,
    IMPROVED,
    INCONCLUSIVE,
    WORSE,
    Comparison,
    bounds_without_variation,
)
from pipeline_lib.evaluation.multiplicity import holm
from pipeline_lib.evaluation.sentences import sentence


def decide(family: Mapping[str, Comparison]) -> dict[str, Comparison]:
    """Correct a family of comparisons for their number and give each its verdict and sentence."""
    names = list(family)
    p_values = holm([family[name].difference.p for name in names])
    equivalences = holm([family[name].equivalence.p for name in names])
    decided = {}
    for name, p, q in zip(names, p_values, equivalences, strict=True):
        comparison = dataclasses.replace(family[name], family_size=len(names), p_adjusted=p, equivalence_p_adjusted=q)
        verdict = _verdict(comparison)
        comparison = dataclasses.replace(comparison, verdict=verdict)
        decided[name] = dataclasses.replace(comparison, sentence=sentence(comparison))
    return decided


def identical(comparison: Comparison, reason: str) -> Comparison:
    """Return the verdict on two teams that are known to be the same one."""
    text = f"{EQUIVALENT}: {reason[:1].lower()}{reason[1:]}"
    return dataclasses.replace(comparison, verdict=EQUIVALENT, degenerate="", sentence=text, p_adjusted=None)


def _verdict(c: Comparison) -> str:
    estimate = c.difference.estimate
    if estimate is None or c.one_observation:
        return INCONCLUSIVE
    if c.difference.p is None:
        limits = bounds_without_variation(c)
        if limits is None:
            return INCONCLUSIVE
        low, high = limits
        better, worse, same = low > 0, high < 0, -c.margin < low and high < c.margin
    else:
        significant = c.p_adjusted is not None and c.p_adjusted <= c.alpha
        better, worse = significant and estimate > 0, significant and estimate < 0
        same = c.equivalence_p_adjusted is not None and c.equivalence_p_adjusted <= c.alpha
    if same:
        return EQUIVALENT
    if worse:
        return WORSE
    return IMPROVED if better and not c.faults else INCONCLUSIVE
